# SPDX-License-Identifier: MIT
"""Which newcomers may be admitted: a group that has no members begins with so many founders, or not at all.

What for: a run whose size is known from the start has all its members in its first view. Must not know: votes, probes,
how a view is made.

The one idea: a question about newcomers that wait, asked again wherever some of them may have gone meanwhile. So there
is nothing to remember, and nothing to lose in a restart: whoever waits says again that it does.
"""

from __future__ import annotations

from collections.abc import Iterable

from pccl.protocol.roster import Roster
from pccl.protocol.types import PeerId


class Founding:
    """Asks the roster. Groups that have members admit anybody."""

    def __init__(self, roster: Roster, founders: int) -> None:
        self._roster, self._founders = roster, founders

    def admissible(self, newcomers: Iterable[PeerId]) -> list[PeerId]:
        """Those of `newcomers` (pending, in order of arrival) whose group has members, or begins with them."""
        candidates = list(newcomers)
        pending, groups = self._roster.pending, self._roster.groups
        wanted: dict[int, int] = {}
        for peer in candidates:
            number = pending[peer].group
            wanted[number] = wanted.get(number, 0) + 1
        return [it for it in candidates if (number := pending[it].group) in groups or wanted[number] >= self._founders]

    def ready(self) -> list[PeerId]:
        """Who of all that wait, and are connected, may be admitted now."""
        return self.admissible(peer for peer, it in self._roster.pending.items() if it.known)

    def missing(self, group: int) -> str:
        """Whom a group without members waits for, in words; empty if it has members, or may begin."""
        present = sum(1 for it in self._roster.pending.values() if it.group == group and it.known)
        if group in self._roster.groups or present >= self._founders:
            return ""
        return f"group {group} begins with {self._founders} founders, {self._founders - present} of them missing"

    def explain(self) -> list[str]:
        """One line for each group that newcomers wait to found."""
        numbers = dict.fromkeys(it.group for it in self._roster.pending.values())
        return [line for number in numbers if (line := self.missing(number))]
