# SPDX-License-Identifier: MIT
"""Who lacks what of an elected state, and when everybody has it.

Pure: no bytes of tensors, no sockets, no clock. What for: `StateSync` follows the fetching, as the master hears of it,
until it has succeeded or failed for all members. Must not know: why a content was elected (state_election.py).

The one idea: nothing changes in anybody's memory before every fetcher has reported that it holds verified bytes of all
that it lacked; then all members are told at once. So a synchronisation happens for the whole group or not at all.

A member may have no link to anyone that holds the elected content. It waits until a member to which it has a link has
fetched all, and fetches from that one. So content passes through the members in as many rounds as it takes, and only
where no way leads does the synchronisation fail. When a donor, a relay or a link is lost on the way, the orders are
made anew; a member that did not have to pass anything on may have to then, if need be after fetching once more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pccl.protocol.state_election import Election, Fetch, Offer, Refusal, Source, quoted
from pccl.protocol.types import PeerId


@dataclass(frozen=True, slots=True)
class Agreement:
    """All survivors hold the state of `revision`; bytes of content that each one sent and received."""

    revision: int
    sent: dict[PeerId, int]
    received: dict[PeerId, int]


@dataclass(slots=True)
class _Orders:
    """How a fetcher gets what it lacks: from donors, and from relays, complete members, where no donor has a link to
    it. Who waits for a relay fetches nothing. `passes_on`: it serves as one, once it is complete. `round` counts the
    orders of one member."""

    fetches: tuple[Fetch, ...] = ()
    passes_on: bool = False
    round: int = 0


class StateSync:
    """One synchronisation from its election to its end, as the master follows it.

    `outcome` is None while members fetch; then it is what all survivors are to be told. The owner calls `fetched`,
    `failed` and `lost`, and looks at `outcome` and `renewed` after each.
    """

    def __init__(
        self, offers: Sequence[Offer], election: Election, apart: Mapping[PeerId, Sequence[PeerId]] | None = None
    ) -> None:
        """`apart` says to whom a member has no link: it fetches from others."""
        self.election = election
        self._apart = apart or {}
        self._offers = {offer.peer: offer for offer in offers}
        self._ranks = {offer.peer: rank for rank, offer in enumerate(offers)}
        self._members = [offer.peer for offer in offers]
        self._lacks = {offer.peer: election.fetches[rank] for rank, offer in enumerate(offers)}
        self._pending = [peer for peer in self._members if self._lacks[peer]]
        self._orders: dict[PeerId, _Orders] = {}
        self._gone: list[PeerId] = []
        self._taken: dict[PeerId, Mapping[int, bytes]] = {}
        self._sent = dict.fromkeys(self._members, 0)
        self._received = dict.fromkeys(self._members, 0)
        self.outcome: Agreement | Refusal | None = None
        self._relays = self._complete_from_the_beginning()
        self._renewed: list[PeerId] = []
        self._settle()
        self._renewed.clear()

    @property
    def pending(self) -> tuple[PeerId, ...]:
        """Members that have not reported yet, in rank order."""
        return tuple(self._pending)

    def rank(self, peer: PeerId) -> int:
        """The rank of `peer` when it voted."""
        return self._ranks[peer]

    def serves(self, peer: PeerId) -> bool:
        """Whether `peer` has to serve its content until the end."""
        if not self._pending:
            return False
        return self._is_donor(peer) or (peer in self._relays and not self._lacks[peer])

    def passes_on(self, peer: PeerId) -> bool:
        """Whether `peer` has to serve what it fetches: to others, who have no link to a donor."""
        return peer in self._orders and self._orders[peer].passes_on

    def round(self, peer: PeerId) -> int:
        """How often `peer` got other orders."""
        return self._orders[peer].round if peer in self._orders else 0

    def renewed(self) -> list[PeerId]:
        """Who got other orders since this was asked last."""
        renewed, self._renewed = self._renewed, []
        return renewed

    def orders(self, peer: PeerId) -> tuple[Fetch, ...]:
        """What `peer` has to fetch; donors that were lost meanwhile, and those that it cannot reach, are left out.
        Nothing while it waits for a member that can pass it on."""
        fetches = self._orders[peer].fetches if peer in self._orders else ()
        return tuple(Fetch(it.index, self._reached_by(peer, it.sources)) for it in fetches)

    def fetched(
        self, peer: PeerId, received: Iterable[tuple[PeerId, int]], taken: Mapping[int, bytes] | None = None
    ) -> None:
        """`peer` holds verified bytes of all it lacked; `received` says how many came from whom, `taken` what it took
        for entries (by index) in which members may differ."""
        if self.outcome is not None or peer not in self._pending:
            return
        self._pending.remove(peer)
        self._taken[peer] = taken or {}
        if self._orders[peer].passes_on:
            self._relays.append(peer)
        for donor, count in received:
            if donor in self._sent:
                self._sent[donor] += count
                self._received[peer] += count
        if not self._pending or any(not self._orders[it].fetches for it in self._pending):
            self._settle()

    def failed(self, peer: PeerId, text: str) -> None:
        """`peer` cannot get what it lacks: nobody changes anything. Or, if it lacks nothing, it cannot serve."""
        if self.outcome is not None or peer not in self._members:
            return
        if peer in self._pending:
            self.outcome = Refusal(f"rank {self._ranks[peer]} could not fetch the state: {text}")
        elif peer not in self._gone:
            self._gone.append(peer)
            self._settle()

    def abandoned(self, peer: PeerId) -> None:
        """`peer` stays a member but takes no part: an agreement of the others would leave it behind, unnoticed."""
        if self.outcome is None and peer in self._members:
            self.outcome = Refusal(f"rank {self._ranks[peer]} gave up its call while the state was fetched")

    def lost(self, peer: PeerId) -> None:
        """`peer` is no longer a member. Whether those that are left have links enough is known with their next view:
        then comes `links`."""
        if self.outcome is not None or peer not in self._members:
            return
        self._members.remove(peer)
        if peer not in self._gone:
            self._gone.append(peer)
        if peer in self._pending:
            self._pending.remove(peer)
        self._settle(links_are_known=False)

    def links(self, apart: Mapping[PeerId, Sequence[PeerId]]) -> None:
        """From now on members fetch from those alone to whom they have a link; `apart` as in the constructor."""
        self._apart = apart
        if self.outcome is None:
            self._settle()

    def explain(self) -> str:
        """Whom the synchronisation waits for, empty if for nobody."""
        if not self._pending:
            return ""
        return "shared state: waiting for " + ", ".join(
            f"rank {self._ranks[peer]} to fetch {len(self._lacks[peer])} of its entries" for peer in self._pending
        )

    def _is_donor(self, peer: PeerId) -> bool:
        return self._ranks[peer] in self.election.donors

    def _reaches(self, peer: PeerId, other: PeerId) -> bool:
        return other not in self._gone and other not in self._apart.get(peer, ())

    def _reached_by(self, peer: PeerId, sources: Sequence[Source]) -> tuple[Source, ...]:
        found = [
            Source(source.digest, tuple(donor for donor in source.donors if self._reaches(peer, donor)))
            for source in sources
        ]
        return tuple(source for source in found if source.donors)

    def _within_reach(self, peer: PeerId, lack: Fetch, relays: Sequence[PeerId]) -> tuple[Source, ...]:
        """Where `peer` gets an entry: from donors, else from relays."""
        sources = self._reached_by(peer, lack.sources)
        if sources:
            return sources
        holders: dict[bytes, list[PeerId]] = {}
        for relay in relays:
            if self._reaches(peer, relay):
                holders.setdefault(self._content(relay, lack), []).append(relay)
        return tuple(Source(digest, tuple(peers)) for digest, peers in holders.items())

    def _content(self, complete: PeerId, lack: Fetch) -> bytes:
        """What a complete member holds of an entry that another one lacks."""
        own = self._offers[complete].entries[lack.index]
        if not own.allow_inequality:
            return lack.sources[0].digest
        return self._taken.get(complete, {}).get(lack.index, own.digest)

    def _out_of_reach(self, peer: PeerId, relays: Sequence[PeerId]) -> Fetch | None:
        """An entry that `peer` can get neither from a donor nor from `relays`."""
        if any(self._reaches(peer, relay) for relay in relays):
            return None
        for lack in self._lacks[peer]:
            if not any(self._reaches(peer, donor) for source in lack.sources for donor in source.donors):
                return lack
        return None

    def _complete_from_the_beginning(self) -> list[PeerId]:
        """Who lacks nothing and serves: the donors, and others only for those that no donor has a link to."""
        stranded = [peer for peer in self._pending if self._out_of_reach(peer, ())]
        return [
            peer
            for peer in self._members
            if not self._lacks[peer] and (self._is_donor(peer) or any(self._reaches(it, peer) for it in stranded))
        ]

    def _settle(self, links_are_known: bool = True) -> None:
        if self._pending:
            self._give_orders(links_are_known)
            return
        members = self._members
        self.outcome = Agreement(
            self.election.revision,
            {peer: self._sent[peer] for peer in members},
            {peer: self._received[peer] for peer in members},
        )

    def _give_orders(self, links_are_known: bool) -> None:
        """New ones to whom has none that it can follow; who cannot get any yet waits, if a member will be able to pass
        on to it what it lacks."""
        idle = [peer for peer in self._pending if not self._can_go_on(peer)]
        waiting = [peer for peer in idle if self._out_of_reach(peer, self._relays)]
        for peer in idle:
            if peer not in waiting:
                self._order_all(peer, passes_on=any(self._reaches(it, peer) for it in waiting))
            elif peer not in self._orders or self._orders[peer].fetches:
                self._order(peer, _Orders())
        self._find_relays(waiting, links_are_known)

    def _order_all(self, peer: PeerId, passes_on: bool) -> None:
        """It fetches what it lacks, whether it has fetched it before or not."""
        fetches = tuple(Fetch(it.index, self._within_reach(peer, it, self._relays)) for it in self._lacks[peer])
        self._order(peer, _Orders(fetches, passes_on))

    def _order(self, peer: PeerId, orders: _Orders) -> None:
        before = self._orders.get(peer)
        orders.round = before.round + 1 if before else 0
        self._orders[peer] = orders
        self._renewed.append(peer)

    def _can_go_on(self, peer: PeerId) -> bool:
        """Whether each entry that it was told to fetch can still come from somewhere."""
        fetches = self.orders(peer)
        return bool(fetches) and all(fetch.sources for fetch in fetches)

    def _find_relays(self, waiting: list[PeerId], links_are_known: bool) -> None:
        """Follows the content from those who have it, or get it and pass it on, through the waiting members. Where that
        ends, one more member is asked to pass it on; if there is none, all was in vain."""
        hopes = [*self._relays, *(it for it in self._pending if it not in waiting and self._orders[it].passes_on)]
        left = waiting
        while left:
            reached = [peer for peer in left if self._out_of_reach(peer, hopes) is None]
            if not reached:
                recruit = next((it for it in self._members if it not in hopes and self._can_relay(it, waiting)), None)
                if recruit is None:
                    lack = self._out_of_reach(left[0], hopes)
                    assert lack is not None
                    if links_are_known or not self._holders_apart(left[0], lack):
                        self.outcome = Refusal(self._no_donor(left[0], lack))
                    return
                if not self._lacks[recruit]:
                    self._relays.append(recruit)
                    self._order(recruit, _Orders())
                    self._give_orders(links_are_known)
                    return
                self._pending = [it for it in self._members if it in self._pending or it == recruit]
                self._order_all(recruit, passes_on=True)
                hopes.append(recruit)
            hopes += reached
            left = [peer for peer in left if peer not in reached]

    def _can_relay(self, peer: PeerId, waiting: Sequence[PeerId]) -> bool:
        """Whether `peer` holds or gets what some of `waiting` lack, and has a link to one of them."""
        if peer in waiting or not any(self._reaches(it, peer) for it in waiting):
            return False
        return not self._lacks[peer] or self._out_of_reach(peer, self._relays) is None

    def _holders_apart(self, peer: PeerId, lack: Fetch) -> list[int]:
        """The ranks of those that hold an entry and are there, but have no link to `peer`."""
        left = [it for it in self._apart.get(peer, ()) if it in self._members and it not in self._gone]
        holders = [*self._relays, *(donor for source in lack.sources for donor in source.donors)]
        return sorted(self._ranks[it] for it in left if it in holders)

    def _no_donor(self, peer: PeerId, lack: Fetch) -> str:
        holders = sorted({self._ranks[donor] for source in lack.sources for donor in source.donors})
        name = self._offers[peer].entries[lack.index].name
        apart = self._holders_apart(peer, lack)
        if apart:
            return (
                f"no donor: {quoted(name)} of revision {self.election.revision} is held by rank "
                f"{', '.join(map(str, apart))} alone, to which rank {self._ranks[peer]} has no link, nor to a member "
                "that could pass it on"
            )
        return (
            f"no donor: all that held {quoted(name)} of revision {self.election.revision} (rank "
            f"{', '.join(map(str, holders))}) were lost before rank {self._ranks[peer]} had fetched it"
        )
