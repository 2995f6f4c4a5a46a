# SPDX-License-Identifier: MIT
"""What goes beyond one operation of one epoch: retries, and the end of a step."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from pccl import request, retry
from pccl._native import ReduceInfo
from pccl.arguments import whole
from pccl.enums import PremulSum, ReduceOp
from pccl.forms import Caller


class Steps(Caller):
    """Of a Communicator alone: a subgroup ends with the members that it was made of."""

    def all_reduce_multiple_with_retry(
        self,
        descriptors_or_arrays: Sequence[Any],
        *,
        op: ReduceOp | PremulSum = ReduceOp.SUM,
        tag: int = 0,
        max_in_flight: int = 4,
        deterministic: bool | None = None,
        priority: int = 0,
        timeout: float | None = None,
    ) -> ReduceInfo:
        """All-reduces several arrays concurrently, each again after a PeerLost until it succeeded with whoever is left.

        Takes ReduceOpDescriptors (with their own op and tag), or arrays that are reduced in place with `op` and the
        tags `tag`, `tag + 1`, ... Different ones may have been reduced with different world sizes; the info has the
        last one's, and all bytes. Raises TooFewPeers when nobody else is left, and what `all_reduce` raises; arrays
        that were reduced before hold their results then. Ctrl-C ends the wait only: all operations are started and go
        on, as the others count on them, but none is repeated.
        """
        modes = self._modes.reducing(deterministic)
        whole("max_in_flight", max_in_flight, 1, 2**16)
        requests = request.all_reduces(descriptors_or_arrays, op, tag, timeout, modes)
        return retry.until_done([partial(self._launch, one, priority) for one in requests], max_in_flight)

    def commit(self, *, timeout: float | None = None) -> ReduceInfo:
        """With `commit="deferred"`: settles all operations since the last commit, alike on every survivor.

        Returns when they are good everywhere; raises PeerLost when the whole step is to be repeated everywhere.
        """
        return self._run(request.commit(timeout))
