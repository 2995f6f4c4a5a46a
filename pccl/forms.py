# SPDX-License-Identifier: MIT
"""The two forms of each collective: one that waits for its end, and one that returns a Handle at once.

The one idea: a collective is written once, as a method that blocks and ends in `self._run(request)`. The other form is
the same method, called on a stand-in for the communicator whose `_run` starts the operation instead.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from pccl._native import ReduceInfo
from pccl.handle import Handle
from pccl.request import Members, Modes, Request

P = ParamSpec("P")
C = TypeVar("C", bound="Caller")


class Caller:
    """What the collectives need of a Communicator."""

    _modes: Modes

    def _run(self, request: Request, priority: int = 0) -> ReduceInfo:
        raise NotImplementedError

    def _launch(self, request: Request, priority: int = 0) -> Handle:
        raise NotImplementedError

    def _group(self, epoch: int = 0) -> Members:
        """The view of now. Raises PeerLost when `epoch` is neither its epoch nor 0."""
        raise NotImplementedError


class _Starter:
    """A communicator that starts what it is asked to run."""

    __slots__ = ("_group", "_modes", "_run")

    def __init__(self, caller: Caller) -> None:
        self._modes = caller._modes
        self._group = caller._group
        self._run = caller._launch


def starting(blocking: Callable[Concatenate[C, P], ReduceInfo]) -> Callable[Concatenate[C, P], Handle]:
    """The form of a collective that returns at once. It takes the same arguments and raises at once what is wrong with
    them; what the operation ends with comes from the handle."""
    body: Any = blocking

    @wraps(blocking)
    def start(self: C, /, *arguments: P.args, **named: P.kwargs) -> Handle:
        handle: Handle = body(_Starter(self), *arguments, **named)
        return handle

    name = blocking.__name__
    start.__name__ = f"{name}_async"
    start.__qualname__ = f"{blocking.__qualname__}_async"
    start.__doc__ = (
        f"As `{name}`, but returns at once; the handle's `wait`, or `await` in asyncio, gives the ReduceInfo."
    )
    start.__annotations__ = {**blocking.__annotations__, "return": "Handle"}
    signature = inspect.signature(blocking).replace(return_annotation="Handle")
    start.__signature__ = signature  # type: ignore[attr-defined]
    return start
