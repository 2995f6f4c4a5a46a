# SPDX-License-Identifier: MIT
"""Which send a receive gets: a model of csrc/engine/match.h for one epoch.

What for: receives of any source have no name before a send has come. Must not know: what is sent, what becomes of it.

The one idea: the rule of MPI. A send goes to the receive that was called first of those that fit it, so what was called
behind a receive of any source waits with it.
"""

from __future__ import annotations

from collections.abc import Mapping

from pccl import scope
from tests.sim.operation import Name, Operation


class Matching:
    """`waiting` are the receives without a name, in the order of their calls."""

    def __init__(self) -> None:
        self.waiting: list[Operation] = []
        self._arrived: dict[Name, bool] = {}

    def delays(self, operation: Operation, rank: int) -> bool:
        """Whether what rank `rank` calls must wait until a send has come."""
        if operation.from_any:
            return True
        two = scope.pair(operation.scope)
        receives = two is not None and two[1] == rank
        return receives and any(it.from_any and it.tag == operation.tag for it in self.waiting)

    def arrived(self, name: Name) -> None:
        """A send has come that no receive was called for."""
        self._arrived[name] = True

    def take(self, tag: int, called: Mapping[tuple[int, int], int]) -> tuple[Operation, int] | None:
        """The next receive of `tag` that may begin, and its scope; `called` counts the names that are given away."""
        first = next((it for it in self.waiting if it.tag == tag), None)
        if first is None:
            return None
        whose: int | None = first.scope
        if first.from_any:
            free = (name[0] for name in self._arrived if name[1] == tag and name[2] >= called.get(name[:2], 0))
            whose = next(free, None)
        if whose is None:
            return None
        self.waiting.remove(first)
        return first, whose
