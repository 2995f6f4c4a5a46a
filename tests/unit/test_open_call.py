# SPDX-License-Identifier: MIT
"""One call at a time: deadlines, withdrawals, and a next call that waits for an abandoned one."""

from __future__ import annotations

from pccl.errors import Status
from pccl.messages import Vote, Withdraw
from pccl.protocol.open_call import OpenCall
from pccl.protocol.types import CONNECT_CALL, Reject, Tell, VoteKind

UPDATE, PENDING, SYNC = int(VoteKind.UPDATE_TOPOLOGY), int(VoteKind.ARE_PEERS_PENDING), int(VoteKind.SYNC_SHARED_STATE)


def _open(kind: int = UPDATE) -> OpenCall:
    call = OpenCall(1_000)
    assert call.open(Vote(1, kind, b""), 0) is None
    assert call.vote == Vote(1, kind, b"")
    return call


def test_a_call_is_said_until_its_deadline_and_then_its_withdrawal() -> None:
    call = _open()
    assert call.deadline() == 1_000
    assert call.timed_out(999) == []
    assert call.unanswered == Vote(1, UPDATE, b"")
    assert call.explain() == ["update_topology: waiting for the other peers"]
    withdrawal = Withdraw(1, UPDATE, abandoned=False)
    assert call.timed_out(1_000) == [Tell(withdrawal)]
    assert call.timed_out(1_001) == []
    assert call.deadline() is None
    assert call.unanswered == withdrawal
    assert call.explain() == ["update_topology: withdrawn, waiting for the master"]
    assert not call.abandoned
    call.answered()
    assert call.vote is None
    assert call.unanswered is None
    assert call.explain() == []


def test_a_second_caller_is_rejected_and_the_first_waits_on() -> None:
    call = _open()
    reject = call.open(Vote(2, PENDING, b""), 5)
    assert reject is not None
    assert (reject.call, reject.status) == (2, Status.INVALID)
    assert call.vote == Vote(1, UPDATE, b"")


def test_the_caller_after_an_abandoned_one_waits_for_its_end() -> None:
    call = _open()
    assert call.abandon(1) == [Tell(Withdraw(1, UPDATE, abandoned=True))]
    assert call.abandon(1) == []
    assert call.abandoned
    assert call.open(Vote(2, PENDING, b"x"), 100) is None
    assert call.vote == Vote(1, UPDATE, b"")
    assert call.open(Vote(3, PENDING, b""), 100) is not None
    call.answered()
    assert call.vote == Vote(2, PENDING, b"x")
    assert not call.abandoned
    assert call.deadline() == 1_100


def test_a_waiting_call_may_be_abandoned_too_and_was_never_told() -> None:
    call = _open()
    call.abandon(1)
    assert call.open(Vote(2, PENDING, b""), 0) is None
    assert call.abandon(2) == []
    assert call.open(Vote(3, PENDING, b""), 0) is None
    call.answered()
    assert call.vote == Vote(3, PENDING, b"")


def test_a_waiting_call_has_its_own_deadline() -> None:
    call = _open()
    call.abandon(1)
    call.open(Vote(2, PENDING, b""), 10)
    assert call.deadline() == 1_010
    assert call.timed_out(1_009) == []
    (reject,) = call.timed_out(1_010)
    assert isinstance(reject, Reject)
    assert (reject.call, reject.status) == (2, Status.TIMEOUT)
    assert "the master has not answered the withdrawal of update_topology" in reject.text
    assert call.deadline() is None


def test_ctrl_c_after_the_deadline_is_said_too() -> None:
    call = _open()
    call.timed_out(1_000)
    assert call.abandon(1) == [Tell(Withdraw(1, UPDATE, abandoned=True))]


def test_nothing_happens_to_a_call_that_has_ended() -> None:
    call = _open()
    call.answered()
    assert call.abandon(1) == []
    assert call.end(Status.CLOSED, "closed") == []


def test_a_call_under_way_has_no_deadline_until_a_master_is_told_of_it_again() -> None:
    call = _open(SYNC)
    call.timed_out(1_000)
    assert not call.under_way(7)
    assert call.under_way(1)
    assert call.deadline() is None
    assert call.unanswered == Vote(1, SYNC, b"")
    call.said_again(5_000)
    assert call.deadline() == 6_000
    assert call.under_way(1)
    call.abandon(1)
    assert not call.under_way(1)
    call.said_again(5_000)
    assert call.unanswered == Withdraw(1, SYNC, abandoned=True)


def test_the_end_of_all_is_heard_by_those_who_wait() -> None:
    call = _open()
    assert call.end(Status.CLOSED, "bye") == [Reject(1, Status.CLOSED, "bye")]
    call = _open()
    call.abandon(1)
    call.open(Vote(2, PENDING, b""), 0)
    assert call.end(Status.CLOSED, "bye") == [Reject(2, Status.CLOSED, "bye")]


def test_a_wish_to_be_admitted_is_withdrawn_like_a_vote_but_never_said_as_one() -> None:
    call = OpenCall(1_000)
    call.join(0)
    assert call.unanswered is None
    withdrawal = Withdraw(CONNECT_CALL, UPDATE, abandoned=False)
    assert call.timed_out(1_000) == [Tell(withdrawal)]
    assert call.unanswered == withdrawal
    assert call.end(Status.TIMEOUT, "nobody") == [Reject(CONNECT_CALL, Status.TIMEOUT, "nobody")]
