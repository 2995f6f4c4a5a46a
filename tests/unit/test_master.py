# SPDX-License-Identifier: MIT
"""The master's events: how peers come, come back, are refused, fall silent and go."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pccl.errors import Status
from pccl.messages import (
    KINDS,
    PROTOCOL_VERSION,
    Census,
    ExpelledNotice,
    FreezeEpoch,
    Heartbeat,
    HeartbeatReply,
    Hello,
    Leave,
    OperationName,
    OtherVersion,
    ProbeReply,
    Refused,
    Register,
    Report,
    StatusRequest,
    Suspect,
    View,
    Vote,
    Welcome,
    WhoAreYou,
)
from pccl.protocol import journal, master
from pccl.protocol.types import Append, Drop, Event, Halt, Limits, MasterOutput, Notify, Reject, Resolve, Send, VoteKind
from tests.cores import Bench, identity
from tests.strategies import objects

UPDATE = VoteKind.UPDATE_TOPOLOGY


def _sent(outputs: list[MasterOutput], name: str) -> list[object]:
    return [it.message for it in outputs if isinstance(it, Send) and it.peer == identity(name)]


def _hello(name: str, *, secret: str = "", group: int = 0, epoch: int = 0) -> Hello:
    return Hello(PROTOCOL_VERSION, identity(secret or name.upper()), group, epoch)


def _halted(bench: Bench, name: str) -> Halt | None:
    return next((it for it in bench.peer(name).outputs if isinstance(it, Halt)), None)


def _members(bench: Bench, name: str) -> str:
    view = bench.peer(name).core.view
    return "".join(chr(member.id[0]) for member in view.members) if view else ""


# ---------------------------------------------------------------------------------------------- joining


def test_the_first_peer_is_accepted_at_once_and_the_next_ones_wait() -> None:
    bench = Bench()
    bench.together("a")
    bench.join("b")
    bench.join("c", group=5)
    bench.run()
    assert _members(bench, "a") == "a"
    assert bench.peer("b").core.view is None
    assert bench.master is not None
    assert bench.master.pending_count == 2
    assert bench.master.census.peers == 1


def test_pending_peers_are_accepted_at_once_when_nobody_is_left() -> None:
    bench = Bench()
    bench.together("a")
    bench.join("b")
    bench.join("c")
    bench.run()
    bench.perform(bench.peer("a"), bench.peer("a").core.leave("", bench.now))
    bench.run()
    assert _members(bench, "b") == _members(bench, "c") == "bc"


def test_the_death_of_a_pending_peer_disturbs_nobody() -> None:
    bench = Bench()
    bench.together("a", "b")
    bench.join("c")
    bench.run()
    epoch = bench.peer("a").core.epoch
    bench.kill("c")
    bench.wait(6_000)
    assert bench.peer("a").core.epoch == epoch
    assert bench.master is not None
    assert bench.master.pending_count == 0


def test_a_hello_said_twice_is_answered_twice_and_means_one_peer() -> None:
    bench = Bench()
    for _ in range(2):
        assert isinstance(_sent(bench.say("a", _hello("a")), "a")[0], Welcome)
    bench.say("a", Register("10.0.0.1", 1, 1))
    assert bench.master is not None
    assert bench.master.census.peers == 1


def test_a_second_process_with_the_same_id_is_refused() -> None:
    bench = Bench()
    bench.together("a")
    refused = _sent(bench.say("a", _hello("a", secret="z")), "a")
    assert refused == [Refused(PROTOCOL_VERSION, Status.INVALID, f"peer id {identity('a').hex()} is taken")]
    assert bench.master is not None
    assert bench.master.census.peers == 1


def test_who_comes_under_the_id_of_a_dead_member_is_no_sign_of_its_life() -> None:
    bench = Bench()
    bench.together("a", "b")
    bench.kill("b")
    for _ in range(4):  # the next life of the process tries again and again
        bench.wait(1_500)
        bench.say("b", _hello("b", secret="z"))
        bench.say("b", Leave(""))
    assert _members(bench, "a") == "a"


def test_a_refusal_names_both_versions() -> None:
    bench = Bench()
    refused = _sent(bench.say("a", OtherVersion(7)), "a")[0]
    assert isinstance(refused, Refused)
    assert refused.reason == Status.VERSION
    assert f"version {PROTOCOL_VERSION}" in refused.text
    assert "version 7" in refused.text


def test_a_full_run_refuses_newcomers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(master, "MAX_MEMBERS", 2)
    bench = Bench()
    bench.together("a", "b")
    assert isinstance(_sent(bench.say("c", _hello("c")), "c")[0], Refused)
    assert _members(bench, "a") == "ab"


# ---------------------------------------------------------------------------------------------- protocol errors


def test_bytes_that_are_no_message_cost_an_accepted_peer_its_place() -> None:
    bench = Bench()
    bench.together("a", "b")
    assert bench.master is not None
    bench.do(bench.master.malformed(identity("b"), "not a message", bench.now))
    bench.run()
    assert _members(bench, "a") == "a"
    halt = _halted(bench, "b")
    assert halt is not None
    assert halt.status is Status.EXPELLED
    assert "not a message" in halt.text


def test_a_stranger_with_garbage_is_turned_away_without_harm() -> None:
    bench = Bench()
    bench.together("a")
    assert bench.master is not None
    outputs = bench.master.malformed(identity("x"), "not a message", bench.now)
    assert isinstance(_sent(outputs, "x")[0], Refused)
    assert bench.master.census.peers == 1


@pytest.mark.parametrize(
    "message",
    [
        Vote(1, UPDATE, b""),
        Report(1, b"", 0, "", ()),
        Welcome(1, bytes(16), 1, 2),
    ],
)
def test_what_a_pending_peer_may_not_say_ends_its_joining(message: object) -> None:
    bench = Bench()
    bench.together("a")
    bench.say("b", _hello("b"))
    bench.say("b", Register("10.0.0.1", 1, 1))
    outputs = bench.say("b", message)
    assert isinstance(_sent(outputs, "b")[0], Refused)
    assert bench.master is not None
    assert bench.master.pending_count == 0


def test_who_was_removed_while_its_hello_was_under_way_is_told_so() -> None:
    """Before its first view a Hello tells no epoch, so that of a member that is gone looks like a newcomer's."""
    bench = Bench()
    bench.together("a")
    bench.say("b", _hello("b"))
    outputs = bench.say("b", Vote(1, UPDATE, b""))
    assert [type(it) for it in _sent(outputs, "b")] == [ExpelledNotice]
    assert not any(isinstance(it, Notify) and it.event is Event.REFUSED for it in outputs)
    assert Drop(identity("b")) in outputs
    assert _sent(bench.say("b", Heartbeat(0)), "b") == [WhoAreYou()]


@pytest.mark.parametrize(
    "message",
    [
        Report(99, b"", 0, "", ()),
        Suspect(99, identity("a"), 0, ""),
        Register("10.9.9.9", 1, 1),
        Register("10.0.0.1", 1000 + ord("b"), 1, 3),
        View(1, 0, 0, (), (), (), (), 0, "", Census(0, 0, 0)),
    ],
)
def test_what_cannot_be_true_costs_a_member_its_place(message: object) -> None:
    bench = Bench()
    bench.together("a", "b")
    outputs = bench.say("b", message)
    assert any(isinstance(it, ExpelledNotice) for it in _sent(outputs, "b"))
    bench.run()
    assert _members(bench, "a") == "a"


def test_two_votes_at_a_time_are_a_protocol_error() -> None:
    bench = Bench()
    bench.together("a", "b")
    bench.say("b", Vote(1, UPDATE, b""))
    outputs = bench.say("b", Vote(2, UPDATE, b""))
    assert any(isinstance(it, ExpelledNotice) for it in _sent(outputs, "b"))


@pytest.mark.parametrize("wrong", [{"epoch": 77}, {"group": 3}])
def test_a_hello_that_contradicts_the_journal_costs_the_place(wrong: dict[str, Any]) -> None:
    bench = Bench()
    bench.together("a", "b")
    hello = dataclasses.replace(_hello("b", epoch=bench.peer("b").core.epoch), **wrong)
    outputs = bench.say("b", hello)
    assert any(isinstance(it, ExpelledNotice) for it in _sent(outputs, "b"))


@pytest.mark.parametrize(
    ("address", "port"),
    [("peer-7.example.org", 1), ("10.0.0.1.5", 1), ("10.0.0.1", 0), ("0.0.0.0", 1), ("::", 1), ("fe80::1%eth0", 1)],
)
def test_an_address_that_no_member_could_dial_never_gets_into_a_view(address: str, port: int) -> None:
    bench = Bench()
    bench.together("a")
    bench.say("b", _hello("b"))
    outputs = bench.say("b", Register(address, port, 1))
    assert isinstance(_sent(outputs, "b")[0], Refused)
    assert bench.master is not None
    assert bench.master.pending_count == 0


def test_an_id_of_another_length_is_refused() -> None:
    bench = Bench()
    assert bench.master is not None
    outputs = bench.master.received(b"short", _hello("a"), 0)
    assert isinstance(outputs[0], Send)
    assert isinstance(outputs[0].message, Refused)


LIKELY: dict[str, st.SearchStrategy[Any]] = {
    "version": st.just(PROTOCOL_VERSION),
    "epoch": st.integers(0, 4),
    "call": st.integers(1, 3),
    "suspect": st.sampled_from([b"", identity("a"), identity("b")]),
    "peer": st.sampled_from([identity(name) for name in "abcx"]),
    "group": st.integers(0, 1),
    "operation": st.builds(OperationName, st.integers(0, 1), st.integers(0, 1)),
    "nonce": st.integers(1, 9).map(lambda it: it | 1),
}


@st.composite
def talk(draw: st.DrawFn) -> list[tuple[str, Any]]:
    """Peers say anything, mostly with values that could be right."""
    said: list[tuple[str, Any]] = []
    for _ in range(draw(st.integers(1, 12))):
        name = draw(st.sampled_from("abcx"))
        made = draw(st.sampled_from([objects(cls) for kind, cls in KINDS.items() if kind < 64]).flatmap(lambda it: it))
        fields = [field.name for field in dataclasses.fields(made)]
        likely = {field: draw(LIKELY[field]) for field in fields if field in LIKELY and draw(st.integers(0, 9))}
        if "secret" in fields:
            likely["secret"] = identity(name.upper())
        said.append((name, dataclasses.replace(made, **likely)))
    return said


@settings(max_examples=settings.default.max_examples // 2)
@given(talk())
def test_no_talk_of_peers_breaks_the_master(said: list[tuple[str, Any]]) -> None:
    bench = Bench()
    bench.together("a", "b", "c")
    for name, message in said:
        bench.say(name, message)
        bench.run()
        bench.wait(10)
    assert bench.master is not None
    views = journal.replay(bench.disk)[0].views
    assert bench.master.census.peers == sum(len(view.members) for view in views.values())
    bench.wait(6_500, step=250)
    assert "is frozen" not in bench.master.explain()


# ---------------------------------------------------------------------------------------------- silence and departure


def test_a_stranger_is_asked_who_it_is_before_anything_else() -> None:
    bench = Bench()
    assert _sent(bench.say("a", Heartbeat(3)), "a") == [WhoAreYou()]
    outputs = bench.say("a", _hello("a", epoch=3))
    assert isinstance(_sent(outputs, "a")[0], ExpelledNotice)


def test_a_member_that_lost_its_connection_is_asked_for_a_new_hello() -> None:
    bench = Bench()
    bench.together("a", "b")
    assert bench.master is not None
    bench.do(bench.master.disconnected(identity("b"), bench.now))
    assert _sent(bench.say("b", Heartbeat(2)), "b") == [WhoAreYou()]
    bench.run()
    assert _members(bench, "a") == "ab"
    assert isinstance(_sent(bench.say("b", Heartbeat(2)), "b")[0], HeartbeatReply)


def test_unreachable_without_suspicion_gets_the_heartbeat_limit() -> None:
    bench = Bench()
    bench.together("a", "b")
    bench.kill("b")
    assert bench.master is not None
    bench.do(bench.master.disconnected(identity("b"), bench.now))
    bench.wait(4_000)
    assert _members(bench, "a") == "ab"
    bench.wait(1_500)
    assert _members(bench, "a") == "a"


def test_unreachable_and_suspected_is_lost_at_once() -> None:
    bench = Bench()
    bench.together("a", "b", "c")
    bench.kill("c")
    bench.frozen("a", "c")
    bench.run()
    assert _members(bench, "a") == _members(bench, "b") == "ab"
    assert bench.now == 0


def test_two_that_die_at_once_are_both_lost_at_once() -> None:
    """The engine tells of the second one although the first one has frozen the epoch."""
    bench = Bench()
    bench.together("a", "b", "c", "d")
    bench.kill("c")
    bench.kill("d")
    bench.frozen("a", "c")
    bench.frozen("b", "c")
    bench.run()
    assert _members(bench, "a") == "abcd", "the master waits for a report of d"
    bench.suspect("a", "d", reason=Status.ABORTED)
    bench.run()
    assert _members(bench, "a") == _members(bench, "b") == "ab"
    assert bench.now == 0


def test_a_suspect_that_the_router_still_believes_in_is_probed_until_it_is_gone() -> None:
    bench = Bench()
    bench.together("a", "b")
    bench.peer("b").deaf = True
    bench.lines.clear()
    bench.suspect("a", "b")
    bench.run()
    bench.wait(60, beat=False)
    probes = [line for line in bench.lines if line.startswith("b < Probe")]
    assert len(probes) == 4
    assert len(set(probes)) == 1
    bench.peer("b").reachable = False
    bench.wait(20, beat=False)
    assert _members(bench, "a") == "a"


def test_an_answer_to_an_older_probe_clears_nobody() -> None:
    bench = Bench()
    bench.together("a", "b", "c")
    bench.peer("c").deaf = True
    bench.suspect("a", "c")
    bench.master_hears()
    first = _newest_probe(bench)
    bench.suspect("b", "c")
    bench.master_hears()
    second = _newest_probe(bench)
    assert first != second
    bench.run()
    bench.say("c", ProbeReply(first))
    assert not any(isinstance(it, Notify) and it.event is Event.LINK for it in bench.say("c", ProbeReply(first)))
    outputs = bench.say("c", ProbeReply(second))
    assert sum(isinstance(it, Notify) and it.event is Event.LINK for it in outputs) == 2


def test_the_last_words_of_a_dead_peer_do_not_let_it_into_the_next_epoch() -> None:
    bench = Bench()
    bench.together("a", "b", "c")
    bench.frozen("a", "c")
    bench.master_hears()
    first = _newest_probe(bench)
    bench.say("c", Report(bench.peer("c").core.epoch, b"", 0, "", ()))
    bench.peer("c").deaf = True  # dead, and its answer still under way
    bench.frozen("b", "c")
    bench.master_hears()
    bench.say("c", ProbeReply(first))
    bench.run()
    assert _members(bench, "a") == _members(bench, "b") == "abc"
    assert bench.peer("a").core.epoch == 2
    bench.wait(Limits().heartbeat_limit_ms + 500)
    assert _members(bench, "a") == _members(bench, "b") == "ab"
    assert bench.peer("a").core.epoch == 3


def _newest_probe(bench: Bench) -> int:
    line = next(it for it in reversed(bench.lines) if it.startswith("c < Probe"))
    return int(line.split()[-1])


def test_a_closed_connection_has_the_silent_ones_probed_after_a_heartbeat() -> None:
    bench = Bench()
    bench.together("a", "b")
    bench.peer("b").deaf = True
    assert bench.master is not None
    bench.wait(100)
    assert bench.master.connection_closed(bench.now) == []
    bench.wait(1_100)
    assert any(line.startswith("b < Probe") for line in bench.lines)
    assert not any(line.startswith("a < Probe") for line in bench.lines)


def test_a_master_that_was_stopped_itself_expels_nobody() -> None:
    bench = Bench()
    bench.together("a", "b")
    assert bench.master is not None
    bench.now += 60_000
    bench.do(bench.master.timed_out(bench.now))
    bench.wait(4_000)
    assert _members(bench, "a") == "ab"


def test_who_hung_up_while_the_master_was_stopped_is_not_lost_by_a_suspicion() -> None:
    """What was queued meanwhile comes before the clock is looked at, and before the suspect has dialled afresh."""
    bench = Bench()
    bench.together("a", "b")
    bench.now += 60_000
    bench.peer("b").reachable = False
    bench.frozen("a", "b")
    bench.run()
    bench.wait(1_000, beat=False)
    assert bench.master is not None
    assert "probing peer 62626262" in bench.master.explain()
    bench.reconnect("b")
    bench.wait(1_000)
    assert _members(bench, "a") == _members(bench, "b") == "ab"
    assert bench.peer("b").core.epoch == 3


def test_who_does_not_dial_a_master_that_was_stopped_is_lost_after_the_heartbeat_limit() -> None:
    bench = Bench()
    bench.together("a", "b")
    bench.now += 60_000
    bench.kill("b")
    bench.frozen("a", "b")
    bench.wait(bench.limits.heartbeat_limit_ms - 500)
    assert _members(bench, "a") == "ab"
    bench.wait(1_000)
    assert _members(bench, "a") == "a"


def test_a_member_that_never_reports_has_to_go() -> None:
    bench = Bench(Limits(report_limit_ms=6_000))
    bench.together("a", "b", "c")
    bench.peer("b").deaf = True
    bench.perform(bench.peer("c"), bench.peer("c").core.leave("", bench.now))
    for _ in range(14):
        bench.wait(500)
        bench.say("b", Heartbeat(2))
    assert _members(bench, "a") == "a"
    assert any("did not report its operations within 6000 ms" in line for line in bench.lines)


def test_leaving_is_told_as_leaving() -> None:
    bench = Bench()
    bench.together("a", "b")
    bench.perform(bench.peer("b"), bench.peer("b").core.leave("done", bench.now))
    bench.run()
    view = bench.peer("a").core.view
    assert view is not None
    assert view.text == "rank 1 (peer 62626262) left: done"
    assert view.cause == Status.PEER_LOST


def test_a_newcomer_may_leave_before_it_is_accepted() -> None:
    bench = Bench()
    bench.together("a")
    bench.join("b")
    bench.run()
    bench.perform(bench.peer("b"), bench.peer("b").core.leave("", bench.now))
    bench.run()
    assert bench.master is not None
    assert bench.master.pending_count == 0
    assert [it.status for it in bench.peer("b").ends() if isinstance(it, Reject)] == [Status.CLOSED]


# ---------------------------------------------------------------------------------------------- restart


def test_after_a_restart_a_member_is_given_time_even_if_it_is_suspected() -> None:
    bench = Bench()
    bench.together("a", "b", "c")
    bench.suspect("a", "c")
    bench.stop_master()
    bench.start_master()
    bench.peer("c").reachable = False
    bench.reconnect("a")
    bench.reconnect("b")
    bench.run()
    assert _members(bench, "a") == "abc"
    bench.reconnect("c")
    bench.wait(100)
    assert _members(bench, "a") == "abc"
    assert bench.peer("a").core.epoch == 3


def test_who_does_not_come_back_after_a_restart_is_lost() -> None:
    bench = Bench()
    bench.together("a", "b")
    bench.stop_master()
    bench.kill("b")
    bench.start_master()
    bench.reconnect("a")
    bench.wait(5_500)
    assert _members(bench, "a") == "a"


def test_a_restarted_master_asks_queued_messages_for_a_hello() -> None:
    bench = Bench()
    bench.together("a")
    bench.stop_master()
    bench.start_master()
    assert _sent(bench.say("a", Heartbeat(1)), "a") == [WhoAreYou()]
    bench.run()
    assert any("log returned" in line for line in bench.lines)


@pytest.mark.parametrize("word", [OtherVersion(99), StatusRequest(PROTOCOL_VERSION)])
def test_who_says_what_no_peer_says_does_not_speak_for_the_member_whose_id_it_has(word: object) -> None:
    bench = Bench()
    bench.together("a", "b")
    bench.peer("b").deaf = True
    bench.say("b", word)
    assert _sent(bench.say("b", Leave("")), "b") == [WhoAreYou()]
    bench.run()
    bench.reconnect("b")
    bench.run()
    bench.vote("a", UPDATE)
    bench.vote("b", UPDATE)
    bench.run()
    assert isinstance(bench.peer("b").end(), Resolve)
    assert bench.peer("b").core.epoch == 2


def test_a_suspicion_from_before_the_last_epoch_is_no_news() -> None:
    bench = Bench()
    bench.together("a", "b", "c")
    for _ in range(2):
        bench.frozen("a")
        bench.run()
    assert bench.master is not None
    assert bench.peer("a").core.epoch == 4
    for epoch in (1, 2):
        bench.say("a", Suspect(epoch, identity("b"), int(Status.PEER_LOST), "reset"))
        assert bench.master.explain() == ""
    bench.say("a", Suspect(3, identity("b"), int(Status.PEER_LOST), "reset"))
    assert bench.master.explain() == "probing peer 62626262"


def test_a_view_is_made_once_however_many_missed_it() -> None:
    """All members of a large group ask at once after a restart."""
    bench = Bench()
    bench.together("a", "b", "c")
    bench.stop_master()
    bench.start_master()
    views = [it for name in "bc" for it in _sent(bench.say(name, _hello(name, epoch=0)), name) if isinstance(it, View)]
    assert len(views) == 2
    assert views[0] is views[1]


def test_a_freeze_is_repeated_to_a_member_that_comes_back() -> None:
    bench = Bench()
    bench.together("a", "b", "c")
    bench.peer("b").deaf = True
    bench.perform(bench.peer("c"), bench.peer("c").core.leave("", bench.now))
    bench.run()
    assert bench.peer("a").core.epoch == 2
    outputs = bench.say("b", _hello("b", epoch=2))
    assert FreezeEpoch(2) in _sent(outputs, "b")


def test_a_view_that_was_lost_is_repeated_and_only_then_the_freeze() -> None:
    bench = Bench()
    bench.together("a", "b", "c")
    bench.frozen("b")
    bench.frozen("c")
    bench.frozen("a")
    bench.master_hears()
    bench.to_peers = [it for it in bench.to_peers if it[0] != identity("b")]
    bench.perform(bench.peer("c"), bench.peer("c").core.leave("", bench.now))
    bench.run()
    kinds = [type(it).__name__ for it in _sent(bench.say("b", _hello("b", epoch=2)), "b")]
    assert kinds == ["Welcome", "View", "FreezeEpoch"]
    bench.run()
    assert _members(bench, "b") == "ab"


def test_a_rejoined_process_is_a_new_peer_while_its_old_self_is_still_a_member() -> None:
    bench = Bench()
    bench.together("a", "b")
    bench.kill("b")
    bench.join("d")
    bench.run()
    assert bench.peer("d").core.view is None
    bench.wait(5_300)
    bench.vote("a", UPDATE)
    bench.run()
    assert _members(bench, "a") == _members(bench, "d") == "ad"


def test_the_snapshot_replays_to_where_the_master_is() -> None:
    bench = Bench()
    bench.together("a", "b")
    bench.vote("a", VoteKind.ARE_PEERS_PENDING)
    bench.vote("b", VoteKind.ARE_PEERS_PENDING)
    bench.run()
    assert bench.master is not None
    data = b"".join(journal.encode(record) for record in bench.master.snapshot())
    assert journal.replay(data)[0] == journal.replay(bench.disk)[0]


def test_nothing_is_told_before_it_is_journalled() -> None:
    bench = Bench()
    told_early: list[MasterOutput] = []
    plain = bench.do

    def watch(outputs: list[MasterOutput]) -> None:
        appends = [place for place, it in enumerate(outputs) if isinstance(it, Append)]
        told_early.extend(
            it
            for place, it in enumerate(outputs)
            if isinstance(it, Send) and isinstance(it.message, View) and not any(at < place for at in appends)
        )
        plain(outputs)

    bench.do = watch  # type: ignore[method-assign, assignment]
    bench.together("a", "b", "c")
    bench.kill("c")
    bench.frozen("a", "c")
    bench.run()
    assert _members(bench, "a") == "ab"
    assert told_early == []


def test_explain_names_what_is_waited_for() -> None:
    bench = Bench()
    bench.together("a", "b", "c")
    assert bench.master is not None
    assert bench.master.explain() == ""
    bench.vote("a", UPDATE)
    bench.run()
    assert (
        bench.master.explain()
        == f"update_topology: waiting for peer {identity('b').hex()[:8]}, peer " + (identity("c").hex()[:8])
    )
    bench.peer("b").deaf = True
    bench.suspect("a", "b")
    bench.stalled("c", tag=4, sequence=2, waited_ms=300)
    bench.perform(bench.peer("c"), bench.peer("c").core.engine_frozen(2, b"", 0, "", (), bench.now))
    bench.run()
    text = bench.master.explain()
    assert "epoch 2 is frozen; reports missing: rank 1" in text
    assert f"probing peer {identity('b').hex()[:8]}" in text
    assert "rank 2 has waited 300 ms in operation (tag 4, sequence 2) for rank 0" in text


def test_explain_names_who_has_not_come_back() -> None:
    bench = Bench()
    bench.together("a")
    bench.stop_master()
    bench.start_master()
    assert bench.master is not None
    assert bench.master.explain() == f"peer {identity('a').hex()[:8]} has not come back"


def test_the_answer_to_a_probe_without_suspicion_changes_nothing() -> None:
    bench = Bench()
    bench.together("a", "b")
    assert bench.say("b", ProbeReply(0)) == []
