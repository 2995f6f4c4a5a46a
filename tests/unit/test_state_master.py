# SPDX-License-Identifier: MIT
"""The master's half of a synchronisation: ballots in, plans and answers out."""

from __future__ import annotations

import pytest

from pccl.errors import Status
from pccl.messages import (
    Heartbeat,
    StateAgreed,
    StateDonor,
    StateEntry,
    StateFailed,
    StateFetched,
    StateOffer,
    StatePlan,
    StateReceived,
    StateSource,
    StateTaken,
    decode,
    encode,
)
from pccl.protocol.state_master import MasterSync
from pccl.protocol.types import Ballot, Send, SyncStep

SYNC = 77
A, B, C = (bytes([number]) * 16 for number in (1, 2, 3))
NONE = SyncStep()


def ballot(
    rank: int, peer: bytes, revision: int, contents: str, strategy: int = 0, apart: tuple[bytes, ...] = ()
) -> Ballot:
    """A capital letter is the content of an entry in which members may differ."""
    entries = tuple(
        StateEntry(f"k{i}", "uint8", (4,), letter.encode() * 16, letter.isupper()) for i, letter in enumerate(contents)
    )
    return Ballot(peer, rank, 10 + rank, encode(StateOffer(revision, strategy, entries)), apart)


def memory(revision: int) -> bytes:
    return revision.to_bytes(8, "big")


def fetching() -> MasterSync:
    """A and B hold what C lacks in its first entry."""
    ballots = [ballot(0, A, 5, "xy"), ballot(1, B, 5, "xy"), ballot(2, C, 0, "zy")]
    sync = MasterSync(SYNC, 0, ballots, memory(5))
    plans = [Send(A, StatePlan(10, SYNC, True, (), ())), Send(B, StatePlan(11, SYNC, True, (), ()))]
    plans.append(
        Send(C, StatePlan(12, SYNC, False, (StateDonor(A, 0), StateDonor(B, 1)), (StateSource(0, b"x" * 16, ()),)))
    )
    assert sync.begin(0) == SyncStep(sends=plans)
    return sync


def agreements(step: SyncStep) -> dict[bytes, StateAgreed]:
    assert step.answers is not None
    assert all(answer.status == Status.OK for answer in step.answers)
    return {answer.peer: decode(answer.body) for answer in step.answers}


def test_equal_members_are_answered_at_once() -> None:
    step = MasterSync(SYNC, 0, [ballot(0, A, 6, "x"), ballot(1, B, 6, "x")], memory(5)).begin(0)
    assert agreements(step) == {A: StateAgreed(SYNC, 6, 2, 0, 0), B: StateAgreed(SYNC, 6, 2, 0, 0)}
    assert step.memory == memory(6)
    assert not step.sends


def test_answers_carry_the_calls_that_they_answer() -> None:
    step = MasterSync(SYNC, 0, [ballot(0, A, 6, "x"), ballot(1, B, 6, "x")], b"").begin(0)
    assert step.answers is not None
    assert [(answer.peer, answer.call) for answer in step.answers] == [(A, 10), (B, 11)]


def test_a_caller_that_is_gone_ends_it_for_all_and_once() -> None:
    sync = fetching()
    step = sync.abandoned(B, 0)
    assert step.answers is not None
    assert [(answer.peer, answer.status) for answer in step.answers] == [(it, Status.STATE) for it in (A, B, C)]
    assert "rank 1 gave up" in step.answers[0].text
    assert step.memory is None
    assert sync.abandoned(A, 0) == NONE


def test_report_of_the_last_fetcher_ends_it() -> None:
    sync = fetching()
    assert "rank 2" in sync.explain()
    step = sync.received(C, StateFetched(SYNC, (StateReceived(A, 3), StateReceived(B, 1))), 0)
    assert agreements(step) == {
        A: StateAgreed(SYNC, 5, 3, 3, 0),
        B: StateAgreed(SYNC, 5, 3, 1, 0),
        C: StateAgreed(SYNC, 5, 3, 0, 4),
    }
    assert step.memory == memory(5)
    assert sync.member_lost(A, 0) == sync.rejoined(B, 0) == sync.received(C, StateFailed(SYNC, "late"), 0) == NONE


def test_refusal_reaches_every_voter_and_keeps_the_memory() -> None:
    step = MasterSync(SYNC, 3, [ballot(0, A, 6, "x"), ballot(1, B, 9, "x")], memory(5)).begin(0)
    assert step.answers is not None
    assert {(answer.peer, answer.status) for answer in step.answers} == {(A, Status.STATE), (B, Status.STATE)}
    assert len({answer.text for answer in step.answers}) == 1
    assert "revision violation: rank 1 offers revision 9, but group 3" in step.answers[0].text
    assert step.memory is None


def test_fetcher_that_gives_up_fails_all() -> None:
    step = fetching().received(C, StateFailed(SYNC, "'k0' does not match its hash"), 0)
    assert step.answers is not None
    assert [answer.text for answer in step.answers] == [
        "sync_shared_state: rank 2 could not fetch the state: 'k0' does not match its hash"
    ] * 3


def test_losing_all_donors_fails_the_rest() -> None:
    sync = fetching()
    assert sync.member_lost(A, 0) == NONE
    step = sync.member_lost(B, 0)
    assert step.answers is not None
    assert [(answer.peer, answer.status) for answer in step.answers] == [(C, Status.STATE)]
    assert "no donor" in step.answers[0].text


def test_losing_the_last_fetcher_ends_it() -> None:
    step = fetching().member_lost(C, 0)
    assert agreements(step) == {A: StateAgreed(SYNC, 5, 2, 0, 0), B: StateAgreed(SYNC, 5, 2, 0, 0)}


def test_member_with_a_new_connection_gets_its_plan_again_without_the_dead() -> None:
    sync = fetching()
    sync.member_lost(A, 0)
    plan = StatePlan(12, SYNC, False, (StateDonor(B, 1),), (StateSource(0, b"x" * 16, ()),))
    assert sync.rejoined(C, 0) == SyncStep(sends=[Send(C, plan)])
    assert sync.rejoined(A, 0) == NONE


def test_donors_of_one_entry_only_are_listed_by_place() -> None:
    def holder(rank: int, peer: bytes, revision: int, own: str) -> Ballot:
        entry = StateEntry("own", "uint8", (4,), own.encode() * 16, allow_inequality=True)
        return Ballot(peer, rank, 10 + rank, encode(StateOffer(revision, 0, (entry,))))

    sync = MasterSync(SYNC, 0, [holder(0, A, 6, "a"), holder(1, B, 6, "b"), holder(2, C, 5, "c")], memory(5))
    plan = StatePlan(
        12,
        SYNC,
        True,
        (StateDonor(A, 0), StateDonor(B, 1)),
        (StateSource(0, b"a" * 16, (0,)), StateSource(0, b"b" * 16, (1,))),
    )
    assert list(sync.begin(0).sends)[2] == Send(C, plan)


def passing() -> MasterSync:
    """Only A holds what B and C lack, and it has no link to C."""
    ballots = [ballot(0, A, 6, "xX", apart=(C,)), ballot(1, B, 5, "yY"), ballot(2, C, 5, "yZ", apart=(A,))]
    sync = MasterSync(SYNC, 0, ballots, memory(5))
    fetch = (StateSource(0, b"x" * 16, ()), StateSource(1, b"X" * 16, ()))
    assert [it.message for it in sync.begin(0).sends] == [
        StatePlan(10, SYNC, True, (), ()),
        StatePlan(11, SYNC, False, (StateDonor(A, 0),), fetch, relay=True),
        StatePlan(12, SYNC, False, (), ()),
    ]
    return sync


def test_content_is_passed_on_to_whom_no_donor_has_a_link() -> None:
    sync = passing()
    assert sync.rejoined(C, 0).sends == [Send(C, StatePlan(12, SYNC, False, (), ()))]
    step = sync.received(B, StateFetched(SYNC, (StateReceived(A, 8),), (StateTaken(1, b"X" * 16),)), 0)
    fetch = (StateSource(0, b"x" * 16, ()), StateSource(1, b"X" * 16, ()))
    assert step == SyncStep(sends=[Send(C, StatePlan(12, SYNC, False, (StateDonor(B, 1),), fetch, round=1))])
    assert sync.received(C, StateFailed(SYNC, "of the plan before"), 0) == NONE
    step = sync.received(C, StateFetched(SYNC, (StateReceived(B, 8),), (StateTaken(1, b"X" * 16),), 1), 0)
    assert agreements(step) == {
        A: StateAgreed(SYNC, 6, 3, 8, 0),
        B: StateAgreed(SYNC, 6, 3, 8, 8),
        C: StateAgreed(SYNC, 6, 3, 0, 8),
    }


@pytest.mark.parametrize("before", [True, False], ids=["before it has fetched", "while it passes on"])
def test_losing_whom_others_wait_for_fails_them(before: bool) -> None:
    sync = passing()
    if not before:
        assert sync.received(B, StateFetched(SYNC, ()), 0).sends
    assert sync.member_lost(B, 0).answers is None, "the next view may offer a link again"
    step = sync.links({C: (A,)}, 0)
    assert step.answers is not None
    assert [(answer.peer, answer.status) for answer in step.answers] == [(A, Status.STATE), (C, Status.STATE)]
    assert "held by rank 0 alone, to which rank 2 has no link, nor to a member that could pass" in step.answers[0].text


@pytest.mark.parametrize(
    "message",
    [StateFetched(SYNC + 1, ()), StateFailed(SYNC - 1, "old"), Heartbeat(1)],
    ids=["done", "failed", "else"],
)
def test_reports_of_other_plans_change_nothing(message: object) -> None:
    assert fetching().received(C, message, 0) == NONE


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"\xc1", "rank 1 offers a malformed state"),
        (encode(Heartbeat(1)), "rank 1 offers a Heartbeat instead of a state"),
        (
            encode(StateOffer(0, 0, tuple(StateEntry(name, "uint8", (1,), b"x" * 16) for name in "ba"))),
            "rank 1 offers a malformed state: shared state: 'a' follows 'b'",
        ),
    ],
)
def test_malformed_offer_is_refused_with_its_rank(body: bytes, text: str) -> None:
    step = MasterSync(SYNC, 0, [ballot(0, A, 0, "x"), Ballot(B, 1, 11, body)], b"").begin(0)
    assert step.answers is not None
    assert all(answer.status == Status.STATE and text in answer.text for answer in step.answers)


def test_nothing_before_the_election_and_nothing_after_a_refusal() -> None:
    sync = MasterSync(SYNC, 0, [ballot(0, A, 0, "x", strategy=1)], b"")
    assert sync.received(A, StateFetched(SYNC, ()), 0) == NONE
    assert sync.explain() == ""
    assert sync.begin(0).answers is not None
    assert sync.member_lost(A, 0) == sync.rejoined(A, 0) == NONE
