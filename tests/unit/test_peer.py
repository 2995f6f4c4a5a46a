# SPDX-License-Identifier: MIT
"""The peer's core alone, against a master that the test plays."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pccl.errors import Status
from pccl.messages import (
    KINDS,
    MAX_REPORT_LINES,
    MAX_TEXT_CHARACTERS,
    PROTOCOL_VERSION,
    Census,
    ExpelledNotice,
    FreezeEpoch,
    HasStarted,
    Heartbeat,
    HeartbeatReply,
    Hello,
    Leave,
    Member,
    Message,
    OperationName,
    Probe,
    ProbeReply,
    Refused,
    Register,
    Report,
    ReportLine,
    Stalled,
    Started,
    StatePlan,
    Suspect,
    View,
    Vote,
    VoteResult,
    Welcome,
    WhoAreYou,
    Withdraw,
)
from pccl.protocol.peer import PeerProtocol
from pccl.protocol.state_peer import PeerStateSync
from pccl.protocol.types import (
    CONNECT_CALL,
    Ask,
    Freeze,
    Halt,
    Install,
    Limits,
    OpenDataPlane,
    PeerOutput,
    Reconnect,
    Reject,
    Resolve,
    Tell,
    VoteKind,
)
from tests.strategies import objects

ME, OTHER = b"m" * 16, b"o" * 16
SECRET = b"s" * 16
OPERATION = OperationName(3, 1)
CENSUS = Census(2, 1, 2)
UPDATE, PENDING = VoteKind.UPDATE_TOPOLOGY, VoteKind.ARE_PEERS_PENDING


def _welcome() -> Welcome:
    return Welcome(PROTOCOL_VERSION, b"r" * 16, 1_000, 5_000)


def _result(status: int = 0, call: int = 1, epoch: int = 4, census: Census = CENSUS) -> VoteResult:
    return VoteResult(call, status, "apart" if status else "", True, b"x", epoch, census)


def _view(epoch: int = 4, previous: int = 3, **changes: Any) -> View:
    fields: dict[str, Any] = {
        "epoch": epoch,
        "previous": previous,
        "group": 0,
        "members": (Member(OTHER, "10.0.0.1", 1, 1), Member(ME, "10.0.0.2", 2, 2)),
        "ring": (0, 1),
        "admitted": (),
        "commits": (OPERATION,),
        "cause": int(Status.PEER_LOST),
        "text": "",
        "census": CENSUS,
    }
    return View(**{**fields, **changes})


def _peer() -> PeerProtocol:
    return PeerProtocol(ME, SECRET, 0, sync=PeerStateSync(), master_timeout_ms=60_000)


def _joining() -> PeerProtocol:
    peer = _peer()
    peer.connect(0)
    peer.received(_welcome(), 0)
    peer.opened("10.0.0.2", 2, 2, 4, 0)
    return peer


def _member() -> PeerProtocol:
    peer = _joining()
    peer.received(_view(admitted=(1,)), 0)
    return peer


def _told(outputs: list[PeerOutput]) -> list[Message]:
    return [it.message for it in outputs if isinstance(it, Tell)]


# ---------------------------------------------------------------------------------------------- joining


@pytest.mark.parametrize("name", ["operation_timeout", "master_timeout"])
def test_a_timeout_below_the_heartbeat_limit_is_refused_with_the_rule(name: str) -> None:
    """B97."""
    peer = PeerProtocol(ME, SECRET, 0, sync=PeerStateSync(), **{f"{name}_ms": 4_999})
    peer.connect(0)
    outputs = peer.received(_welcome(), 1)
    (rejection,) = [it for it in outputs if isinstance(it, Reject)]
    assert (rejection.call, rejection.status) == (CONNECT_CALL, Status.INVALID)
    assert rejection.text.startswith(
        f"{name} (4.999 s) must not be shorter than the heartbeat_timeout of the master (5 s)"
    )
    assert [type(it) for it in _told(outputs)] == [Leave]
    equal = PeerProtocol(ME, SECRET, 0, sync=PeerStateSync(), **{f"{name}_ms": 5_000})
    equal.connect(0)
    assert equal.received(_welcome(), 1) == [OpenDataPlane(b"r" * 16)]


def test_joining_goes_step_by_step() -> None:
    peer = _peer()
    assert peer.connect(0) == [Tell(Hello(PROTOCOL_VERSION, SECRET, 0, 0))]
    assert "waiting for the master" in peer.explain()
    assert peer.received(_welcome(), 1) == [OpenDataPlane(b"r" * 16)]
    assert "call update_topology" in peer.explain()
    assert peer.opened("10.0.0.2", 2, 2, 4, 2) == [Tell(Register("10.0.0.2", 2, 2, 4))]
    view = _view(admitted=(1,))
    assert peer.received(view, 3) == [Install(view, 1, ()), Resolve(CONNECT_CALL, epoch=4)]
    assert (peer.rank, peer.epoch, peer.view, peer.census) == (1, 4, view, view.census)
    assert peer.explain() == ""


def test_before_its_welcome_a_newcomer_does_not_hear_what_is_meant_for_a_former_life_under_its_id() -> None:
    peer = _peer()
    peer.connect(0)
    answer = VoteResult(1, Status.OK, "", False, b"", 4, Census(2, 1, 2))
    former = [_view(), FreezeEpoch(4), answer, HasStarted(4, OPERATION), Probe(7), ExpelledNotice("rank 1 was lost")]
    assert [peer.received(it, 1) for it in former] == [[]] * len(former)
    assert (peer.epoch, peer.halted) == (0, False)
    assert peer.received(_welcome(), 2) == [OpenDataPlane(b"r" * 16)]
    peer.opened("10.0.0.2", 2, 2, 4, 2)
    peer.reconnected(3)
    assert _told(peer.received(Probe(7), 3)) == [ProbeReply(7)]
    assert peer.received(_view(admitted=(1,)), 4)
    assert peer.epoch == 4
    fresh = _peer()
    fresh.connect(0)
    assert isinstance(fresh.received(Leave(""), 1)[-2], Halt)


def test_a_second_welcome_opens_no_second_data_plane() -> None:
    peer = _peer()
    peer.connect(0)
    assert peer.received(_welcome(), 0) == [OpenDataPlane(b"r" * 16)]
    assert peer.received(_welcome(), 0) == []
    peer.opened("10.0.0.2", 2, 2, 4, 0)
    assert peer.received(_welcome(), 0) == [Tell(Register("10.0.0.2", 2, 2, 4))]


def test_another_run_at_the_same_address_is_not_joined_with_the_old_runs_data_plane() -> None:
    peer = _joining()
    outputs = peer.received(dataclasses.replace(_welcome(), run_secret=b"z" * 16), 0)
    assert isinstance(outputs[0], Halt)
    assert outputs[0].status is Status.MASTER_LOST
    assert "another run" in outputs[0].text


@pytest.mark.parametrize(
    ("refusal", "status"),
    [
        (Refused(PROTOCOL_VERSION, Status.INVALID, "taken"), Status.INVALID),
        (Refused(PROTOCOL_VERSION + 1, Status.PROTOCOL, "versions"), Status.VERSION),
        (Refused(PROTOCOL_VERSION, 999, "strange"), Status.PROTOCOL),
    ],
)
def test_a_refusal_ends_joining_with_its_reason(refusal: Refused, status: Status) -> None:
    peer = _peer()
    peer.connect(0)
    halt, reject = peer.received(refusal, 0)
    assert isinstance(halt, Halt)
    assert halt.status is status
    assert isinstance(reject, Reject)
    assert (reject.call, reject.status) == (CONNECT_CALL, status)
    assert refusal.text in reject.text
    assert peer.halted


def test_a_newcomer_that_hears_of_a_view_it_missed_waits_for_it() -> None:
    peer = _joining()
    assert peer.received(FreezeEpoch(4), 0) == []
    assert peer.received(HasStarted(4, OPERATION), 0) == [Tell(Started(4, OPERATION, 2))]


# ---------------------------------------------------------------------------------------------- views


def test_a_view_brings_verdicts_and_forgets_what_belonged_to_the_old_epoch() -> None:
    peer = _member()
    peer.engine_frozen(4, OTHER, int(Status.PEER_LOST), "reset", (), 0)
    peer.engine_suspect(4, OTHER, int(Status.PEER_LOST), "reset", 0)
    peer.engine_stalled(4, OPERATION, 100, (0,), 0)
    view = _view(5, 4)
    assert peer.received(view, 1) == [Install(view, 1, (OPERATION,))]
    assert _told(peer.received(_welcome(), 2)) == [Register("10.0.0.2", 2, 2, 4)]


def test_a_suspicion_is_told_again_only_if_it_has_become_graver() -> None:
    peer = _member()
    reasons = [Status.TIMEOUT, Status.ABORTED, Status.PEER_LOST, Status.TIMEOUT, Status.PEER_DIED, Status.PEER_LOST]
    told = [bool(_told(peer.engine_suspect(4, OTHER, int(it), it.name, 0))) for it in reasons]
    assert told == [True, False, True, False, True, False]
    (again,) = [it for it in _told(peer.received(_welcome(), 1)) if isinstance(it, Suspect)]
    assert again.reason == Status.PEER_DIED


def test_a_view_that_comes_twice_is_installed_once() -> None:
    peer = _member()
    assert peer.received(_view(admitted=(1,)), 1) == []
    assert peer.received(_view(3, 2), 1) == []


@pytest.mark.parametrize(
    "view",
    [
        _view(6, 5),
        _view(5, 4, members=(Member(OTHER, "10.0.0.1", 1, 1),), ring=(0,)),
        _view(5, 4, ring=(0, 0)),
        _view(5, 4, admitted=(1,)),
    ],
)
def test_a_view_that_cannot_follow_is_the_masters_fault(view: View) -> None:
    peer = _member()
    outputs = peer.received(view, 1)
    assert isinstance(_told(outputs)[0], Leave)
    halt = next(it for it in outputs if isinstance(it, Halt))
    assert halt.status is Status.PROTOCOL


def test_a_first_view_without_admission_is_the_masters_fault() -> None:
    assert any(isinstance(it, Halt) for it in _joining().received(_view(), 1))


def test_a_view_that_cannot_be_installed_ends_the_peer() -> None:
    peer = _member()
    outputs = peer.install_failed(4, "no memory", 1)
    assert isinstance(_told(outputs)[0], Leave)
    assert peer.halted
    assert peer.install_failed(4, "no memory", 1) == []


# ---------------------------------------------------------------------------------------------- the engine


def test_a_freeze_is_answered_with_a_report_once_and_repeated_on_demand() -> None:
    peer = _member()
    assert peer.received(FreezeEpoch(4), 0) == [Freeze(4)]
    lines = (ReportLine(1, 0, 0, 2),)
    report = Report(4, b"", 0, "", lines)
    assert peer.engine_frozen(4, b"", 0, "", lines, 0) == [Tell(report)]
    assert peer.engine_frozen(4, b"", 0, "", (), 0) == []
    assert peer.received(FreezeEpoch(4), 0) == [Tell(report)]
    assert peer.received(FreezeEpoch(3), 0) == []
    assert "waiting for the master's verdict" in peer.explain()


def test_events_of_other_epochs_are_not_passed_on() -> None:
    peer = _member()
    assert peer.engine_frozen(3, b"", 0, "", (), 0) == []
    assert peer.engine_suspect(3, OTHER, 0, "", 0) == []
    assert peer.engine_stalled(3, OPERATION, 100, (), 0) == []


def test_a_report_that_is_too_long_ends_the_peer_instead_of_the_master() -> None:
    peer = _member()
    lines = [ReportLine(1, 0, 0, 1)] * (MAX_REPORT_LINES + 1)
    outputs = peer.engine_frozen(4, b"", 0, "", lines, 0)
    assert isinstance(_told(outputs)[0], Leave)


def test_long_texts_are_cut_to_what_a_message_holds() -> None:
    peer = _member()
    (suspect,) = _told(peer.engine_suspect(4, OTHER, 5, "x" * 5_000, 0))
    assert len(suspect.text) == MAX_TEXT_CHARACTERS


@pytest.mark.parametrize(("answer", "told"), [(1, 1), (0, 0), (-1, 2)])
def test_the_masters_question_reaches_the_engine(answer: int, told: int) -> None:
    peer = _member()
    assert peer.received(HasStarted(4, OPERATION), 0) == [Ask(4, OPERATION)]
    assert peer.started_answer(4, OPERATION, answer, 0) == [Tell(Started(4, OPERATION, told))]
    assert peer.received(HasStarted(9, OPERATION), 0) == [Tell(Started(9, OPERATION, 2))]


def test_stalls_are_bounded_and_the_newest_are_kept() -> None:
    peer = _member()
    for sequence in range(20):
        peer.engine_stalled(4, OperationName(1, sequence), 100, range(30), 0)
    kept = [it for it in _told(peer.received(_welcome(), 0)) if isinstance(it, Stalled)]
    assert [it.operation.sequence for it in kept] == list(range(12, 20))
    assert len(kept[0].ranks) == 8
    assert "operation (tag 1, sequence 19) waited 100 ms for rank 0, 1" in peer.explain()


# ---------------------------------------------------------------------------------------------- votes


def test_a_vote_ends_with_its_result() -> None:
    peer = _member()
    assert peer.vote(PENDING, 1, b"", 0, 0) == [Tell(Vote(1, PENDING, b""))]
    assert "are_peers_pending: waiting" in peer.explain()
    assert peer.received(_result(call=9), 0) == []
    assert peer.received(_result(), 0) == [Resolve(1, True, b"x", 4)]
    assert peer.received(_result(), 0) == []


@pytest.mark.parametrize(("status", "raised"), [(Status.CALL_MISMATCH, Status.CALL_MISMATCH), (999, Status.PROTOCOL)])
def test_a_vote_that_fails_is_rejected(status: int, raised: Status) -> None:
    peer = _member()
    peer.vote(UPDATE, 1, b"", 0, 0)
    (reject,) = peer.received(_result(status), 0)
    assert isinstance(reject, Reject)
    assert (reject.call, reject.status) == (1, raised)


def test_own_operations_in_flight_refuse_a_joint_call_but_not_the_question() -> None:
    peer = _member()
    (reject,) = peer.vote(UPDATE, 1, b"", 2, 0)
    assert isinstance(reject, Reject)
    assert reject.status is Status.PENDING_OPERATIONS
    assert _told(peer.vote(PENDING, 2, b"", 2, 0)) == [Vote(2, PENDING, b"")]


def test_two_joint_calls_at_a_time_are_refused_here() -> None:
    peer = _member()
    peer.vote(UPDATE, 1, b"", 0, 0)
    (reject,) = peer.vote(PENDING, 2, b"", 0, 0)
    assert isinstance(reject, Reject)
    assert reject.status is Status.INVALID
    assert "update_topology" in reject.text


def test_a_joint_call_before_acceptance_or_after_the_end_is_refused() -> None:
    for peer in (_peer(), _joining()):
        (reject,) = peer.vote(UPDATE, 1, b"", 0, 0)
        assert isinstance(reject, Reject)
        assert reject.status is Status.CLOSED
    ended = _member()
    ended.leave("", 0)
    (reject,) = ended.vote(UPDATE, 1, b"", 0, 0)
    assert isinstance(reject, Reject)


# ---------------------------------------------------------------------------------------------- connection and clock


def test_everything_without_an_answer_is_said_again_after_a_welcome() -> None:
    peer = _member()
    vote = _told(peer.vote(PENDING, 1, b"", 1, 0))
    report = _told(peer.engine_frozen(4, OTHER, 5, "reset", (), 0))
    suspect = _told(peer.engine_suspect(4, OTHER, 5, "reset", 0))
    stalled = _told(peer.engine_stalled(4, OPERATION, 100, (0,), 0))
    assert peer.disconnected(1)
    assert peer.disconnected(1) == []
    assert "waiting for the master to come back" in peer.explain()
    assert peer.reconnected(2) == [Tell(Hello(PROTOCOL_VERSION, SECRET, 0, 4))]
    assert _told(peer.received(_welcome(), 3)) == [Register("10.0.0.2", 2, 2, 4), *suspect, *report, *vote, *stalled]
    assert isinstance(suspect[0], Suspect)


def test_who_are_you_is_answered_with_a_hello() -> None:
    assert _member().received(WhoAreYou(), 0) == [Tell(Hello(PROTOCOL_VERSION, SECRET, 0, 4))]


def test_a_probe_is_answered_with_its_nonce() -> None:
    assert _joining().received(Probe(77), 0) == [Tell(ProbeReply(77))]


def test_the_census_is_that_of_the_last_joint_call_that_ended_well_or_of_the_epoch() -> None:
    peer = _member()
    peer.received(_welcome(), 0)
    peer.vote(UPDATE, 1, b"", 0, 0)
    peer.received(_result(Status.TIMEOUT, census=Census(7, 3, 4)), 0)
    assert peer.census == Census(2, 1, 2), "others have not learnt it"
    peer.vote(UPDATE, 2, b"", 0, 0)
    peer.received(_result(call=2, census=Census(9, 3, 4)), 0)
    assert peer.census == Census(9, 3, 4)
    peer.vote(UPDATE, 3, b"", 0, 0)
    peer.received(_view(5, 4, census=Census(8, 3, 3)), 0)
    assert peer.received(_result(call=3, census=Census(9, 3, 4)), 0) == [Resolve(3, True, b"x", 4)]
    assert peer.census == Census(8, 3, 3), "an answer that is told again is older than the view behind it"
    peer.vote(UPDATE, 4, b"", 0, 0)
    peer.abandon(4, 0)
    peer.received(_result(call=4, epoch=5, census=Census(9, 3, 4)), 0)
    assert peer.census == Census(8, 3, 3), "nobody has heard that answer"


def test_an_answer_whose_view_is_missing_is_asked_for_again_with_the_view() -> None:
    peer = _member()
    peer.vote(UPDATE, 1, b"", 0, 0)
    assert peer.received(_result(epoch=5), 0) == [Tell(Hello(PROTOCOL_VERSION, SECRET, 0, 4))]
    assert Vote(1, UPDATE, b"") in _told(peer.received(_welcome(), 0))
    peer.received(_view(5, 4), 0)
    assert peer.received(_result(epoch=5), 0) == [Resolve(1, True, b"x", 5)]


def _beats(peer: PeerProtocol, until: int, answer: bool) -> list[PeerOutput]:
    """Runs the timer to `until`; the master answers heartbeats or not."""
    outputs: list[PeerOutput] = []
    while (deadline := peer.deadline()) is not None and deadline <= until:
        now = deadline
        made = peer.timed_out(now)
        outputs += made
        if answer and any(isinstance(it, Heartbeat) for it in _told(made)):
            peer.received(HeartbeatReply(), now)
    return outputs


def test_heartbeats_go_out_once_a_second_with_the_epoch() -> None:
    peer = _member()
    assert _told(_beats(peer, 10_000, answer=True)) == [Heartbeat(4)] * 10


def test_a_silent_master_is_dialled_again_and_finally_given_up() -> None:
    peer = _member()
    peer.master = "the master at 10.0.0.1:48148"
    peer.vote(PENDING, 7, b"", 0, 0)
    outputs = _beats(peer, 100_000, answer=False)
    assert sum(isinstance(it, Reconnect) for it in outputs) == 23
    halt = next(it for it in outputs if isinstance(it, Halt))
    assert halt.status is Status.MASTER_LOST
    reject = outputs[-1]
    assert isinstance(reject, Reject)
    assert (reject.call, reject.status) == (7, Status.MASTER_LOST)
    assert reject.text == halt.text == "the master at 10.0.0.1:48148 has been silent for 60000 ms (master_timeout)"
    assert peer.deadline() is None


def test_a_mute_connection_is_dialled_afresh_before_the_master_gives_this_peer_up() -> None:
    peer = _member()
    limits = Limits()
    outputs = _beats(peer, limits.heartbeat_limit_ms - 2 * limits.heartbeat_ms, answer=False)
    assert sum(isinstance(it, Reconnect) for it in outputs) == 1


def test_connecting_to_nobody_ends_at_the_timeout() -> None:
    peer = _peer()
    peer.connect(0)
    peer.disconnected(10)
    outputs = _beats(peer, 100_000, answer=False)
    assert [type(it) for it in outputs] == [Halt, Reject]
    assert not any(isinstance(it, Heartbeat) for it in _told(outputs))


def test_a_process_that_was_stopped_gives_the_master_time_to_be_heard() -> None:
    peer = _member()
    outputs = peer.timed_out(500_000)
    assert not any(isinstance(it, Halt | Reconnect) for it in outputs)
    outputs = _beats(peer, 505_000, answer=False)
    assert any(isinstance(it, Reconnect) for it in outputs)
    assert not peer.halted


# ---------------------------------------------------------------------------------------------- ends


def test_an_expelled_peer_ends_all_its_calls() -> None:
    peer = _member()
    peer.vote(VoteKind.SYNC_SHARED_STATE, 3, b"", 0, 0)
    halt, reject = peer.received(ExpelledNotice("silent"), 0)
    assert halt == Halt(Status.EXPELLED, "this peer was removed from the run: silent")
    assert isinstance(reject, Reject)
    assert (reject.call, reject.status) == (3, Status.EXPELLED)


def test_a_newcomer_is_not_expelled_for_an_earlier_life() -> None:
    """B45: the router may hear it under its id already when the master tells the earlier life that it is lost."""
    peer = _joining()
    assert peer.received(ExpelledNotice("rank 1 was lost"), 0) == [Tell(Hello(PROTOCOL_VERSION, SECRET, 0, 0))]
    assert peer.received(_welcome(), 0) == [Tell(Register("10.0.0.2", 2, 2, 4))]
    peer.received(_view(admitted=(1,)), 0)
    assert (peer.halted, peer.epoch) == (False, 4)


def test_a_call_after_the_end_says_why_it_ended() -> None:
    """Its user may not have met the reason yet: who was stopped for long finds out by its next joint call."""
    peer = _member()
    peer.received(ExpelledNotice("silent"), 0)
    (reject,) = peer.vote(PENDING, 3, b"", 0, 0)
    assert reject == Reject(3, Status.EXPELLED, "are_peers_pending: this peer was removed from the run: silent")


def test_leaving_says_goodbye_and_ends_all() -> None:
    peer = _member()
    peer.vote(PENDING, 3, b"", 0, 0)
    leave, halt, reject = peer.leave("done", 0)
    assert leave == Tell(Leave("done"))
    assert halt == Halt(Status.CLOSED, "done")
    assert isinstance(reject, Reject)
    assert peer.leave("done", 0) == []


def test_a_plan_for_a_vote_that_is_no_synchronisation_does_not_make_it_wait_for_ever() -> None:
    peer = _member()
    peer.vote(PENDING, 3, b"", 0, 0)
    assert peer.received(StatePlan(3, 9, False, (), ()), 1) == []
    peer.received(HeartbeatReply(), 300_000)
    assert Withdraw(3, PENDING, abandoned=False) in _told(peer.timed_out(300_000))


def test_leaving_tells_the_caller_that_waits_behind_an_abandoned_call() -> None:
    peer = _member()
    peer.vote(VoteKind.SYNC_SHARED_STATE, 3, b"", 0, 0)
    assert _told(peer.abandon(3, 0)) == [Withdraw(3, VoteKind.SYNC_SHARED_STATE, abandoned=True)]
    assert peer.vote(PENDING, 4, b"", 0, 0) == []
    assert [it.call for it in peer.leave("done", 0) if isinstance(it, Reject)] == [4]


def test_leaving_before_connecting_says_nothing() -> None:
    assert _peer().leave("", 0) == [Halt(Status.CLOSED, "")]


@pytest.mark.parametrize("message", [_result(), Hello(1, SECRET, 0, 0)])
def test_what_the_master_may_not_say_ends_the_peer(message: Message) -> None:
    peer = _joining()
    outputs = peer.received(message, 0)
    halt = next(it for it in outputs if isinstance(it, Halt))
    assert halt.status is Status.PROTOCOL
    assert type(message).__name__ in halt.text


def test_bytes_that_are_no_message_and_a_foreign_welcome_end_the_peer() -> None:
    assert any(isinstance(it, Halt) for it in _member().malformed("not a message", 0))
    foreign = Welcome(PROTOCOL_VERSION + 1, b"r" * 16, 1_000, 5_000)
    assert any(isinstance(it, Halt) for it in _joining().received(foreign, 0))


def test_nothing_moves_after_the_end() -> None:
    peer = _member()
    peer.leave("", 0)
    assert peer.received(_view(5, 4), 1) == []
    assert peer.malformed("", 1) == []
    assert peer.disconnected(1) == []
    assert peer.reconnected(1) == []
    assert peer.timed_out(100_000) == []
    assert peer.engine_frozen(4, b"", 0, "", (), 1) == []
    assert peer.engine_suspect(4, OTHER, 0, "", 1) == []
    assert peer.engine_stalled(4, OPERATION, 1, (), 1) == []
    assert peer.started_answer(4, OPERATION, 1, 1) == []
    assert peer.state_event(object(), 1) == []
    assert peer.abandon(1, 1) == []
    assert peer.opened("10.0.0.2", 2, 2, 4, 1) == []
    assert peer.explain() == ""


MASTER_TALKS = st.lists(st.one_of([objects(cls) for kind, cls in KINDS.items() if kind >= 64]), max_size=12)


@given(MASTER_TALKS)
def test_no_talk_of_a_master_breaks_the_peer(talk: list[Message]) -> None:
    for peer in (_joining(), _member()):
        peer.vote(PENDING, 1, b"", 0, 0)
        peer.abandon(len(talk) % 2, 0)
        peer.vote(PENDING, 2, b"", 0, 0)
        for now, message in enumerate(talk):
            outputs = peer.received(message, now)
            if peer.halted:
                assert any(isinstance(it, Halt) for it in outputs)
                break
        assert peer.deadline() is not None or peer.halted


def test_a_master_that_has_ended_is_not_waited_for() -> None:
    peer = _member()
    peer.master = "the master at 10.0.0.1:48148"
    peer.vote(PENDING, 7, b"", 0, 0)
    peer.disconnected(10)
    halt, reject = peer.master_ended(20)
    assert isinstance(halt, Halt)
    assert isinstance(reject, Reject)
    assert (halt.status, halt.text) == (Status.MASTER_LOST, "the master at 10.0.0.1:48148 has ended")
    assert (reject.call, reject.status) == (7, Status.MASTER_LOST)
    assert peer.master_ended(30) == []
