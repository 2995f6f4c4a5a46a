# SPDX-License-Identifier: MIT
"""What the master knows of the links between living members.

What for: which links the next view avoids, which it offers again, and who is cut off. Must not know: views, votes,
messages, how links are made.

The one idea: a link is judged by its own story. The *story* is the faults in a row, each within `link_window_ms` of the
one before (or of the time when the link was offered again); a link that held for longer begins a new one.

- The first break of a link is answered by dialling it afresh: a reset proves nothing. It is avoided from its second
  fault on, or from its first if an end had said in the same epoch that it could not dial it, or if no operation used
  it: then nothing is lost, and shared state takes another way.
- An avoided link is not waited for. After a pause both ends are asked to dial it, again and again, the pause doubled
  each time; nothing depends on that. Once they say that it stands, it has *healed*, and the next view offers it. So
  nothing is ever stopped for a trial, and a link that heals and breaks is offered less and less often.
- When members no longer hang together, the avoided links between the parts are offered once more, until each has
  `link_failures` faults. Only then there is no way left, and the smaller part has to go. Links that can be dialled but
  are reset again and again are not given up before no operation got done for `link_patience_ms`: else they are a
  nuisance only.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pccl.protocol.topology import components
from pccl.protocol.types import Limits, PeerId

AVOIDED_FROM = 2
"""Faults in a row."""
LONGEST_PAUSE = 64
"""Of trials, in `link_retry_ms`."""

Pair = tuple[PeerId, PeerId]


@dataclass(slots=True)
class _Link:
    """`since` is when the last fault happened, or when the link was offered again (ms); `epoch` that of the last fault.
    `doubts` holds, by end, the epoch in which it could not dial, if no end has said since that the link stands;
    `undialled` whether that was so at both ends when the last fault happened. `stuck` is when the first fault happened
    after which the members got no operation done."""

    since: int
    stuck: int
    faults: int = 0
    epoch: int = 0
    doubts: dict[PeerId, int] = field(default_factory=dict)
    undialled: bool = False
    avoided: bool = False
    healed: bool = False
    pause: int = 0
    retry_at: int = 0


class Links:
    """See the module. Peers' order in a pair does not matter."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._links: dict[Pair, _Link] = {}

    # ------------------------------------------------------------------------------------------ what happens to them

    def failed(self, one: PeerId, other: PeerId, epoch: int, now: int, needed: bool = True) -> None:
        """The link broke between two living members; both ends say so, it counts once per epoch. That a trial failed
        counts for nothing. `needed`: operations use it."""
        link = self._links.setdefault(_pair(one, other), _Link(now, now))
        link.healed = False
        if link.avoided or (link.epoch == epoch and link.faults):
            return
        window = self._limits.link_window_ms
        if now - link.since > window:
            link.faults = link.pause = 0
        if not link.faults:
            link.stuck = now
        link.faults, link.epoch, link.since = link.faults + 1, epoch, now
        doubters = sum(said == epoch for said in link.doubts.values())
        link.undialled = doubters == len(_pair(one, other))
        if doubters or link.faults >= AVOIDED_FROM or not needed:
            self._avoid(link, now)

    def doubted(self, accuser: PeerId, suspect: PeerId, epoch: int, now: int) -> None:
        """`accuser` cannot dial `suspect`, which lives."""
        self._links.setdefault(_pair(accuser, suspect), _Link(now, now)).doubts[accuser] = epoch

    def stands(self, one: PeerId, other: PeerId) -> None:
        """The ends hear each other."""
        link = self._links.get(_pair(one, other))
        if link is not None:
            link.doubts.clear()
            link.healed = link.avoided

    def worked(self, members: Sequence[PeerId], now: int) -> None:
        """`members` got operations done in the epoch that ends: they hung together until just now."""
        for _, link in self._among(members):
            link.stuck = now

    def drop(self, peer: PeerId) -> None:
        """The peer is gone, and its links with it."""
        self._links = {pair: link for pair, link in self._links.items() if peer not in pair}

    def remember(self, pairs: Sequence[Pair], now: int) -> None:
        """What a journalled view avoided."""
        for one, other in pairs:
            link = self._links[_pair(one, other)] = _Link(now, now, faults=AVOIDED_FROM)
            self._avoid(link, now)

    # ------------------------------------------------------------------------------------------ what follows

    def avoided(self, members: Sequence[PeerId], offering: bool = False) -> list[Pair]:
        """The links between `members` that operations must not need; with `offering` without those that have healed."""
        return [pair for pair, link in self._among(members) if link.avoided and not (offering and link.healed)]

    def shaky(self, members: Sequence[PeerId], now: int) -> list[Pair]:
        """Links that broke within the window and are used nevertheless."""
        begin = now - self._limits.link_window_ms
        return [pair for pair, link in self._among(members) if link.faults and not link.avoided and link.since > begin]

    def offer(self, members: Sequence[PeerId], now: int) -> None:
        """A new view is made: what has healed is used again."""
        for _, link in self._among(members):
            if link.avoided and link.healed:
                link.avoided = link.healed = False
                link.faults, link.since = 0, now

    def cut_off(self, members: Sequence[PeerId], now: int) -> list[PeerId]:
        """Those of `members` (in rank order) that no way joins to the rest: the smaller parts, of equal ones those with
        the higher ranks. Where a link between the parts is not given up yet, it is offered instead."""
        parts = self._parts(members, self.avoided(members, offering=True))
        if len(parts) > 1:
            self._offer_between(parts, now)
            parts = self._parts(members, self.avoided(members, offering=True))
        stays = max(parts, key=len, default=[])
        return [peer for part in parts if part is not stays for peer in part]

    def trials(self, now: int) -> list[Pair]:
        """Avoided links that are to be dialled now."""
        due = [(pair, link) for pair, link in self._links.items() if link.avoided and not link.healed]
        due = [(pair, link) for pair, link in due if link.retry_at <= now]
        for _, link in due:
            self._pause(link, now)
        return [pair for pair, _ in due]

    def deadline(self) -> int | None:
        """When the next trial is due."""
        return min((it.retry_at for it in self._links.values() if it.avoided and not it.healed), default=None)

    # ------------------------------------------------------------------------------------------ inside

    def _parts(self, members: Sequence[PeerId], dead: Sequence[Pair]) -> list[list[PeerId]]:
        """The members that hang together without the links `dead`, by lowest rank."""
        ranks = {peer: rank for rank, peer in enumerate(members)}
        parts = components(len(members), [(ranks[one], ranks[other]) for one, other in dead])
        return [[members[rank] for rank in part] for part in parts]

    def _offer_between(self, parts: Sequence[Sequence[PeerId]], now: int) -> None:
        place = {peer: number for number, part in enumerate(parts) for peer in part}
        for pair, link in self._among(list(place)):
            if link.avoided and place[pair[0]] != place[pair[1]] and not self._given_up(link, now):
                link.avoided, link.since = False, now

    def _given_up(self, link: _Link, now: int) -> bool:
        hopeless = link.undialled or now - link.stuck >= self._limits.link_patience_ms
        return hopeless and link.faults >= self._limits.link_failures

    def _among(self, members: Sequence[PeerId]) -> Iterator[tuple[Pair, _Link]]:
        among = dict.fromkeys(members, True)
        return ((pair, link) for pair, link in self._links.items() if pair[0] in among and pair[1] in among)

    def _avoid(self, link: _Link, now: int) -> None:
        link.avoided = True
        self._pause(link, now)

    def _pause(self, link: _Link, now: int) -> None:
        first = self._limits.link_retry_ms
        link.pause = min(2 * link.pause, LONGEST_PAUSE * first) or first
        link.retry_at = now + link.pause


def between(links: Sequence[Pair], gone: Sequence[PeerId], ranks: dict[PeerId, int]) -> str:
    """Which of the avoided `links` separate `gone` from the others, for texts: "0-2, 1-2"."""
    named = [sorted((ranks[one], ranks[other])) for one, other in links if (one in gone) != (other in gone)]
    return ", ".join(f"{low}-{high}" for low, high in sorted(named))


def _pair(one: PeerId, other: PeerId) -> Pair:
    return (one, other) if one < other else (other, one)


def can_be_dialled(host: str) -> bool:
    """Whether it is the numeric address of one host. A view with any other would fail on every member."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    broadcast = address == ipaddress.IPv4Address("255.255.255.255")
    return not (address.is_unspecified or address.is_multicast or broadcast or "%" in host)
