# SPDX-License-Identifier: MIT
"""One operation of a step, from its first start to a result that is judged, however often it has to be repeated.

The one idea: it repeats what its task says for whoever is left. Arrays that were made for a group which is no more are
made anew; others are used again as they are, since a failure leaves the input as it was. Where links are down that the
task needs, all members of the epoch are refused alike; a broadcast from the same memory takes its place in that epoch.

Must not know: steps, reports, what others make of its result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import pccl
from pccl.stress import workload
from pccl.stress.program import Task
from pccl.stress.workload import FROM_ROOT, Memory, Turn, Work, Wrong

DETOUR = "broadcast"


class Operation:
    """The `index`-th of a step, by peer `number`. `lost` is called with the reason whenever a peer was lost in it.
    `faults` has what was wrong with it, in words."""

    def __init__(
        self,
        comm: pccl.Communicator,
        task: Task,
        number: int,
        step: int,
        index: int,
        memory: Memory,
        lost: Callable[[int, str], None],
    ) -> None:
        self.faults: list[str] = []
        self._comm, self._task, self._memory, self._lost = comm, task, memory, lost
        self._number, self._step, self._index = number, step, index
        self._work: Work | None = None
        self._handle: pccl.Handle | None = None
        self._info: pccl.ReduceInfo | None = None

    def prepare(self) -> Work:
        """The call for the group of this moment."""
        while self._work is None or (self._work.bound and self._work.turn.epoch != self._comm.epoch):
            self._work = self._made(self._task.collective, self._task.options)
        return self._work

    def start(self) -> Operation:
        """Returns at once. Raises what the collective does."""
        self._handle = self.prepare().start()
        return self

    def wait(self) -> pccl.ReduceInfo:
        """Blocks until it has ended. Raises PeerLost if it is to be started again, and what else the collective
        does."""
        assert self._work is not None
        assert self._handle is not None
        try:
            try:
                self._info = self._handle.wait()
            except pccl.Unsupported:
                self._detour(self._work.turn.epoch)
                self._info = self._work.call()
        except pccl.PeerLost as loss:
            if not self._work.intact():
                self._blame("the input did not survive a failure")
            self._lost(self._index, str(loss))
            if self._work.name == DETOUR != self._task.collective:
                self._work = None
            raise
        return self._info

    def report(self) -> dict[str, Any]:
        """What the result says of itself: its members, or its source where it is one member's; the world size, epoch
        and, of the roll call, the total of all elements. Judges it on the way."""
        work, info = self._work, self._info
        assert work is not None
        assert info is not None
        members = source = None
        try:
            members = work.members(info)
        except Wrong as wrong:
            self._blame(str(wrong))
        if work.name in FROM_ROOT:
            members, source = None, members
        if not self._task.in_place and not work.intact():
            self._blame("the input has changed")
        said: dict[str, Any] = {"collective": work.name, "members": members, "source": source}
        said |= {"world": info.world_size, "epoch": info.epoch}
        if work.name == "all_reduce":
            result = work.arguments[1]
            said |= {"total": float(result.sum(dtype=np.float64)), "count": len(result)}
        return said

    def _detour(self, epoch: int) -> None:
        """Whoever was refused in that epoch goes this way in it, and only in it. Raises PeerLost if it is over."""
        self._work = self._made(DETOUR, {})
        if self._work.turn.epoch != epoch:
            raise pccl.PeerLost(f"epoch {epoch}, in which links were missing, is over")

    def _made(self, collective: str, options: dict[str, Any]) -> Work:
        task = self._task
        turn = Turn(
            self._comm,
            self._number,
            self._step,
            self._index,
            dtype=task.dtype,
            salt=task.salt,
            memory=self._memory,
        )
        make = workload.COLLECTIVES[collective]
        return make(turn, task.elements(turn.size), task.in_place, tag=self._index, **options)

    def _blame(self, text: str) -> None:
        self.faults.append(f"tensor {self._index} ({self._task.collective}): {text}")
