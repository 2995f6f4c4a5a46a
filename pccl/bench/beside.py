# SPDX-License-Identifier: MIT
"""A large operation beside the one that is timed.

Processes see its ends at different moments, and so begin different numbers of them. In the end they agree on the
largest, so that none waits for ever.
"""

from __future__ import annotations

import numpy as np

import pccl

TAG = 2**40
"""Nobody else's, and the next one."""


class Beside:
    """Keeps an all_reduce of so many bytes under way, at priority 0, from the first `keep` to `end`."""

    def __init__(self, comm: pccl.Communicator, size: int) -> None:
        self._comm = comm
        self._memory = np.zeros(max(1, size // 4), np.float32)
        self._handle: pccl.Handle | None = None
        self._begun = 0

    def keep(self) -> None:
        """Begins the next one if the last has ended."""
        if self._handle is None or self._handle.done():
            self._begin()

    def end(self) -> None:
        """Blocks until all that anybody has begun have ended."""
        most = np.array([self._begun], np.int64)
        self._comm.all_reduce(most, op=pccl.ReduceOp.MAX, tag=TAG + 1)
        while self._begun < most[0]:
            self._begin()
        if self._handle is not None:
            self._handle.wait()
        self._handle, self._begun = None, 0

    def _begin(self) -> None:
        if self._handle is not None:
            self._handle.wait()
        self._handle = self._comm.all_reduce_async(self._memory, tag=TAG)
        self._begun += 1
