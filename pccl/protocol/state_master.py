# SPDX-License-Identifier: MIT
"""The master's half of a shared-state synchronisation: the election and `StateSync` behind the seam of `types`.

It turns ballots into offers, orders into plans, and the outcome into one answer per survivor. What it must not know:
who is a member and when a vote is complete (master.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pccl.errors import ProtocolError, Status
from pccl.messages import (
    Message,
    StateAgreed,
    StateDonor,
    StateFailed,
    StateFetched,
    StateOffer,
    StatePlan,
    StateSource,
    clip,
    decode,
    encode,
)
from pccl.protocol.state_election import Election, Offer, Refusal, elect, order_fault
from pccl.protocol.state_sync import Agreement, StateSync
from pccl.protocol.types import Answer, Ballot, PeerId, Send, SyncStep

_MEMORY_BYTES = 8


class MasterSync:
    """One `sync_shared_state` of one group, from its complete vote to its answers; a `types.GroupSync`.

    `memory` is the group's last agreed revision as 8 bytes, empty if it never agreed on one.
    """

    def __init__(self, sync_id: int, group: int, ballots: Sequence[Ballot], memory: bytes) -> None:
        self._sync_id = sync_id
        self._group = group
        self._calls = {ballot.peer: ballot.call for ballot in ballots}
        self._ballots = ballots
        self._last = int.from_bytes(memory, "big") if memory else None
        self._sync: StateSync | None = None

    def begin(self, now: int) -> SyncStep:
        """Elects; the answer comes at once where nobody lacks anything, or where nothing can be elected."""
        result = self._elect()
        if isinstance(result, Refusal):
            return self._refuse(result)
        offers, election = result
        self._sync = StateSync(offers, election, {it.peer: it.unreachable for it in self._ballots})
        if self._sync.outcome is not None:
            return self._end()
        return SyncStep(sends=[self._plan(self._sync, ballot.peer) for ballot in self._ballots])

    def received(self, peer: PeerId, message: Message, now: int) -> SyncStep:
        """A report of `peer`. One for an earlier plan, or of a member that fetches nothing, changes nothing."""
        if self._sync is None or self._sync.outcome is not None:
            return SyncStep()
        if not isinstance(message, StateFetched | StateFailed) or message.sync != self._sync_id:
            return SyncStep()
        if message.round != self._sync.round(peer):
            return SyncStep()
        if isinstance(message, StateFetched):
            taken = {it.index: it.digest for it in message.taken}
            self._sync.fetched(peer, [(it.donor, it.count) for it in message.received], taken)
        else:
            self._sync.failed(peer, message.text)
        return self._follow()

    def member_lost(self, peer: PeerId, now: int) -> SyncStep:
        """`peer` is gone: it is neither waited for nor fetched from."""
        self._calls.pop(peer, None)
        if self._sync is None or self._sync.outcome is not None:
            return SyncStep()
        self._sync.lost(peer)
        return self._follow()

    def links(self, unreachable: Mapping[PeerId, Sequence[PeerId]], now: int) -> SyncStep:
        """Other links stand than before: who cannot follow its plan gets another one."""
        if self._sync is None or self._sync.outcome is not None:
            return SyncStep()
        self._sync.links(unreachable)
        return self._follow()

    def abandoned(self, peer: PeerId, now: int) -> SyncStep:
        """The caller of `peer` is gone: it neither takes over nor serves any state."""
        if self._sync is None or self._sync.outcome is not None:
            return SyncStep()
        self._sync.abandoned(peer)
        return self._end()

    def rejoined(self, peer: PeerId, now: int) -> SyncStep:
        """`peer` may have missed its plan: it gets it again."""
        if self._sync is None or self._sync.outcome is not None or peer not in self._calls:
            return SyncStep()
        return SyncStep(sends=[self._plan(self._sync, peer)])

    def explain(self) -> str:
        """Whom it waits for."""
        return self._sync.explain() if self._sync is not None else ""

    def _elect(self) -> tuple[list[Offer], Election] | Refusal:
        offers: list[Offer] = []
        # Members that are in step offer the same bytes: a large group costs one decoding.
        decoded: dict[bytes, StateOffer | Refusal] = {}
        for ballot in self._ballots:
            body = decoded.get(ballot.body)
            if body is None:
                body = decoded[ballot.body] = _decode(ballot)
            if isinstance(body, Refusal):
                return body
            offers.append(Offer(ballot.peer, body.revision, body.strategy, body.entries))
        election = elect(offers, self._last, self._group)
        return election if isinstance(election, Refusal) else (offers, election)

    def _plan(self, sync: StateSync, peer: PeerId) -> Send:
        return Send(peer, _plan_for(sync, peer, self._calls[peer], self._sync_id))

    def _follow(self) -> SyncStep:
        """After something has changed: the answers, or a plan for each member that can fetch only now."""
        assert self._sync is not None
        renewed = self._sync.renewed()
        if renewed and self._sync.outcome is None:
            return SyncStep(sends=[self._plan(self._sync, peer) for peer in renewed])
        return self._end()

    def _end(self) -> SyncStep:
        """The answers, once there is an outcome."""
        outcome = self._sync.outcome if self._sync is not None else None
        if outcome is None:
            return SyncStep()
        return self._refuse(outcome) if isinstance(outcome, Refusal) else self._agree(outcome)

    def _agree(self, agreement: Agreement) -> SyncStep:
        answers = [
            Answer(
                peer,
                self._calls[peer],
                body=encode(
                    StateAgreed(
                        self._sync_id,
                        agreement.revision,
                        len(agreement.sent),
                        agreement.sent[peer],
                        agreement.received[peer],
                    )
                ),
            )
            for peer in agreement.sent
        ]
        return SyncStep(answers=answers, memory=agreement.revision.to_bytes(_MEMORY_BYTES, "big"))

    def _refuse(self, refusal: Refusal) -> SyncStep:
        text = clip(f"sync_shared_state: {refusal.text}")
        return SyncStep(answers=[Answer(peer, call, Status.STATE, text) for peer, call in self._calls.items()])


def _decode(ballot: Ballot) -> StateOffer | Refusal:
    try:
        body = decode(ballot.body)
    except ProtocolError as error:
        return Refusal(f"rank {ballot.rank} offers a malformed state: {error}")
    if not isinstance(body, StateOffer):
        return Refusal(f"rank {ballot.rank} offers a {type(body).__name__} instead of a state")
    fault = order_fault(body.entries)
    return Refusal(f"rank {ballot.rank} offers a malformed state: {fault}") if fault else body


def _plan_for(sync: StateSync, peer: PeerId, call: int, sync_id: int) -> StatePlan:
    orders = sync.orders(peer)
    donors = list(dict.fromkeys(donor for order in orders for source in order.sources for donor in source.donors))
    # Each fetcher begins with another donor, so that several do not all ask the same one first.
    first = sync.rank(peer) % max(1, len(donors))
    donors = donors[first:] + donors[:first]
    places = {donor: place for place, donor in enumerate(donors)}
    fetch = tuple(
        StateSource(
            order.index,
            source.digest,
            () if len(source.donors) == len(donors) else tuple(places[donor] for donor in source.donors),
        )
        for order in orders
        for source in order.sources
    )
    named = tuple(StateDonor(donor, sync.rank(donor)) for donor in donors)
    return StatePlan(call, sync_id, sync.serves(peer), named, fetch, sync.passes_on(peer), sync.round(peer))
