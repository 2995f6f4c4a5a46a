# SPDX-License-Identifier: MIT
"""Who is waited for in a joint call, and what those do instead, in words.

What for: the errors of withdrawn calls, and `explain`. Must not know: what a vote causes, messages.

The one idea: whoever waits learns from the text where to look next: which peer, whether it still speaks, and which
other wait it is in, as far as the master knows. An operation is only reported while it stalls, never when it goes on,
so the text says that in the past tense.
"""

from __future__ import annotations

from pccl.protocol.roster import Group, Peer, Phase, Roster
from pccl.protocol.types import CALL_NAMES, NOBODY, PeerId, VoteKind
from pccl.protocol.votes import VoteBox

NAMED = 4
"""So many absent voters are described; a text has room for no more."""


def absent(roster: Roster, votes: VoteBox, kind: VoteKind, group: int) -> list[Peer]:
    """The voters that a call of `kind`, made in `group`, waits for."""
    if kind is VoteKind.SYNC_SHARED_STATE:
        voted = {vote.peer: True for vote in votes.group_votes(group)}
        return [roster.peers[peer] for peer in roster.groups[group].members if peer not in voted]
    voted = {vote.peer: True for vote in votes.run_votes() if vote.kind is kind}
    return [it for it in roster.peers.values() if it.phase is Phase.ACCEPTED and it.id not in voted]


def describe(roster: Roster, votes: VoteBox, kind: VoteKind, group: int, now: int, asking: PeerId = NOBODY) -> str:
    """Whom a call of `kind`, made in `group`, waits for, without the one who asks; empty if for nobody. Those that have
    made the call and gave it up are not to blame, so they come last."""
    missing = [it for it in absent(roster, votes, kind, group) if it.id != asking]
    missing.sort(key=lambda it: _gave_up(it, kind))
    named = [_line(roster, votes, kind, it, now) for it in missing[:NAMED]]
    if len(missing) > NAMED:
        named.append(f"{len(missing) - NAMED} others")
    return "; ".join(named)


def _gave_up(peer: Peer, kind: VoteKind) -> bool:
    return peer.withdrew is not None and peer.withdrew[0] is kind


def _line(roster: Roster, votes: VoteBox, kind: VoteKind, peer: Peer, now: int) -> str:
    group = roster.groups[peer.group]
    name = f"rank {group.rank(peer.id)} of group {peer.group} ({peer.name}, {_sign_of_life(peer, now)})"
    if peer.withdrew is not None and _gave_up(peer, kind):
        return f"{name}, which gave up this call {now - peer.withdrew[1]} ms ago"
    return name + _doing(votes, group, peer)


def _sign_of_life(peer: Peer, now: int) -> str:
    if peer.returning:
        return "not back since the master's restart"
    return f"last heard {now - peer.heard} ms ago" + ("" if peer.known else ", not connected")


def _doing(votes: VoteBox, group: Group, peer: Peer) -> str:
    vote = votes.of(peer.id, peer.group)
    if vote is not None:
        return f", which waits in {CALL_NAMES[vote.kind]}"
    for operation, waiting in reversed(group.stalls.items()):
        if peer.id in waiting:
            stalled = waiting[peer.id]
            awaited = ", ".join(f"rank {rank}" for rank in stalled.ranks) or "others"
            name = f"operation ({operation})"
            return f", which had waited {stalled.waited_ms} ms in {name} for {awaited}"
    return ""
