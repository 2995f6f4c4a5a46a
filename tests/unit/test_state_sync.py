# SPDX-License-Identifier: MIT
"""The course of a synchronisation, without a byte being moved: who fetches from whom while members and links die."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pccl.protocol.state_election import Fetch, Offer, Refusal, SharedStateSyncStrategy, Source, elect
from pccl.protocol.state_sync import Agreement, StateSync
from tests.states import OFFERS_OF_GROUPS, POPULAR, RECEIVE, elected, mixed, offer, peer_of


@given(OFFERS_OF_GROUPS, st.data())
def test_synchronisation_always_ends(offers: list[Offer], data: st.DataObject) -> None:
    result = elect(offers, None)
    if isinstance(result, Refusal):
        return
    sync = StateSync(offers, result)
    members = [it.peer for it in offers]
    donors = [offers[rank].peer for rank in result.donors]
    while sync.outcome is None:
        assert sync.pending
        assert sync.explain()
        assert all(fetch.sources for peer in sync.pending for fetch in sync.orders(peer))
        if data.draw(st.booleans()):
            sync.fetched(sync.pending[0], [(donor, 10) for donor in donors if donor in members][:1])
        else:
            sync.lost(members.pop(data.draw(st.integers(0, len(members) - 1))))
    assert sync.explain() == "" or isinstance(sync.outcome, Refusal)
    if isinstance(sync.outcome, Refusal):
        assert "no donor" in sync.outcome.text
        assert not any(donor in members for donor in donors)
    else:
        assert sorted(sync.outcome.sent) == members == sorted(sync.outcome.received)


# ---------------------------------------------------------------- the course of one


def course() -> StateSync:
    """Ranks 0 and 1 hold what rank 2 and 3 lack."""
    offers = [offer(0, 5, "a"), offer(1, 5, "a"), offer(2, 0, "x"), offer(3, 0, "y")]
    return StateSync(offers, elected(offers, 5))


def test_nothing_to_fetch_ends_at_once() -> None:
    offers = [offer(0, 5, "a"), offer(1, 5, "a")]
    sync = StateSync(offers, elected(offers, 5))
    zero = {peer_of(0): 0, peer_of(1): 0}
    assert sync.outcome == Agreement(5, zero, zero)
    assert not sync.serves(peer_of(0))


def test_ends_when_the_last_fetcher_has_reported() -> None:
    sync = course()
    assert sync.serves(peer_of(0))
    assert sync.serves(peer_of(1))
    assert not sync.serves(peer_of(2))
    sync.fetched(peer_of(2), [(peer_of(0), 100), (peer_of(1), 50)])
    assert sync.outcome is None
    assert sync.pending == (peer_of(3),)
    assert "rank 3" in sync.explain()
    sync.fetched(peer_of(3), [(peer_of(1), 150)])
    assert sync.outcome == Agreement(
        5,
        sent={peer_of(0): 100, peer_of(1): 200, peer_of(2): 0, peer_of(3): 0},
        received={peer_of(0): 0, peer_of(1): 0, peer_of(2): 150, peer_of(3): 150},
    )


def test_a_donor_without_a_link_is_not_asked() -> None:
    offers = [offer(0, 5, "a"), offer(1, 5, "a"), offer(2, 0, "x")]
    sync = StateSync(offers, elected(offers, 5), {peer_of(2): (peer_of(0),)})
    assert [source.donors for fetch in sync.orders(peer_of(2)) for source in fetch.sources] == [(peer_of(1),)]
    sync.lost(peer_of(1))
    assert sync.outcome is None, "the next view may offer the link again"
    sync.links({peer_of(2): (peer_of(0),)})
    assert isinstance(sync.outcome, Refusal)
    assert "is held by rank 0 alone, to which rank 2 has no link" in sync.outcome.text


def chain(contents: str, *, strategies: dict[int, SharedStateSyncStrategy] | None = None) -> StateSync:
    """Ranks in a line, each with links to its neighbours alone; rank 0 holds the newest state."""
    offers = [
        offer(rank, 5 if content == contents[0] else 0, content, (strategies or {}).get(rank, POPULAR))
        for rank, content in enumerate(contents)
    ]
    ranks = range(len(contents))
    apart = {peer_of(one): tuple(peer_of(it) for it in ranks if abs(it - one) > 1) for one in ranks}
    return StateSync(offers, elected(offers, 5), apart)


def without(one: int, other: int) -> dict[bytes, tuple[bytes, ...]]:
    """All links but that between two ranks."""
    return {peer_of(one): (peer_of(other),), peer_of(other): (peer_of(one),)}


def apart_without(joined: set[frozenset[bytes]], members: list[bytes]) -> dict[bytes, tuple[bytes, ...]]:
    """No links but `joined`."""
    return {one: tuple(it for it in members if it != one and frozenset((one, it)) not in joined) for one in members}


def donors_of(sync: StateSync, rank: int) -> list[bytes]:
    return [donor for fetch in sync.orders(peer_of(rank)) for source in fetch.sources for donor in source.donors]


def test_content_goes_down_a_chain_of_links() -> None:
    sync = chain("axyz")
    assert [sync.passes_on(peer_of(rank)) for rank in range(4)] == [False, True, False, False]
    for rank in (1, 2, 3):
        assert donors_of(sync, rank) == [peer_of(rank - 1)]
        assert not any(donors_of(sync, later) for later in range(rank + 1, 4))
        assert sync.passes_on(peer_of(rank)) == (rank < 3)
        sync.fetched(peer_of(rank), [(peer_of(rank - 1), 10)])
        assert sync.renewed() == ([peer_of(rank + 1)] if rank < 3 else [])
    assert isinstance(sync.outcome, Agreement)
    assert list(sync.outcome.sent.values()) == [10, 10, 10, 0]


def test_receive_only_passes_on_where_nobody_else_can() -> None:
    sync = chain("aax", strategies={1: RECEIVE})
    assert sync.serves(peer_of(1))
    assert donors_of(sync, 2) == [peer_of(1)]
    assert not chain("aaax", strategies={1: RECEIVE}).serves(peer_of(1))


def test_relay_that_dies_is_replaced_by_one_that_fetches_still() -> None:
    offers = [offer(0, 5, "a"), offer(1, 0, "x"), offer(2, 0, "x"), offer(3, 0, "x")]
    sync = StateSync(offers, elected(offers, 5), {peer_of(3): (peer_of(0),)})
    sync.fetched(peer_of(1), [(peer_of(0), 10)])
    assert (sync.renewed(), donors_of(sync, 3), sync.round(peer_of(3))) == ([peer_of(3)], [peer_of(1)], 1)
    sync.lost(peer_of(1))
    assert (sync.renewed(), donors_of(sync, 3), sync.outcome) == ([peer_of(3)], [], None), "it waits again"
    sync.fetched(peer_of(2), [(peer_of(0), 10)])
    assert (sync.renewed(), donors_of(sync, 3), sync.round(peer_of(3))) == ([peer_of(3)], [peer_of(2)], 3)
    sync.lost(peer_of(2))
    assert sync.outcome is None
    sync.links({})
    assert (sync.renewed(), donors_of(sync, 3)) == ([peer_of(3), peer_of(3)], [peer_of(0)]), "its link is offered again"


def test_who_loses_its_way_to_the_donors_gets_it_from_whom_nobody_had_asked_to_pass_it_on() -> None:
    """Which member that is: one that fetches still; one that has fetched; one that had it from the beginning."""
    offers = [offer(0, 5, "a"), offer(1, 0, "x"), offer(2, 0, "x")]
    sync = StateSync(offers, elected(offers, 5))
    sync.links(without(2, 0))
    assert (sync.renewed(), sync.passes_on(peer_of(1)), sync.round(peer_of(1))) == ([peer_of(2), peer_of(1)], True, 1)
    sync.fetched(peer_of(1), [(peer_of(0), 10)])
    assert (sync.renewed(), donors_of(sync, 2)) == ([peer_of(2)], [peer_of(1)])

    sync = StateSync(offers, elected(offers, 5))
    sync.fetched(peer_of(1), [(peer_of(0), 10)])
    sync.links(without(2, 0))
    assert (sync.pending, sync.passes_on(peer_of(1))) == ((peer_of(1), peer_of(2)), True)
    sync.fetched(peer_of(1), [(peer_of(0), 10)])
    sync.fetched(peer_of(2), [(peer_of(1), 10)])
    assert sync.outcome == Agreement(
        5, {peer_of(0): 20, peer_of(1): 10, peer_of(2): 0}, {peer_of(0): 0, peer_of(1): 20, peer_of(2): 10}
    )

    offers = [offer(0, 5, "a"), offer(1, 5, "a", RECEIVE), offer(2, 0, "x")]
    sync = StateSync(offers, elected(offers, 5))
    assert not sync.serves(peer_of(1))
    sync.links(without(0, 2))
    assert sync.serves(peer_of(1))
    assert (sync.renewed(), donors_of(sync, 2)) == ([peer_of(2), peer_of(1), peer_of(2)], [peer_of(1)])


def test_entry_whose_last_donor_is_out_of_reach_is_ordered_from_a_relay() -> None:
    """Rank 3 gets one entry from rank 0, and the other one, which rank 1 alone holds, passed on by rank 2."""
    offers = [mixed(0, 5, 1, 1), mixed(1, 5, 1, 2), mixed(2, 0, 3, 3), mixed(3, 0, 3, 4)]
    sync = StateSync(offers, elected(offers, 5), {peer_of(3): (peer_of(1),)})
    sync.fetched(peer_of(2), [], {1: offers[1].entries[1].digest})
    assert donors_of(sync, 3) == [peer_of(0), peer_of(0)]
    sync.links({peer_of(3): (peer_of(0), peer_of(1))})
    assert sync.outcome is None
    sync.fetched(peer_of(2), [], {1: offers[1].entries[1].digest})
    assert donors_of(sync, 3) == [peer_of(2), peer_of(2)]


def test_unequal_entry_is_passed_on_as_it_was_taken() -> None:
    offers = [mixed(0, 5, 1, 1), mixed(1, 5, 1, 2), mixed(2, 0, 3, 3), mixed(3, 0, 3, 4)]
    donors = (peer_of(0), peer_of(1))
    sync = StateSync(offers, elected(offers, 5), {peer_of(3): donors})
    taken = offers[1].entries[1].digest
    assert [len(fetch.sources) for fetch in sync.orders(peer_of(2))] == [1, 2]
    sync.fetched(peer_of(2), [], {1: taken})
    assert [fetch.sources for fetch in sync.orders(peer_of(3))] == [
        (Source(offers[0].entries[0].digest, (peer_of(2),)),),
        (Source(taken, (peer_of(2),)),),
    ]


@given(OFFERS_OF_GROUPS, st.data())
def test_members_that_hang_together_end_up_with_one_state(offers: list[Offer], data: st.DataObject) -> None:
    """Whatever links are dead or die on the way, as long as a way leads from each member to each other one."""
    result = elect(offers, None)
    if isinstance(result, Refusal):
        return
    members = [it.peer for it in offers]
    tree = {frozenset((members[data.draw(st.integers(0, it - 1))], members[it])) for it in range(1, len(members))}
    pairs = st.tuples(st.sampled_from(members), st.sampled_from(members)).map(frozenset)
    more = [it for it in data.draw(st.lists(pairs, max_size=6)) if len(it) == 2 and it not in tree]
    joined = {*tree, *more}
    sync = StateSync(offers, result, apart_without(joined, members))
    holds = {it.peer: [entry.digest for entry in it.entries] for it in offers}
    plans = {peer: (sync.serves(peer), sync.passes_on(peer), sync.orders(peer)) for peer in members}
    serving = {peer for peer in members if sync.serves(peer)}
    steps = 0
    while sync.outcome is None:
        steps += 1
        assert steps < 100
        if more and data.draw(st.booleans()):
            joined.discard(more.pop())
            sync.links(apart_without(joined, members))
        else:
            peer = data.draw(st.sampled_from([it for it in sync.pending if plans[it][2]]))
            _, passes_on, orders = plans[peer]
            for fetch in orders:
                near = [it for it in fetch.sources if any(frozenset((peer, donor)) in joined for donor in it.donors)]
                source = near[0]
                assert serving.issuperset(source.donors)
                assert all(holds[donor][fetch.index] == source.digest for donor in source.donors)
                holds[peer][fetch.index] = source.digest
            if passes_on:
                serving.add(peer)
            sync.fetched(peer, [], {it.index: holds[peer][it.index] for it in orders})
        for peer in sync.renewed():
            plans[peer] = (sync.serves(peer), sync.passes_on(peer), sync.orders(peer))
            serving.discard(peer)
            if plans[peer][0]:
                serving.add(peer)
    assert isinstance(sync.outcome, Agreement)
    assert len({tuple(it) for it in holds.values()}) == 1


def test_donor_that_dies_leaves_the_others() -> None:
    sync = course()
    sync.lost(peer_of(0))
    assert sync.outcome is None
    assert sync.orders(peer_of(2)) == (Fetch(0, (Source(b"a" * 16, (peer_of(1),)),)),)


def test_last_donor_that_dies_fails_all() -> None:
    sync = course()
    sync.fetched(peer_of(2), [(peer_of(0), 10)])
    sync.lost(peer_of(0))
    sync.lost(peer_of(1))
    assert sync.outcome == Refusal(
        "no donor: all that held 'k0' of revision 5 (rank 0, 1) were lost before rank 3 had fetched it"
    )


def test_donors_are_not_needed_after_the_last_report() -> None:
    sync = course()
    sync.lost(peer_of(0))
    sync.fetched(peer_of(2), [])
    sync.lost(peer_of(3))
    assert isinstance(sync.outcome, Agreement)
    assert sync.outcome.revision == 5


def test_fetcher_that_dies_is_not_waited_for() -> None:
    sync = course()
    sync.lost(peer_of(2))
    sync.lost(peer_of(3))
    assert isinstance(sync.outcome, Agreement)


def test_fetcher_that_gives_up_fails_all() -> None:
    sync = course()
    sync.failed(peer_of(2), "'k0' of rank 1 does not match its hash")
    assert sync.outcome == Refusal("rank 2 could not fetch the state: 'k0' of rank 1 does not match its hash")


@pytest.mark.parametrize("rank", [0, 2])
def test_donor_or_fetcher_whose_caller_is_gone_fails_all(rank: int) -> None:
    sync = course()
    sync.abandoned(peer_of(rank))
    assert sync.outcome == Refusal(f"rank {rank} gave up its call while the state was fetched")


def test_donor_that_cannot_serve_stays_a_member() -> None:
    sync = course()
    sync.failed(peer_of(0), "out of memory")
    assert sync.orders(peer_of(2)) == (Fetch(0, (Source(b"a" * 16, (peer_of(1),)),)),)
    sync.lost(peer_of(2))
    sync.lost(peer_of(3))
    assert isinstance(sync.outcome, Agreement)
    assert peer_of(0) in sync.outcome.sent


def test_late_words_change_nothing() -> None:
    sync = course()
    sync.failed(peer_of(2), "first")
    outcome = sync.outcome
    sync.fetched(peer_of(3), [])
    sync.failed(peer_of(3), "second")
    sync.abandoned(peer_of(3))
    sync.lost(peer_of(0))
    assert sync.outcome is outcome


def test_words_of_strangers_change_nothing() -> None:
    sync = course()
    sync.fetched(peer_of(0), [(peer_of(1), 5)])
    sync.fetched(peer_of(9), [])
    sync.lost(peer_of(9))
    assert sync.outcome is None
    assert sync.pending == (peer_of(2), peer_of(3))
