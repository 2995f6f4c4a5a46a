# SPDX-License-Identifier: MIT
"""Spoils the workers of `pccl stress` from within, each in another way, so that its checkers have something to find.

Written to a folder on the path as `sitecustomize`, it runs in each Python before anything else does.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import pccl
from pccl.errors import InvalidArgument

STEP = 12
"""Where a peer is spoilt; one is spoilt later, since its end spoils the step of all."""

_all_reduce_async = pccl.Communicator.all_reduce_async
_sync_shared_state = pccl.Communicator.sync_shared_state
_process_time = time.process_time
_step = 0


class Spoilt:
    """A handle whose result is not what the group agreed on."""

    def __init__(self, handle: Any, how: str, result: Any) -> None:
        self._handle, self._how, self._result = handle, how, result

    def wait(self) -> pccl.ReduceInfo:
        """As the handle's, but for the sabotage."""
        info: pccl.ReduceInfo = self._handle.wait()
        if self._how == "value":
            self._result[-1] += 1
        elif self._how == "verdict":
            info = info._replace(epoch=info.epoch + 1)
        return info


class Lost:
    """An operation that failed for no reason."""

    def wait(self) -> pccl.ReduceInfo:
        """Nobody was lost."""
        raise pccl.PeerLost("rank 7 was lost, says the saboteur")


def spoilt_all_reduce(how: str) -> Any:
    """The collective, wrong once: for the first tensor of a step."""

    def call(self: Any, source: Any, result: Any, **options: Any) -> Any:
        global _step
        _step += options["tag"] == 0
        now = options["tag"] == 0 and _step == STEP
        if now and how == "loss":
            return Lost()
        if how == "error" and _step == 2 * STEP:
            raise InvalidArgument("says the saboteur")
        handle = _all_reduce_async(self, source, result, **options)
        return Spoilt(handle, how, result) if now else handle

    return call


def spoilt_sync(self: Any, state: Any, *arguments: Any, **options: Any) -> Any:
    """The synchronisation, after which one bit is another one."""
    info = _sync_shared_state(self, state, *arguments, **options)
    if _step >= STEP:
        weights = state.tensors[1]
        weights.content[0] ^= 1
    return info


def spoil(how: str) -> None:
    """This process, in one way."""
    if how == "state":
        pccl.Communicator.sync_shared_state = spoilt_sync  # type: ignore[method-assign]
    elif how == "spin":
        time.process_time = lambda: _process_time() + time.monotonic()
    pccl.Communicator.all_reduce_async = spoilt_all_reduce(how)  # type: ignore[method-assign]


WAYS = ("value", "verdict", "state", "loss", "spin", "error")

if "pccl.stress.worker" in sys.orig_argv:
    spoil(WAYS[json.loads(sys.orig_argv[-1])["number"]])
