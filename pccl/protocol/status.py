# SPDX-License-Identifier: MIT
"""The master's answer to "how is the run?", for anyone who can reach it.

What for: `pccl status`. Must not know: who asks, how it is shown.

The one idea: a picture costs something to take, so one is taken at most every EVERY_MS, whoever asks, and no more than
ANSWERS of it are given away; who asks beyond that gets nothing and asks again. Asking changes nothing.

It reveals membership: addresses, ranks, epochs, who waits for whom. It does not reveal secrets, nor whole peer ids: a
stranger that connects under a peer's id would be taken for a new connection of that peer.
"""

from __future__ import annotations

from collections.abc import Sequence

from pccl.messages import (
    MAX_STATUS_MEMBERS,
    PROTOCOL_VERSION,
    StatusAnswer,
    StatusCount,
    StatusGroup,
    StatusMember,
    StatusNewcomer,
    StatusStall,
    clip,
)
from pccl.protocol.joint import JointCalls
from pccl.protocol.lateness import Lateness
from pccl.protocol.links import Links
from pccl.protocol.roster import Group, Peer, Roster
from pccl.protocol.suspicion import Suspicions
from pccl.protocol.types import Limits

EVERY_MS = 250
ANSWERS = 16


class StatusDesk:
    """Takes pictures of the state that the parts of the master share."""

    def __init__(
        self,
        roster: Roster,
        joint: JointCalls,
        suspicions: Suspicions,
        links: Links,
        lateness: Lateness,
        limits: Limits,
    ) -> None:
        self._roster, self._joint, self._suspicions, self._lateness = roster, joint, suspicions, lateness
        self._links, self._limits = links, limits
        self._started_at = 0
        self._taken_at: int | None = None
        self._left = 0
        self._picture: StatusAnswer | None = None

    def start(self, now: int) -> None:
        """The master works from now on."""
        self._started_at = now

    def answer(self, now: int) -> StatusAnswer | None:
        """The present picture; None when it was given away too often."""
        if self._taken_at is None or now >= self._taken_at + EVERY_MS:
            self._picture, self._taken_at, self._left = self._take(now), now, ANSWERS
        self._left -= 1
        return self._picture if self._left >= 0 else None

    def _take(self, now: int) -> StatusAnswer:
        roster = self._roster
        shown = list(roster.groups.values())[:MAX_STATUS_MEMBERS]
        members = [(group, roster.peers[peer]) for group in shown for peer in group.members]
        stalls = [stall for group in shown for stall in self._lateness.stalls(group, now)]
        return StatusAnswer(
            PROTOCOL_VERSION,
            now - self._started_at,
            self._limits.heartbeat_limit_ms,
            roster.past.epoch,
            roster.census,
            roster.records,
            0,
            tuple([self._group(group, now) for group in shown]),
            tuple([self._member(group, it, stalls, now) for group, it in members[:MAX_STATUS_MEMBERS]]),
            tuple([_newcomer(it, now) for it in list(roster.pending.values())[:MAX_STATUS_MEMBERS]]),
            tuple(self._joint.calls(now)[:MAX_STATUS_MEMBERS]),
            tuple(stalls[-MAX_STATUS_MEMBERS:]),
            tuple([StatusCount(event.value, count) for event, count in roster.counts.items()]),
        )

    def _group(self, group: Group, now: int) -> StatusGroup:
        gathering = group.gathering
        missing = [group.rank(it) for it in group.members if gathering is not None and it not in gathering.reports]
        return StatusGroup(
            group.view.group,
            group.epoch,
            len(group.members),
            group.view.ring[:MAX_STATUS_MEMBERS],
            group.view.shape,
            group.view.parents[:MAX_STATUS_MEMBERS],
            0 if gathering is None else max(1, now - gathering.since),
            tuple(missing[:MAX_STATUS_MEMBERS]),
            group.view.text,
            _flat(group.view.avoided),
            _flat(self._broken(group, now)),
        )

    def _broken(self, group: Group, now: int) -> list[tuple[int, int]]:
        """Also what is not to be used any more, but still is."""
        pairs = [*self._links.avoided(group.members), *self._links.shaky(group.members, now)]
        ends = [sorted((group.rank(one), group.rank(other))) for one, other in pairs]
        return [(low, high) for low, high in sorted(ends) if (low, high) not in group.view.avoided]

    def _member(self, group: Group, peer: Peer, stalls: list[StatusStall], now: int) -> StatusMember:
        assert peer.member is not None  # accepted, so registered
        rank, late = group.rank(peer.id), self._lateness.of(peer.id)
        return StatusMember(
            group.view.group,
            rank,
            peer.id.hex()[:8],
            peer.member.address,
            peer.member.port,
            peer.member.host_id,
            peer.member.cores,
            now - peer.heard,
            peer.known,
            peer.returning,
            self._suspicions.suspected(peer.id),
            late.operations,
            late.longest_ms,
            clip(self._waits(group, peer, rank, stalls, now)),
        )

    def _waits(self, group: Group, peer: Peer, rank: int, stalls: list[StatusStall], now: int) -> str:
        if group.gathering is not None:
            return "the verdict" if peer.id in group.gathering.reports else ""
        if call := self._joint.waits_in(peer, now):
            return call
        own = [it for it in stalls if it.group == group.view.group and it.rank == rank]
        if not own:
            return ""
        stall = own[-1]
        ranks = ", ".join(str(it) for it in stall.ranks) or "others"
        return f"{stall.operation.short} for rank {ranks}{' to start it' if stall.absent else ''}"


def _flat(pairs: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    return tuple([rank for pair in pairs for rank in pair][:MAX_STATUS_MEMBERS])


def _newcomer(peer: Peer, now: int) -> StatusNewcomer:
    assert peer.member is not None
    return StatusNewcomer(
        peer.group, peer.id.hex()[:8], peer.member.address, peer.member.port, now - peer.heard, peer.known
    )
