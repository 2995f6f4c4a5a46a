# SPDX-License-Identifier: MIT
"""Joint calls: completed by those who are left, answered once and for all, never a deadlock."""

from __future__ import annotations

import pytest

from pccl import scope
from pccl.errors import Status
from pccl.messages import View
from pccl.protocol import journal
from pccl.protocol.types import Change, Limits, Reject, Resolve, VoteKind
from tests.cores import Bench, body_for, identity, offer

UPDATE, PENDING = VoteKind.UPDATE_TOPOLOGY, VoteKind.ARE_PEERS_PENDING
OPTIMIZE, SYNC = VoteKind.OPTIMIZE_TOPOLOGY, VoteKind.SYNC_SHARED_STATE


def _end(bench: Bench, name: str) -> Resolve | Reject | None:
    return bench.peer(name).end()


def _view(bench: Bench, name: str) -> View:
    view = bench.peer(name).core.view
    assert view is not None
    return view


def _status(bench: Bench, name: str) -> Status | None:
    end = _end(bench, name)
    return end.status if isinstance(end, Reject) else None


def test_update_topology_admits_everyone_who_waits_and_tells_them_one_epoch() -> None:
    bench = Bench()
    bench.together("a", "b")
    bench.join("c")
    bench.join("d")
    bench.run()
    bench.vote("a", UPDATE)
    bench.run()
    assert _end(bench, "a") is None
    bench.vote("b", UPDATE)
    bench.run()
    assert {_view(bench, name).epoch for name in "abcd"} == {3}
    assert [member.id for member in _view(bench, "d").members] == [identity(name) for name in "abcd"]
    for name in "ab":
        end = _end(bench, name)
        assert isinstance(end, Resolve)
        assert end.flag


@pytest.mark.parametrize("kind", [UPDATE, OPTIMIZE])
def test_a_call_that_has_nothing_to_change_changes_nothing(kind: VoteKind) -> None:
    bench = Bench()
    bench.together("a", "b")
    bench.vote("a", kind)
    bench.vote("b", kind)
    bench.run()
    assert _view(bench, "a").epoch == 2
    for name in "ab":
        end = _end(bench, name)
        assert isinstance(end, Resolve)
        assert not end.flag


def test_newcomers_of_several_groups_come_in_one_step_of_the_journal() -> None:
    bench = Bench()
    bench.together("a")
    bench.join("b")
    bench.join("x", group=3)
    bench.join("y", group=3)
    bench.run()
    bench.vote("a", UPDATE)
    bench.run()
    change = bench.records[-1]
    assert isinstance(change, Change)
    assert [view.group for view in change.views] == [0, 3]
    assert len(change.admissions) == 3
    assert len(change.answers) == 1


def test_are_peers_pending_says_the_same_to_all() -> None:
    bench = Bench()
    bench.together("a", "b")
    bench.vote("a", PENDING)
    bench.run()
    bench.join("c")
    bench.run()
    bench.vote("b", PENDING)
    bench.run()
    ends = [_end(bench, name) for name in "ab"]
    assert [end.flag for end in ends if isinstance(end, Resolve)] == [True, True]


def test_a_voter_that_is_lost_is_not_waited_for() -> None:
    bench = Bench()
    bench.together("a", "b", "c")
    bench.vote("a", PENDING)
    bench.vote("b", PENDING)
    bench.run()
    bench.perform(bench.peer("c"), bench.peer("c").core.leave("", bench.now))
    bench.run()
    assert isinstance(_end(bench, "a"), Resolve)
    assert isinstance(_end(bench, "b"), Resolve)


def test_a_newcomer_that_died_in_silence_is_not_admitted_and_holds_up_nobody_for_long() -> None:
    bench = Bench()
    bench.together("a")
    bench.join("b")
    bench.join("c")
    bench.run()
    bench.peer("b").deaf = True
    bench.vote("a", UPDATE)
    bench.run()
    assert _end(bench, "a") is None
    assert bench.master is not None
    assert f"newcomers that have not answered: peer {identity('b').hex()[:8]}" in bench.master.explain()
    bench.wait(1_000)
    assert isinstance(_end(bench, "a"), Resolve)
    assert [member.id for member in _view(bench, "a").members] == [identity("a"), identity("c")]


def test_a_call_whose_only_newcomer_is_dead_changes_nothing() -> None:
    bench = Bench()
    bench.together("a")
    bench.join("b")
    bench.run()
    bench.kill("b")
    bench.vote("a", UPDATE)
    bench.run()
    end = _end(bench, "a")
    assert isinstance(end, Resolve)
    assert not end.flag
    assert _view(bench, "a").epoch == 1


def test_a_newcomer_that_dies_during_its_admission_is_left_out() -> None:
    bench = Bench()
    bench.together("a", "b")
    bench.join("c")
    bench.join("d")
    bench.run()
    bench.vote("a", UPDATE)
    bench.vote("b", UPDATE)
    bench.master_hears()
    bench.perform(bench.peer("c"), bench.peer("c").core.leave("", bench.now))
    bench.run()
    assert [member.id for member in _view(bench, "a").members] == [identity(name) for name in "abd"]
    assert bench.peer("c").core.view is None


def test_a_member_lost_during_an_admission_changes_nothing_for_the_newcomers() -> None:
    bench = Bench()
    bench.together("a", "b")
    bench.join("c")
    bench.run()
    bench.vote("a", UPDATE)
    bench.vote("b", UPDATE)
    bench.master_hears()
    bench.kill("b")
    bench.suspect("a", "b")
    bench.run()
    assert [member.id for member in _view(bench, "c").members] == [identity("a"), identity("c")]
    assert isinstance(_end(bench, "a"), Resolve)


def test_voters_that_all_die_during_an_admission_leave_the_run_to_the_newcomers() -> None:
    bench = Bench()
    bench.together("a")
    bench.join("b")
    bench.run()
    bench.vote("a", UPDATE)
    bench.master_hears()
    bench.perform(bench.peer("a"), bench.peer("a").core.leave("", bench.now))
    bench.run()
    assert [member.id for member in _view(bench, "b").members] == [identity("b")]
    bench.vote("b", UPDATE)
    bench.run()
    assert isinstance(_end(bench, "b"), Resolve)


def test_a_vote_said_again_gets_the_answer_it_got_before() -> None:
    bench = Bench()
    bench.together("a", "b")
    bench.vote("a", PENDING)
    bench.vote("b", PENDING)
    bench.master_hears()
    bench.to_peers.clear()
    bench.join("c")
    bench.run()
    bench.reconnect("a")
    bench.run()
    end = _end(bench, "a")
    assert isinstance(end, Resolve)
    assert not end.flag


@pytest.mark.parametrize(("first", "second"), [(UPDATE, PENDING), (UPDATE, SYNC), (SYNC, UPDATE), (PENDING, OPTIMIZE)])
def test_different_calls_fail_for_all_callers_at_once(first: VoteKind, second: VoteKind) -> None:
    bench = Bench()
    bench.together("a", "b", "c")
    bench.vote("a", first, body_for(first))
    bench.vote("b", second, body_for(second))
    bench.run()
    assert _status(bench, "a") is _status(bench, "b") is Status.CALL_MISMATCH
    assert bench.now == 0
    for name in "abc":
        bench.vote(name, PENDING)
    bench.run()
    assert isinstance(_end(bench, "c"), Resolve)


def test_a_synchronisation_of_one_group_and_a_call_of_the_run_wait_for_nothing_from_each_other() -> None:
    bench = Bench()
    bench.together("a")
    bench.join("x", group=1)
    bench.run()
    bench.vote("a", UPDATE)
    bench.run()
    bench.vote("a", PENDING)
    bench.vote("x", SYNC, offer(0, "x"))
    bench.run()
    assert isinstance(_end(bench, "x"), Resolve)
    bench.vote("x", PENDING)
    bench.run()
    assert isinstance(_end(bench, "a"), Resolve)


# ---------------------------------------------------------------------------------------------- vote against collective


def test_a_vote_against_a_collective_fails_both_whichever_came_first() -> None:
    for vote_first in (True, False):
        bench = Bench()
        bench.together("a", "b")
        bench.peer("b").started = 0
        if vote_first:
            bench.vote("b", UPDATE)
            bench.run()
        bench.stalled("a")
        bench.run()
        if not vote_first:
            assert _view(bench, "a").epoch == 2
            bench.vote("b", UPDATE)
            bench.run()
        assert _status(bench, "b") is Status.CALL_MISMATCH
        assert _view(bench, "a").cause == Status.CALL_MISMATCH
        assert "rank 1 called update_topology while rank 0 waits" in _view(bench, "a").text


def test_a_voter_that_has_started_the_operation_is_not_to_blame() -> None:
    bench = Bench()
    bench.together("a", "b")
    bench.vote("b", PENDING)
    bench.stalled("a")
    bench.run()
    assert _view(bench, "a").epoch == 2
    assert _end(bench, "b") is None


def test_a_staller_that_votes_too_is_not_stuck() -> None:
    bench = Bench()
    bench.together("a", "b", "c")
    bench.peer("b").started = 0
    bench.stalled("a")
    bench.run()
    bench.vote("a", PENDING)
    bench.vote("b", PENDING)
    bench.run()
    assert _view(bench, "a").epoch == 2
    bench.vote("c", PENDING)
    bench.run()
    assert isinstance(_end(bench, "b"), Resolve)


def test_only_the_other_one_of_a_pair_is_asked_and_to_blame() -> None:
    bench = Bench()
    bench.together("a", "b", "c")
    bench.peer("b").started = bench.peer("c").started = 0
    bench.vote("c", UPDATE)
    bench.stalled("a", scope=scope.of_pair(0, 1))
    bench.run()
    assert _end(bench, "c") is None
    assert not [line for line in bench.lines if line.startswith("c < HasStarted")]
    bench.vote("b", UPDATE)
    bench.run()
    assert _status(bench, "b") is Status.CALL_MISMATCH
    text = "operation (tag 1, sequence 0, from rank 0 to rank 1) that needs it"
    assert any(text in line for line in bench.lines)


def test_only_members_of_a_subgroup_are_asked_and_to_blame() -> None:
    bench = Bench()
    bench.together("a", "b", "c")
    bench.peer("b").started = bench.peer("c").started = 0
    bench.vote("b", UPDATE)
    bench.stalled("a", scope=scope.OF_RANKS, subgroup=(2, 0))
    bench.run()
    assert _end(bench, "b") is None
    assert not [line for line in bench.lines if line.startswith("b < HasStarted")]
    bench.vote("c", UPDATE)
    bench.run()
    assert _status(bench, "c") is _status(bench, "b") is Status.CALL_MISMATCH
    text = "rank 2 called update_topology while rank 0 waits in operation (tag 1, sequence 0, of subgroup 80000000)"
    assert any(text in line for line in bench.lines)


def test_many_stallers_of_one_operation_ask_a_voter_once() -> None:
    bench = Bench()
    bench.together("a", "b", "c", "d")
    bench.vote("d", PENDING)
    for name in "abc":
        bench.stalled(name)
    bench.run()
    assert len([line for line in bench.lines if line.startswith("d < HasStarted")]) == 1
    bench.stalled("b", waited_ms=200)
    bench.run()
    assert len([line for line in bench.lines if line.startswith("d < HasStarted")]) == 2


def test_a_question_that_was_lost_is_asked_again_after_the_next_hello() -> None:
    bench = Bench()
    bench.together("a", "b")
    bench.peer("b").started = 0
    bench.vote("b", UPDATE)
    bench.run()
    bench.stalled("a")
    bench.master_hears()
    bench.to_peers.clear()
    bench.run()
    assert _end(bench, "b") is None
    bench.reconnect("b")
    bench.run()
    assert _status(bench, "b") is Status.CALL_MISMATCH


def test_a_stall_of_an_old_epoch_is_ignored() -> None:
    bench = Bench()
    bench.together("a", "b")
    bench.stalled("a")
    bench.frozen("a")
    bench.run()
    bench.peer("b").started = 0
    bench.vote("b", UPDATE)
    bench.run()
    assert _end(bench, "b") is None


def test_remembered_stalls_are_bounded() -> None:
    bench = Bench()
    bench.together("a", "b")
    for sequence in range(100):
        bench.stalled("a", sequence=sequence)
    bench.run()
    bench.vote("b", PENDING)
    bench.run()
    asked = [line for line in bench.lines if line.startswith("b < HasStarted")]
    assert len(asked) == 8
    assert "(1, 99)" in asked[-1]


# ---------------------------------------------------------------------------------------------- shared state


def _offer_all(bench: Bench) -> None:
    """Only `a` holds revision 5."""
    for name, content in zip("abc", "xyy", strict=True):
        bench.vote(name, SYNC, offer(5 if name == "a" else 4, content))


def test_a_synchronisation_ends_for_all_when_the_last_one_has_fetched() -> None:
    bench = Bench()
    bench.together("a", "b", "c")
    _offer_all(bench)
    bench.run()
    assert all(isinstance(_end(bench, name), Resolve) for name in "abc")


def test_a_fetcher_that_is_lost_is_not_waited_for() -> None:
    bench = Bench()
    bench.together("a", "b", "c")
    for name, content in zip("abc", "xxy", strict=True):
        bench.vote(name, SYNC, offer(4, content))
    bench.master_hears()
    bench.kill("c")
    bench.suspect("a", "c")
    bench.run()
    assert all(isinstance(_end(bench, name), Resolve) for name in "ab")


def test_a_master_that_dies_during_a_synchronisation_begins_it_anew() -> None:
    bench = Bench()
    bench.together("a", "b")
    for name, content in zip("ab", "xy", strict=True):
        bench.vote(name, SYNC, offer(4, content))
    bench.master_hears()
    bench.stop_master()
    bench.start_master()
    bench.reconnect("a")
    bench.run()
    assert _end(bench, "a") is None
    bench.reconnect("b")
    bench.run()
    assert all(isinstance(_end(bench, name), Resolve) for name in "ab")


def test_a_link_that_dies_during_a_synchronisation_is_gone_around() -> None:
    bench = Bench()
    bench.together("a", "b", "c")
    _offer_all(bench)
    bench.master_hears()
    bench.to_peers.clear()  # nobody has begun to fetch
    bench.doubt("c", "a")
    bench.run()
    bench.frozen("c", "a")
    bench.run()
    assert [line for line in bench.lines if "< StatePlan" in line][3:] == [
        "c < StatePlan call 1 sync 5 round 1",
        "b < StatePlan call 1 sync 5 donors [(StateDonor peer a)] fetch [(StateSource digest x)] relay True round 1",
        "c < StatePlan call 1 sync 5 donors [(StateDonor peer b rank 1)] fetch [(StateSource digest x)] round 2",
    ]
    assert all(isinstance(_end(bench, name), Resolve) for name in "abc")


def test_a_link_that_no_operation_needs_is_gone_around_at_its_first_break() -> None:
    """Of four in a ring, a and c are no neighbours; only a holds the newest state."""
    bench = Bench()
    bench.together("a", "b", "c", "d")
    for _ in range(2):
        bench.frozen("b", "d")
        bench.run()
    epoch = bench.peer("a").core.epoch
    for name in "abcd":
        bench.vote(name, SYNC, offer(5 if name == "a" else 4, "x" if name == "a" else "y"))
    bench.master_hears()
    bench.to_peers.clear()
    bench.suspect("a", "c")
    bench.run()
    assert bench.peer("a").core.epoch == epoch, "no operation is stopped for it"
    bench.perform(bench.peer("d"), bench.peer("d").core.reconnected(bench.now))
    bench.run()
    assert all(isinstance(_end(bench, name), Resolve) for name in "abcd")


def test_who_asks_again_is_not_measured_by_a_revision_that_nobody_was_told_of() -> None:
    """The master dies at any byte of what a synchronisation writes, and the only donor dies with it."""
    bench = Bench()
    bench.together("a", "b", "c")
    before = len(bench.disk)
    _offer_all(bench)
    bench.run()
    written, ends = bench.disk, 0
    for length in range(before, len(written) + 1):
        again = Bench(Limits(heartbeat_ms=100, heartbeat_limit_ms=500, report_limit_ms=500))
        again.together("a", "b", "c")
        _offer_all(again)
        again.stop_master()
        past, valid = journal.replay(written[:length])
        again.disk = written[:valid]
        again.start_master()
        again.kill("a")
        for name in "bc":
            again.reconnect(name)
        again.wait(1_000, step=50)
        ends += bool(past.memories)
        assert all(isinstance(_end(again, name), Resolve) for name in "bc"), f"{length} bytes were written"
    assert ends == 1, "the memory is there with the answers, or not at all"


def test_explain_names_who_is_missing_in_a_synchronisation() -> None:
    bench = Bench()
    bench.together("a", "b", "c")
    bench.vote("b", SYNC, offer(4, "x"))
    bench.run()
    assert bench.master is not None
    assert bench.master.explain() == "group 0: sync_shared_state: waiting for rank 0, rank 2"
