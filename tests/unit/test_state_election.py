# SPDX-License-Identifier: MIT
"""The election of a shared state: who wins, who fetches what, and why nothing is elected."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pccl.messages import MAX_TEXT_CHARACTERS, StateEntry
from pccl.protocol.state_election import Election, Fetch, Offer, Refusal, Source, elect, order_fault
from tests.states import OFFERS_OF_GROUPS, POPULAR, RECEIVE, SEND, elected, entry, mixed, offer, peer_of


def refused(offers: list[Offer], last: int | None) -> str:
    result = elect(offers, last)
    assert isinstance(result, Refusal), result
    return result.text


def wanted(election: Election, rank: int) -> list[int]:
    return [fetch.index for fetch in election.fetches[rank]]


# ---------------------------------------------------------------- who wins


def test_equal_members_have_nothing_to_fetch() -> None:
    result = elected([offer(0, 7, "ab"), offer(1, 7, "ab")], 6)
    assert result == Election(7, (0, 1), ((), ()))


def test_highest_revision_beats_popularity() -> None:
    result = elected([offer(0, 4, "a"), offer(1, 4, "a"), offer(2, 5, "b")], 4)
    assert result.revision == 5
    assert result.donors == (2,)
    assert [wanted(result, rank) for rank in range(3)] == [[0], [0], []]


def test_popular_content_beats_rank_and_only_what_differs_is_fetched() -> None:
    result = elected([offer(0, 5, "xb"), offer(1, 5, "ab"), offer(2, 5, "ab")], 4)
    assert result.donors == (1, 2)
    assert result.fetches[0] == (Fetch(0, (Source(b"a" * 16, (peer_of(1), peer_of(2))),)),)


def test_tie_goes_to_the_lowest_rank() -> None:
    result = elected([offer(0, 0, "c"), offer(1, 0, "a"), offer(2, 0, "b")], None)
    assert result.donors == (0,)


def test_popularity_counts_whole_states_not_single_entries() -> None:
    result = elected([offer(0, 1, "ax"), offer(1, 1, "ay"), offer(2, 1, "bz"), offer(3, 1, "bz")], 0)
    assert result.donors == (2, 3)


def test_newcomer_receives_the_state_of_the_group() -> None:
    result = elected([offer(0, 41, "a"), offer(1, 41, "a"), offer(2, 0, "z")], 40)
    assert (result.revision, result.donors) == (41, (0, 1))
    assert wanted(result, 2) == [0]


def test_two_newcomers_do_not_outvote_one_survivor() -> None:
    result = elected([offer(0, 41, "a"), offer(1, 0, "z"), offer(2, 0, "z")], 41)
    assert (result.revision, result.donors) == (41, (0,))


def test_out_of_date_member_with_equal_content_is_a_donor() -> None:
    result = elected([offer(0, 6, "a"), offer(1, 5, "a"), offer(2, 5, "b")], 5)
    assert result.donors == (0, 1)


def test_first_synchronisation_takes_any_revision() -> None:
    assert elected([offer(0, 5000, "a"), offer(1, 0, "b")], None).revision == 5000


@pytest.mark.parametrize("revision", [5, 6])
def test_last_revision_and_the_next_one_are_valid(revision: int) -> None:
    assert elected([offer(0, revision, "a"), offer(1, revision, "a")], 5).revision == revision


def test_skipped_revision_is_a_violation_for_all() -> None:
    text = refused([offer(0, 6, "a"), offer(1, 8, "a")], 5)
    assert text == (
        "revision violation: rank 1 offers revision 8, but group 0 agreed on revision 5 last, so that only 5 and 6 may "
        "be offered"
    )


def test_nobody_up_to_date_is_no_donor() -> None:
    text = refused([offer(0, 3, "a"), offer(1, 4, "a")], 9)
    assert "no donor" in text
    assert "revision 9" in text
    assert "revision 4 of rank 1" in text


# ---------------------------------------------------------------- strategies


def test_receive_only_content_is_never_elected_and_never_served() -> None:
    result = elected([offer(0, 6, "z", RECEIVE), offer(1, 6, "z", RECEIVE), offer(2, 5, "a")], 5)
    assert (result.revision, result.donors) == (5, (2,))
    assert [wanted(result, rank) for rank in range(3)] == [[0], [0], []]


def test_receive_only_with_equal_content_neither_serves_nor_fetches() -> None:
    result = elected([offer(0, 5, "a", RECEIVE), offer(1, 5, "a")], 5)
    assert result == Election(5, (1,), ((), ()))


def test_receive_only_revision_does_not_count() -> None:
    assert elected([offer(0, 99, "z", RECEIVE), offer(1, 5, "a")], 5).revision == 5


def test_all_receive_only_is_no_donor() -> None:
    assert "no donor" in refused([offer(0, 5, "a", RECEIVE), offer(1, 5, "a", RECEIVE)], 5)


def test_send_only_wins_against_popularity_and_revision() -> None:
    result = elected([offer(0, 6, "a"), offer(1, 6, "a"), offer(2, 2, "b", SEND)], 5)
    assert (result.revision, result.donors) == (2, (2,))
    assert [wanted(result, rank) for rank in range(3)] == [[0], [0], []]


def test_send_only_plants_the_state_of_a_lost_group_again() -> None:
    offers = [offer(0, 0, "z"), offer(1, 80, "a", SEND)]
    result = elected(offers, 100)
    assert (result.revision, wanted(result, 0)) == (80, [0])
    assert elected([offer(0, 81, "b"), offer(1, 81, "b")], result.revision).revision == 81


def test_popular_member_with_the_content_of_send_only_serves_too() -> None:
    assert elected([offer(0, 5, "a"), offer(1, 5, "a", SEND), offer(2, 5, "b")], 5).donors == (0, 1)


def test_send_only_members_must_agree() -> None:
    text = refused([offer(0, 5, "ab", SEND), offer(1, 5, "ac", SEND)], 5)
    assert "ranks 0 and 1" in text
    assert "'k1'" in text
    assert "62" * 16 in text
    assert "63" * 16 in text
    text = refused([offer(0, 5, "a", SEND), offer(1, 6, "a", SEND)], 5)
    assert "revisions 5 and 6" in text


# ---------------------------------------------------------------- layouts


def with_entries(rank: int, *entries: StateEntry) -> Offer:
    return Offer(peer_of(rank), 0, POPULAR, entries)


def test_missing_key_names_key_and_ranks() -> None:
    both = with_entries(0, entry("a", 1), entry("b", 1))
    one = with_entries(1, entry("a", 1))
    assert refused([both, one], None) == "missing key: 'b' of rank 0 is missing on rank 1"
    swapped = [Offer(peer_of(0), 0, POPULAR, one.entries), Offer(peer_of(1), 0, POPULAR, both.entries)]
    assert refused(swapped, None) == "missing key: 'b' of rank 1 is missing on rank 0"


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("dtype", "float64", "dtype mismatch: 'a' has dtype float32 on rank 0 and float64 on rank 1"),
        ("shape", (16,), "shape mismatch: 'a' has shape (4, 4) on rank 0 and (16,) on rank 1"),
        (
            "allow_inequality",
            True,
            "allow_content_inequality mismatch: 'a' has allow_content_inequality False on rank 0 and True on rank 1",
        ),
    ],
)
def test_layout_mismatch_names_key_ranks_and_values(field: str, value: object, text: str) -> None:
    assert refused([with_entries(0, entry("a", 1)), with_entries(1, entry("a", 1, **{field: value}))], None) == text


# ---------------------------------------------------------------- entries that may differ


def test_allowed_inequality_counts_neither_in_popularity_nor_in_fetching() -> None:
    result = elected([mixed(0, 5, 9, 1), mixed(1, 5, 7, 2), mixed(2, 5, 7, 3)], 5)
    assert result.donors == (1, 2)
    assert [wanted(result, rank) for rank in range(3)] == [[0], [], []]


def test_unequal_entry_travels_to_members_of_another_revision() -> None:
    result = elected([mixed(0, 5, 7, 1), mixed(1, 6, 7, 2), mixed(2, 6, 7, 3), mixed(3, 6, 7, 2)], 5)
    sources = (Source(bytes([2]) * 16, (peer_of(1), peer_of(3))), Source(bytes([3]) * 16, (peer_of(2),)))
    assert result.fetches == ((Fetch(1, sources),), (), (), ())


def test_unequal_entry_that_a_current_member_holds_stays() -> None:
    result = elected([mixed(0, 5, 7, 3), mixed(1, 6, 7, 2), mixed(2, 6, 7, 3)], 5)
    assert result.fetches == ((), (), ())


# ---------------------------------------------------------------- properties


@given(OFFERS_OF_GROUPS, st.none() | st.integers(3, 7))
def test_election_obeys_its_rules(offers: list[Offer], last: int | None) -> None:
    result = elect(offers, last)
    senders = [it for it in offers if it.strategy == SEND]
    candidates = senders or [it for it in offers if it.strategy == POPULAR]
    if isinstance(result, Refusal):
        conflict = len({(it.revision, it.entries) for it in senders}) > 1
        skipped = not senders and last is not None and any(it.revision > last + 1 for it in candidates)
        stale = not senders and last is not None and all(it.revision < last for it in candidates)
        assert conflict or skipped or stale or not candidates
        return
    assert result.revision == max(it.revision for it in candidates)
    votes = Counter(it.entries for it in candidates if it.revision == result.revision)
    content = offers[result.donors[0]].entries
    assert all(offers[rank].entries == content and offers[rank].strategy != RECEIVE for rank in result.donors)
    assert votes[content] == max(votes.values())
    ties = [it for it in candidates if it.revision == result.revision and votes[it.entries] == votes[content]]
    assert ties[0].entries == content
    for rank, it in enumerate(offers):
        differs = [index for index in range(2) if it.entries[index] != content[index]]
        assert wanted(result, rank) == differs
        assert not (it.strategy == SEND and differs)


@pytest.mark.parametrize("names", ["ba", "aa", "acb"])
def test_entries_out_of_order_are_named(names: str) -> None:
    assert repr(names[-1]) in order_fault([entry(name, 1) for name in names])
    assert order_fault([entry(name, 1) for name in sorted(set(names))]) == ""


def test_texts_fit_into_a_message_whatever_the_names_are() -> None:
    offers = [with_entries(0, entry("a", 1), entry("\0" * 255, 1)), with_entries(1, entry("a", 1))]
    text = refused(offers, None)
    assert text.endswith("is missing on rank 1")
    assert len(text) < 200
    assert len(Refusal("x" * 5000).text) == MAX_TEXT_CHARACTERS
