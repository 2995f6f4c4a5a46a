# SPDX-License-Identifier: MIT
"""The open joint calls: who has voted for what, and whether two of them can never meet.

What for: it tells the master when a vote is complete and when it cannot be. Must not know: what a vote causes, what its
voters bring with it, time.

The one idea: at any moment all open votes of the run's scope are of one kind, and no group has open votes of both
scopes. `cast` refuses to break that and names the clash, so a deadlock of joint calls cannot be formed.
"""

from __future__ import annotations

from dataclasses import dataclass

from pccl.messages import MeasuredLink
from pccl.protocol.types import CALL_NAMES, PeerId, VoteKind


@dataclass(frozen=True, slots=True)
class Open:
    """One peer's open vote. `name` is how texts call the peer; `since` is when it came (ms); `measured` is what it told
    of its links with optimize_topology."""

    peer: PeerId
    group: int
    call: int
    kind: VoteKind
    body: bytes
    name: str
    since: int
    measured: tuple[MeasuredLink, ...] = ()


class VoteBox:
    """All open votes of accepted peers. Iteration follows the order of arrival."""

    def __init__(self) -> None:
        self._run: dict[PeerId, Open] = {}
        self._groups: dict[int, dict[PeerId, Open]] = {}
        self._run_by_group: dict[int, int] = {}

    def of(self, peer: PeerId, group: int) -> Open | None:
        return self._run.get(peer) or self._groups.get(group, {}).get(peer)

    def cast(self, vote: Open) -> str:
        """Adds a vote of a peer that has none open. Returns why it can never be completed beside the others, empty
        if it can; the vote is in the box in either case."""
        clash = self._clash(vote)
        if vote.kind is VoteKind.SYNC_SHARED_STATE:
            self._groups.setdefault(vote.group, {})[vote.peer] = vote
        else:
            self._run[vote.peer] = vote
            self._run_by_group[vote.group] = self._run_by_group.get(vote.group, 0) + 1
        return clash

    def _clash(self, vote: Open) -> str:
        if vote.kind is VoteKind.SYNC_SHARED_STATE:
            if not self._run_by_group.get(vote.group):
                return ""
            other = next(it for it in self._run.values() if it.group == vote.group)
        else:
            candidates = [next(iter(box.values())) for box in (self._run, self._groups.get(vote.group, {})) if box]
            found = next((it for it in candidates if it.kind is not vote.kind), None)
            if found is None:
                return ""
            other = found
        return f"{other.name} called {CALL_NAMES[other.kind]} while {vote.name} called {CALL_NAMES[vote.kind]}"

    def drop(self, peer: PeerId, group: int) -> None:
        """The peer is gone, or its vote has its answer."""
        if self._run.pop(peer, None) is not None:
            self._run_by_group[group] -= 1
        box = self._groups.get(group)
        if box is not None:
            box.pop(peer, None)
            if not box:
                del self._groups[group]

    def run_votes(self) -> list[Open]:
        return list(self._run.values())

    def group_votes(self, group: int) -> list[Open]:
        return list(self._groups.get(group, {}).values())

    def voters(self, group: int) -> list[PeerId]:
        """The members of `group` that have an open vote of either scope."""
        return [*(it.peer for it in self._run.values() if it.group == group), *self._groups.get(group, {})]

    def run_count(self) -> int:
        return len(self._run)

    def group_count(self, group: int) -> int:
        return len(self._groups.get(group, {}))

    def voted_groups(self) -> list[int]:
        """Groups with open votes of their own scope."""
        return list(self._groups)

    def stuck_with(self, vote: Open) -> list[Open]:
        """All votes that fail if `vote` does: those of its scope, and of both scopes where they clash in its group."""
        run = self._run if vote.kind is not VoteKind.SYNC_SHARED_STATE or self._run_by_group.get(vote.group) else {}
        return [*run.values(), *self.group_votes(vote.group)]
