# SPDX-License-Identifier: MIT
"""Some members of a group, which make collectives among themselves.

The one idea: the requests are those of a group, with the subgroup's scope put into each. So every collective is there,
in both forms, and nothing but `Communicator.subgroup` knows how a scope is made.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from pccl._native import ReduceInfo, constants
from pccl.collectives import Collectives
from pccl.handle import Handle
from pccl.lanes import Job
from pccl.request import Members, Request

if TYPE_CHECKING:
    from pccl.communicator import Communicator


class Subgroup(Collectives):
    """What `Communicator.subgroup` returns. Tags count apart from those of the group and of other subgroups, so all may
    be used at a time. Two of the same ranks in the same order are the same subgroup. Deferred operations are settled by
    the communicator's `commit`, which all members of the group make. Roots are ranks of the subgroup."""

    def __init__(self, communicator: Communicator, scope: int, members: Members, ranks: tuple[int, ...]) -> None:
        """`Communicator.subgroup` makes them."""
        self._communicator = communicator
        self._modes = communicator._modes
        self._scope = scope
        self._members = members
        self.ranks = ranks
        """The members, by their ranks in the group."""

    @property
    def rank(self) -> int:
        """This peer's place in it."""
        return self._members.rank

    @property
    def world_size(self) -> int:
        """How many members it has."""
        return self._members.size

    @property
    def epoch(self) -> int:
        """That of the view whose ranks it was made of."""
        return self._members.epoch

    def __repr__(self) -> str:
        return f"<pccl.Subgroup of ranks {list(self.ranks)} in epoch {self.epoch}: rank {self.rank}>"

    def _run(self, request: Request, priority: int = 0) -> ReduceInfo:
        return self._communicator._run(self._scoped(request), priority)

    def _launch(self, request: Request, priority: int = 0) -> Handle:
        return self._communicator._launch(self._scoped(request), priority)

    def _submit(self, name: str, tag: int, steps: Generator[Request, ReduceInfo, Any]) -> Job[Any]:
        return self._communicator._submit(name, tag, self._all_scoped(steps), self._scope)

    def _group(self, epoch: int = 0) -> Members:
        return self._members.within(epoch)

    def _scoped(self, request: Request) -> Request:
        request.call.scope = self._scope
        request.call.expected_epoch = self.epoch
        request.call.flags |= constants.PCCL_SAME_MEMBERS
        return request

    def _all_scoped(self, steps: Generator[Request, ReduceInfo, Any]) -> Generator[Request, ReduceInfo, Any]:
        try:
            request = next(steps)
            while True:
                request = steps.send((yield self._scoped(request)))
        except StopIteration as end:
            return end.value
