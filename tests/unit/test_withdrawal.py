# SPDX-License-Identifier: MIT
"""Withdrawn joint calls, on both cores: one answer for good, no harm to anybody else."""

from __future__ import annotations

import pytest

from pccl.errors import Status
from pccl.messages import HeartbeatReply, Vote, Withdraw
from pccl.protocol.types import Change, Reject, Resolve, VoteKind
from tests.cores import Bench, body_for, identity, offer

UPDATE, PENDING = VoteKind.UPDATE_TOPOLOGY, VoteKind.ARE_PEERS_PENDING
OPTIMIZE, SYNC = VoteKind.OPTIMIZE_TOPOLOGY, VoteKind.SYNC_SHARED_STATE
KINDS = [UPDATE, PENDING, OPTIMIZE, SYNC]
PATIENCE_MS = 300_000


def _end(bench: Bench, name: str) -> Resolve | Reject | None:
    return bench.peer(name).end()


def _status(bench: Bench, name: str) -> Status | None:
    end = _end(bench, name)
    return end.status if isinstance(end, Reject) else None


def _vote(bench: Bench, names: str, kind: VoteKind) -> None:
    for name in names:
        bench.vote(name, kind, body_for(kind))


def _to_its_deadline(bench: Bench, name: str) -> None:
    """The clock of one peer jumps; nobody else notices. A word of the master shows that it lives."""
    peer = bench.peer(name)
    now = bench.now + PATIENCE_MS
    peer.core.received(HeartbeatReply(), now)
    bench.perform(peer, peer.core.timed_out(now))


# ---------------------------------------------------------------------------------------- before the vote is complete


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_ends_at_its_deadline_and_may_be_made_again_at_once(kind: VoteKind) -> None:
    bench = Bench()
    bench.together("a", "b", "c")
    _vote(bench, "ab", kind)
    bench.run()
    _to_its_deadline(bench, "a")
    bench.run()
    assert _status(bench, "a") is Status.TIMEOUT
    assert _end(bench, "b") is None
    _vote(bench, "ac", kind)
    bench.run()
    assert all(isinstance(_end(bench, name), Resolve) for name in "abc")


@pytest.mark.parametrize("kind", KINDS)
def test_an_abandoned_voice_does_not_count(kind: VoteKind) -> None:
    bench = Bench()
    bench.together("a", "b", "c")
    _vote(bench, "ab", kind)
    bench.abandon("a")
    _vote(bench, "c", kind)
    bench.run()
    assert _end(bench, "a") is _end(bench, "b") is _end(bench, "c") is None
    _vote(bench, "a", kind)
    bench.run()
    assert all(isinstance(_end(bench, name), Resolve) for name in "abc")


def test_an_abandoned_caller_may_call_for_something_else_with_the_others() -> None:
    bench = Bench()
    bench.together("a", "b")
    bench.vote("a", UPDATE)
    bench.run()
    bench.abandon("a")
    _vote(bench, "ab", SYNC)
    bench.run()
    assert all(isinstance(_end(bench, name), Resolve) for name in "ab")


def test_a_withdrawal_answers_one_peer_and_leaves_other_groups_alone() -> None:
    bench = Bench()
    bench.together("a", "b")
    bench.join("x", group=1)
    bench.run()
    _vote(bench, "ab", UPDATE)
    bench.run()
    before = len(bench.records)
    _vote(bench, "a", SYNC)
    bench.abandon("a")
    _vote(bench, "x", SYNC)
    bench.run()
    assert isinstance(_end(bench, "x"), Resolve)
    answered = [it.answers for it in bench.records[before:] if isinstance(it, Change)]
    assert [[answer.peer for answer in answers] for answers in answered] == [[identity("a")], [identity("x")]]
    assert all(not it.views for it in bench.records[before:] if isinstance(it, Change))


# ---------------------------------------------------------------------------------------------- races with completion


@pytest.mark.parametrize("kind", KINDS)
def test_a_withdrawal_of_a_complete_vote_gets_its_answer(kind: VoteKind) -> None:
    bench = Bench()
    bench.together("a", "b")
    bench.join("c")
    bench.run()
    _vote(bench, "ab", kind)
    bench.master_hears()
    _to_its_deadline(bench, "a")
    bench.run()
    assert isinstance(_end(bench, "a"), Resolve)
    assert isinstance(_end(bench, "b"), Resolve)


def test_an_abandoned_call_that_was_complete_takes_effect_and_tells_nobody() -> None:
    bench = Bench()
    bench.together("a", "b")
    bench.join("c")
    bench.run()
    _vote(bench, "ab", UPDATE)
    bench.master_hears()
    bench.abandon("a")
    _vote(bench, "a", PENDING)
    bench.run()
    assert [view.view.epoch for view in bench.peer("a").installs()][-1] == bench.peer("c").core.epoch
    assert [it.call for it in bench.peer("a").ends()] == [0, 1]
    _vote(bench, "bc", PENDING)
    bench.run()
    assert isinstance(_end(bench, "a"), Resolve)


def test_a_withdrawal_that_is_said_again_gets_the_same_answer() -> None:
    bench = Bench()
    bench.together("a", "b")
    _vote(bench, "a", UPDATE)
    bench.run()
    _to_its_deadline(bench, "a")
    bench.master_hears()
    bench.to_peers.clear()
    records = len(bench.records)
    bench.reconnect("a")
    bench.run()
    assert _status(bench, "a") is Status.TIMEOUT
    assert len(bench.records) == records


# --------------------------------------------------------------------------------------------- restarts of the master


def test_a_restarted_master_is_told_of_the_withdrawal_only() -> None:
    bench = Bench()
    bench.together("a", "b")
    _vote(bench, "a", UPDATE)
    bench.run()
    bench.stop_master()
    _to_its_deadline(bench, "a")
    bench.start_master()
    bench.reconnect("b")
    _vote(bench, "b", SYNC)  # would clash with the vote of a, if it were cast again
    bench.reconnect("a")
    bench.run()
    assert _status(bench, "a") is Status.TIMEOUT
    assert _end(bench, "b") is None
    _vote(bench, "a", SYNC)
    bench.run()
    assert all(isinstance(_end(bench, name), Resolve) for name in "ab")


def test_the_answer_of_a_withdrawn_vote_outlives_the_master() -> None:
    bench = Bench()
    bench.together("a", "b")
    _vote(bench, "a", UPDATE)
    bench.run()
    bench.abandon("a")
    bench.master_hears()
    bench.stop_master()
    bench.start_master()
    bench.reconnect("a")
    bench.reconnect("b")
    bench.run()
    call = bench.peer("a").made
    # A voice that comes late, out of a queue, does not count either.
    bench.say("a", Vote(call, UPDATE, b""))
    _vote(bench, "b", UPDATE)
    bench.run()
    assert _end(bench, "b") is None


# ------------------------------------------------------------------------------------------------------- shared state


def _fetching(bench: Bench) -> None:
    """a and b hold the state, c lacks it; the plans are on their way."""
    bench.together("a", "b", "c")
    for name, content in zip("abc", "xxy", strict=True):
        bench.vote(name, SYNC, offer(4, content))
    bench.master_hears()


def test_a_synchronisation_that_fetches_is_not_ended_by_a_deadline() -> None:
    bench = Bench()
    _fetching(bench)
    _to_its_deadline(bench, "a")
    bench.run()
    assert all(isinstance(_end(bench, name), Resolve) for name in "abc")


def test_a_member_that_has_its_plan_does_not_withdraw() -> None:
    bench = Bench()
    bench.together("a", "b", "c")
    for name, content in zip("abc", "xxy", strict=True):
        bench.vote(name, SYNC, offer(4, content))
    bench.peer("c").deaf = True
    bench.run()
    _to_its_deadline(bench, "a")
    assert not any("Withdraw" in line for line in bench.lines)
    assert bench.peer("a").core.explain() == "sync_shared_state: waiting for the other peers"


@pytest.mark.parametrize("gone", ["a", "c"])
def test_a_synchronisation_that_loses_a_caller_fails_for_all(gone: str) -> None:
    bench = Bench()
    _fetching(bench)
    bench.abandon(gone)
    bench.master_hears()
    bench.run()
    others = [name for name in "abc" if name != gone]
    rank = "abc".index(gone)
    for name in others:
        end = _end(bench, name)
        assert isinstance(end, Reject)
        assert end.status is Status.STATE
        assert f"rank {rank} gave up its call while the state was fetched" in end.text
    assert _end(bench, gone) is None
    for name, content in zip("abc", "xxy", strict=True):
        bench.vote(name, SYNC, offer(4, content))
    bench.run()
    assert all(isinstance(_end(bench, name), Resolve) for name in "abc")


def test_an_abandoned_member_does_not_begin_to_fetch() -> None:
    bench = Bench()
    _fetching(bench)
    bench.abandon("c")
    bench.peers_hear()
    assert not any(line.startswith("c > StateFetched") for line in bench.lines)


def test_a_master_that_restarts_gives_a_fetching_member_new_patience() -> None:
    bench = Bench()
    _fetching(bench)
    bench.peers_hear()
    bench.stop_master()
    bench.start_master()
    bench.reconnect("a")
    bench.run()
    _to_its_deadline(bench, "a")
    bench.run()
    assert _status(bench, "a") is Status.TIMEOUT


# ---------------------------------------------------------------------------------------------------------- newcomers


def test_a_newcomer_that_nobody_admits_hears_who_does_not_call() -> None:
    bench = Bench()
    bench.together("a")
    bench.join("b")
    bench.run()
    _to_its_deadline(bench, "b")
    bench.run()
    (end,) = bench.peer("b").ends()
    assert isinstance(end, Reject)
    assert end.status is Status.TIMEOUT
    assert "update_topology waits for rank 0 of group 0 (peer 61616161" in end.text
    assert bench.peer("b").core.halted
    assert bench.master is not None
    assert bench.master.pending_count == 0


def test_a_newcomer_that_gives_up_while_it_is_admitted_is_left_out() -> None:
    bench = Bench()
    bench.together("a")
    bench.join("b")
    bench.run()
    bench.vote("a", UPDATE)
    bench.master_hears()
    _to_its_deadline(bench, "b")
    bench.run()
    (end,) = bench.peer("b").ends()
    assert isinstance(end, Reject)
    assert "update_topology waits for the new views" in end.text
    assert isinstance(_end(bench, "a"), Resolve)
    assert bench.peer("a").core.epoch == 1


def test_a_newcomer_whose_view_is_on_its_way_is_a_member() -> None:
    bench = Bench()
    bench.together("a")
    bench.join("b")
    bench.run()
    bench.vote("a", UPDATE)
    bench.master_hears()
    bench.peers_hear()
    bench.peer("b").deaf = True
    bench.run()
    bench.peer("b").deaf = False
    _to_its_deadline(bench, "b")
    bench.run()
    assert bench.peer("b").ends() == []
    bench.reconnect("b")
    bench.run()
    assert bench.peer("b").ends() == [Resolve(0, epoch=2)]


# ----------------------------------------------------------------------------------------- peers that break the rules


def test_a_withdrawal_of_another_vote_than_the_open_one_is_a_fault() -> None:
    bench = Bench()
    bench.together("a", "b")
    _vote(bench, "a", UPDATE)
    bench.run()
    bench.say("a", Withdraw(9, UPDATE, abandoned=False))
    assert any("withdraws vote 9 while its vote 2 is open" in line for line in bench.lines)


def test_a_withdrawal_of_an_old_vote_changes_nothing() -> None:
    bench = Bench()
    bench.together("a", "b")
    for _ in range(2):
        _vote(bench, "ab", PENDING)
        bench.run()
    _vote(bench, "a", UPDATE)
    bench.run()
    assert bench.say("a", Withdraw(1, PENDING, abandoned=True)) == []
    assert bench.say("a", Withdraw(0, UPDATE, abandoned=True)) == []
    _vote(bench, "b", UPDATE)
    bench.run()
    assert isinstance(_end(bench, "a"), Resolve)
