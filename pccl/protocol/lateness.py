# SPDX-License-Identifier: MIT
"""Who keeps others waiting: what the members' reports of stalled operations say about those that have not come.

What for: `pccl status`. Must not know: messages' effects, votes, how an operation ends.

The one idea: a peer reports a stalled operation again after each threefold wait, and takes it back when it has ended.
So a report stands until then, or until the next one is overdue (its sender is gone or cut off); and the reports that
name *absent* members (who have not even started the operation) add up to a count per peer that tells the slow one from
its victims.
"""

from __future__ import annotations

from dataclasses import dataclass

from pccl.messages import OperationName, Stalled, StatusStall
from pccl.protocol.roster import Group
from pccl.protocol.types import PeerId

MAX_OPERATIONS = 64
"""Stalled operations that are remembered, the newest ones."""

GRACE_MS = 1_000
"""A report may come so much later than it is due."""


@dataclass(slots=True)
class Late:
    """In how many operations others waited for this peer, and the longest such wait."""

    operations: int = 0
    longest_ms: int = 0


@dataclass(frozen=True, slots=True)
class _Said:
    stalled: Stalled
    at: int

    def waited_ms(self, now: int) -> int:
        """Up to now, or 0 if it has gone on: the report after this one is overdue."""
        due = 2 * self.stalled.waited_ms + GRACE_MS
        return self.stalled.waited_ms + now - self.at if now - self.at <= due else 0


class Lateness:
    """The reports of all groups. Bounded: MAX_OPERATIONS, and one `Late` per member that was ever late."""

    def __init__(self) -> None:
        self._said: dict[tuple[int, int, OperationName], dict[PeerId, _Said]] = {}
        self._blamed: dict[tuple[int, int, OperationName], dict[PeerId, bool]] = {}
        self._late: dict[PeerId, Late] = {}

    def note(self, group: Group, reporter: PeerId, stalled: Stalled, now: int) -> None:
        """`reporter`, a member of `group`, says that it waits, or waits no more."""
        if stalled.epoch != group.epoch:
            return
        key = (group.view.group, stalled.epoch, stalled.operation)
        if stalled.waited_ms == 0:
            self._said.get(key, {}).pop(reporter, None)
            return
        if key not in self._said and len(self._said) >= MAX_OPERATIONS:
            oldest = next(iter(self._said))
            del self._said[oldest], self._blamed[oldest]
        self._said.setdefault(key, {})[reporter] = _Said(stalled, now)
        blamed = self._blamed.setdefault(key, {})
        members = group.view.members
        for peer in [members[rank] for rank in stalled.ranks if stalled.absent and rank < len(members)]:
            late = self._late.setdefault(peer, Late())
            late.operations += peer not in blamed
            late.longest_ms = max(late.longest_ms, stalled.waited_ms)
            blamed[peer] = True

    def of(self, peer: PeerId) -> Late:
        return self._late.get(peer, Late())

    def drop(self, peer: PeerId) -> None:
        """The peer is a member no more."""
        self._late.pop(peer, None)
        for waiting in self._said.values():
            waiting.pop(peer, None)

    def stalls(self, group: Group, now: int) -> list[StatusStall]:
        """What the members of `group` wait in at this moment, the newest operation last."""
        found: list[StatusStall] = []
        for (number, epoch, operation), waiting in self._said.items():
            if number != group.view.group or epoch != group.epoch or group.gathering is not None:
                continue
            for peer, said in waiting.items():
                if waited := said.waited_ms(now):
                    stalled, rank = said.stalled, group.rank(peer)
                    found.append(StatusStall(number, epoch, operation, rank, waited, stalled.ranks, stalled.absent))
        return found
