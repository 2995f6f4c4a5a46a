# SPDX-License-Identifier: MIT
"""Which state wins a synchronisation, and who fetches what from whom.

Pure: no bytes of tensors, no sockets, no clock. What for: the master feeds `elect` the offers of all members of a
group. Must not know: links, who dies while members fetch (state_sync.py).

The one idea: a member's offer names its content by hashes, so that agreeing on a state is agreeing on hashes.

The election, in this order:

1. Members that offered with RECEIVE_ONLY are never elected; they send only to pass on what was.
2. If members offered with SEND_ONLY, only they are candidates; they must agree with each other, and any revision is
   allowed: this is how a lost group's state is planted again, or a group is taken back to an older one.
3. Otherwise a candidate's revision must be the group's last one or the one after it. Older ones are out of date (the
   normal case of a newcomer), later ones are a violation. A group that never agreed on a state takes any revision.
4. The highest revision wins, then the content that most candidates of that revision hold, then the lowest rank.

Entries with `allow_inequality` do not count as content: members may differ in them for good. They travel only to
members whose revision is not the elected one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise

from pccl.messages import MAX_TEXT_CHARACTERS, StateEntry
from pccl.protocol.types import PeerId


class SharedStateSyncStrategy(IntEnum):
    """What a member wants from a synchronisation (numbers as in pypccl)."""

    ENFORCE_POPULAR = 0
    """Send or receive, whatever makes all members equal."""
    RECEIVE_ONLY = 1
    """Never send this member's content, which does not count in the election, as its revision does not. What the others
    elected it passes on to those that have no link to anyone else who can."""
    SEND_ONLY = 2
    """Never receive; this member's content is the one to be elected."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What one member brings to a synchronisation; `entries` are sorted by name."""

    peer: PeerId
    revision: int
    strategy: int
    entries: tuple[StateEntry, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """Members that hold the content `digest` of one entry."""

    digest: bytes
    donors: tuple[PeerId, ...]


@dataclass(frozen=True, slots=True)
class Fetch:
    """An order to fetch the entry at `index`. Any one of `sources` will do; the first one is the best."""

    index: int
    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True)
class Election:
    """The elected revision, who serves its content, and what each member (by rank) has to fetch."""

    revision: int
    donors: tuple[int, ...]
    fetches: tuple[tuple[Fetch, ...], ...]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why no state could be agreed: the same text for every member."""

    text: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", self.text[:MAX_TEXT_CHARACTERS])


def quoted(name: str) -> str:
    """A key's name as texts show it; the whole text must fit into a message."""
    text = repr(name)
    return text if len(text) <= 80 else text[:77] + "..."


def order_fault(entries: Sequence[StateEntry]) -> str:
    """Why `entries` may not be offered, empty if they may: `elect` relies on strict order of name."""
    for before, after in pairwise(entries):
        if before.name >= after.name:
            return f"shared state: {quoted(after.name)} follows {quoted(before.name)}"
    return ""


def elect(offers: Sequence[Offer], last: int | None, group: int = 0) -> Election | Refusal:
    """Elects the state of `group` from the offers of all its members, given in rank order.

    `last` is the revision that the group agreed on before, None if it never did.
    """
    eligible = _eligible(offers, last, group)
    if isinstance(eligible, Refusal):
        return eligible
    revision = max(offers[rank].revision for rank in eligible)
    leader = _most_popular(offers, [rank for rank in eligible if offers[rank].revision == revision])
    for rank in range(len(offers)):
        difference = _layout_difference(offers, leader, rank)
        if difference:
            return Refusal(difference)
    return _assign(offers, leader)


def _eligible(offers: Sequence[Offer], last: int | None, group: int) -> list[int] | Refusal:
    """The ranks whose content may win."""
    authorities = _ranks_with(offers, SharedStateSyncStrategy.SEND_ONLY)
    if authorities:
        for rank in authorities[1:]:
            difference = _authority_difference(offers, authorities[0], rank)
            if difference:
                return Refusal(difference)
        return authorities
    candidates = _ranks_with(offers, SharedStateSyncStrategy.ENFORCE_POPULAR)
    if not candidates:
        return Refusal("no donor: every member called with RECEIVE_ONLY, so that nobody offers a state")
    if last is None:
        return candidates
    for rank in candidates:
        if offers[rank].revision > last + 1:
            return Refusal(
                f"revision violation: rank {rank} offers revision {offers[rank].revision}, but group {group} agreed on "
                f"revision {last} last, so that only {last} and {last + 1} may be offered"
            )
    current = [rank for rank in candidates if offers[rank].revision >= last]
    if current:
        return current
    newest = max(candidates, key=lambda rank: (offers[rank].revision, -rank))
    return Refusal(
        f"no donor: group {group} agreed on revision {last} last, but the newest one offered is revision "
        f"{offers[newest].revision} of rank {newest}; SEND_ONLY would make that the group's state"
    )


def _ranks_with(offers: Sequence[Offer], strategy: SharedStateSyncStrategy) -> list[int]:
    return [rank for rank, offer in enumerate(offers) if offer.strategy == strategy]


def _content(offer: Offer) -> tuple[bytes, ...]:
    """What popularity compares. Digests cover dtype and shape."""
    return tuple(entry.digest for entry in offer.entries if not entry.allow_inequality)


def _identity(offer: Offer) -> tuple[object, ...]:
    return (tuple((entry.name, entry.allow_inequality) for entry in offer.entries), _content(offer))


def _most_popular(offers: Sequence[Offer], ranks: Sequence[int]) -> int:
    """The lowest rank among the holders of the most popular content; `ranks` ascend."""
    holders: dict[tuple[object, ...], list[int]] = {}
    for rank in ranks:
        holders.setdefault(_identity(offers[rank]), []).append(rank)
    # max() keeps the first of equals, and the dict is in the order of each content's lowest rank.
    return max(holders.values(), key=len)[0]


def _layout_difference(offers: Sequence[Offer], one: int, other: int) -> str:
    """The first difference between two members' keys, dtypes, shapes and flags; empty if there is none."""
    if offers[one].entries == offers[other].entries:
        return ""
    ours = {entry.name: entry for entry in offers[one].entries}
    theirs = {entry.name: entry for entry in offers[other].entries}
    for name in ours:
        if name not in theirs:
            return f"missing key: {quoted(name)} of rank {one} is missing on rank {other}"
    for name in theirs:
        if name not in ours:
            return f"missing key: {quoted(name)} of rank {other} is missing on rank {one}"
    for name, mine in ours.items():
        its = theirs[name]
        for what, left, right in (
            ("dtype", mine.dtype, its.dtype),
            ("shape", mine.shape, its.shape),
            ("allow_content_inequality", mine.allow_inequality, its.allow_inequality),
        ):
            if left != right:
                return f"{what} mismatch: {quoted(name)} has {what} {left} on rank {one} and {right} on rank {other}"
    return ""


def _authority_difference(offers: Sequence[Offer], one: int, other: int) -> str:
    """Why two SEND_ONLY members cannot both be obeyed; empty if they can."""
    difference = _layout_difference(offers, one, other)
    if difference:
        return difference
    both = f"ranks {one} and {other} both called with SEND_ONLY"
    if offers[one].revision != offers[other].revision:
        return f"send-only conflict: {both}, but with revisions {offers[one].revision} and {offers[other].revision}"
    for mine, its in zip(offers[one].entries, offers[other].entries, strict=True):
        if not mine.allow_inequality and mine.digest != its.digest:
            return (
                f"send-only conflict: {both}, but {quoted(mine.name)} is {mine.digest.hex()} on rank {one} "
                f"and {its.digest.hex()} on rank {other}"
            )
    return ""


def _assign(offers: Sequence[Offer], leader: int) -> Election:
    """Who serves and who fetches what, once every layout is known to be the leader's."""
    elected = offers[leader]
    content = _content(elected)
    donors = [
        rank
        for rank, offer in enumerate(offers)
        if offer.strategy != SharedStateSyncStrategy.RECEIVE_ONLY and _content(offer) == content
    ]
    peers = tuple(offers[rank].peer for rank in donors)
    current = [rank for rank in donors if offers[rank].revision == elected.revision]
    unequal = {
        index: _sources(offers, current, index) for index, entry in enumerate(elected.entries) if entry.allow_inequality
    }
    fetches: list[tuple[Fetch, ...]] = []
    serving = dict.fromkeys(donors)
    for rank, offer in enumerate(offers):
        orders: list[Fetch] = []
        # Most members lack nothing; they cost the comparison above and no more.
        lacks = rank not in serving or offer.revision != elected.revision
        for index, (entry, wanted) in enumerate(zip(offer.entries, elected.entries, strict=True) if lacks else ()):
            if not wanted.allow_inequality:
                if entry.digest != wanted.digest:
                    orders.append(Fetch(index, (Source(wanted.digest, peers),)))
            elif offer.revision != elected.revision and all(entry.digest != it.digest for it in unequal[index]):
                orders.append(Fetch(index, unequal[index]))
        fetches.append(tuple(orders))
    return Election(elected.revision, tuple(donors), tuple(fetches))


def _sources(offers: Sequence[Offer], ranks: Iterable[int], index: int) -> tuple[Source, ...]:
    """The contents of one entry on `ranks`, each with its holders, by lowest rank."""
    holders: dict[bytes, list[PeerId]] = {}
    for rank in ranks:
        holders.setdefault(offers[rank].entries[index].digest, []).append(offers[rank].peer)
    return tuple(Source(digest, tuple(peers)) for digest, peers in holders.items())
