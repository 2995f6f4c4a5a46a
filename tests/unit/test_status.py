# SPDX-License-Identifier: MIT
"""The master's answer to strangers: what it shows, what it keeps to itself, and that asking costs little."""

from __future__ import annotations

from pccl.errors import Status
from pccl.messages import PROTOCOL_VERSION, OperationName, Refused, StatusAnswer, StatusRequest, encode
from pccl.protocol.status import ANSWERS, EVERY_MS
from pccl.protocol.topology import Shape
from pccl.protocol.types import MasterOutput, Send, VoteKind
from tests.cores import Bench, identity, offer

REQUEST = StatusRequest(PROTOCOL_VERSION)


def sent(outputs: list[MasterOutput]) -> list[object]:
    return [it.message for it in outputs if isinstance(it, Send)]


def ask(bench: Bench) -> StatusAnswer:
    bench.now += EVERY_MS
    (answer,) = sent(bench.say("?", REQUEST))
    assert isinstance(answer, StatusAnswer)
    return answer


def test_members_newcomers_and_groups_are_shown() -> None:
    bench = Bench()
    bench.together("a", "b")
    bench.join("c", group=7)
    bench.run()
    answer = ask(bench)
    assert [(it.group, it.rank, it.name, it.address, it.port) for it in answer.members] == [
        (0, 0, "61616161", "10.0.0.1", 1097),
        (0, 1, "62626262", "10.0.0.1", 1098),
    ]
    assert [(it.group, it.epoch, it.size, it.ring, it.stopped_ms) for it in answer.groups] == [(0, 2, 2, (0, 1), 0)]
    assert [(it.group, it.name, it.connected) for it in answer.newcomers] == [(7, "63636363", True)]
    assert (answer.census.peers, answer.epoch, answer.uptime_ms) == (2, 2, bench.now)
    assert answer.records == len(bench.records)
    assert {it.event: it.count for it in answer.counts}["accepted"] == 2
    assert (answer.calls, answer.stalls) == ((), ())


def test_secrets_and_whole_ids_are_kept() -> None:
    bench = Bench()
    bench.together("a", "b")
    assert bench.master is not None
    data = encode(ask(bench))
    for kept in (identity("a"), identity("A"), identity("a").hex().encode()):
        assert kept not in data
    past = next(it.run_secret for it in bench.records if hasattr(it, "run_secret"))
    assert past not in data


def test_a_joint_call_names_whom_it_waits_for() -> None:
    bench = Bench()
    bench.together("a", "b", "c")
    bench.vote("a", VoteKind.UPDATE_TOPOLOGY)
    bench.run()
    answer = ask(bench)
    (call,) = answer.calls
    assert (call.name, call.one_group, call.voted, call.voters) == ("update_topology", False, 1, 3)
    assert "rank 1 of group 0 (peer 62626262" in call.waits
    assert "rank 2 of group 0 (peer 63636363" in call.waits
    assert [it.waits for it in answer.members] == [f"update_topology since {EVERY_MS} ms", "", ""]


def test_a_synchronisation_names_whom_it_waits_for() -> None:
    bench = Bench()
    bench.together("a", "b")
    bench.vote("b", VoteKind.SYNC_SHARED_STATE, offer(1, "x"))
    bench.run()
    (call,) = ask(bench).calls
    assert (call.name, call.one_group, call.group, call.voted, call.voters) == ("sync_shared_state", True, 0, 1, 2)
    assert "rank 0 of group 0" in call.waits


def test_the_slow_one_is_named_and_counted() -> None:
    bench = Bench()
    bench.together("a", "b", "c")
    for name in ("a", "b"):
        bench.stalled(name, tag=3, sequence=8, waited_ms=300, ranks=(2,), absent=True)
    bench.run()
    answer = ask(bench)
    assert [(it.late, it.late_ms) for it in answer.members] == [(0, 0), (0, 0), (1, 300)]
    assert [it.waits for it in answer.members] == ["tag 3 #8 for rank 2 to start it"] * 2 + [""]
    name = OperationName(3, 8)
    assert [(it.operation, it.rank, it.waited_ms, it.ranks, it.absent) for it in answer.stalls] == [
        (name, 0, 300 + EVERY_MS, (2,), True),
        (name, 1, 300 + EVERY_MS, (2,), True),
    ]


def test_a_stopped_epoch_names_whose_report_is_missing() -> None:
    bench = Bench()
    bench.together("a", "b", "c")
    bench.peer("c").deaf = True
    bench.frozen("a", suspect="c")
    bench.run()
    answer = ask(bench)
    (group,) = answer.groups
    assert group.stopped_ms == EVERY_MS
    assert group.missing == (2,)
    assert [it.suspected for it in answer.members] == [False, False, True]
    assert [it.waits for it in answer.members] == ["the verdict", "the verdict", ""]


def test_links_that_broke_lately_are_named() -> None:
    bench = Bench()
    bench.together("a", "b", "c")
    bench.frozen("a", suspect="c")
    bench.frozen("c", suspect="a")
    bench.run()
    assert [it.broken for it in ask(bench).groups] == [(0, 2)]


def test_avoided_links_and_the_shape_that_does_without_are_named() -> None:
    bench = Bench()
    bench.together("a", "b", "c", "d")
    for _ in range(2):
        bench.frozen("a", suspect="c")
        bench.frozen("c", suspect="a")
        bench.run()
    (group,) = ask(bench).groups
    assert (group.avoided, group.broken, Shape(group.shape), group.parents) == ((0, 2), (), Shape.RING, ())
    place = {rank: at for at, rank in enumerate(group.ring)}
    assert abs(place[0] - place[2]) == 2


def test_asking_is_limited_and_changes_nothing() -> None:
    bench = Bench()
    bench.together("a", "b")
    assert bench.master is not None
    records, deadline = len(bench.records), bench.master.deadline()
    bench.now += EVERY_MS
    answers = [sent(bench.say("?", REQUEST)) for _ in range(3 * ANSWERS)]
    assert answers == [answers[0]] * ANSWERS + [[]] * (2 * ANSWERS)
    assert len(bench.records) == records
    assert bench.master.deadline() == deadline
    assert ask(bench) is not answers[0][0]


def test_a_peer_that_asks_is_somebody_else_under_its_id() -> None:
    bench = Bench()
    bench.together("a", "b")
    assert bench.say("a", REQUEST) == []
    assert len(ask(bench).members) == 2


def test_another_version_is_refused_by_name() -> None:
    bench = Bench()
    (refused,) = sent(bench.say("?", bench_version(PROTOCOL_VERSION + 1)))
    assert isinstance(refused, Refused)
    assert (refused.reason, refused.version) == (Status.VERSION, PROTOCOL_VERSION)


def bench_version(version: int) -> object:
    """What `decode` makes of a request of that version."""
    from pccl.messages import decode

    return decode(encode(StatusRequest(version)))
