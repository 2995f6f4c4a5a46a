# SPDX-License-Identifier: MIT
"""Who is waited for, in words: every absent voter, what it does instead, and no more than a text can hold."""

from __future__ import annotations

from pccl.messages import MAX_TEXT_CHARACTERS
from pccl.protocol.absence import NAMED
from pccl.protocol.types import Reject, VoteKind
from tests.cores import Bench, identity, offer

UPDATE, PENDING, SYNC = VoteKind.UPDATE_TOPOLOGY, VoteKind.ARE_PEERS_PENDING, VoteKind.SYNC_SHARED_STATE


def _text(bench: Bench, name: str) -> str:
    """What `name` hears when it gives up its newest call."""
    bench.wait(300_000, step=1_000)
    end = bench.peer(name).end()
    assert isinstance(end, Reject)
    return end.text


def _vote(bench: Bench, name: str, kind: VoteKind) -> None:
    bench.vote(name, kind, offer(1, name))
    bench.run()


def test_an_absent_voter_is_named_by_rank_group_and_id() -> None:
    bench = Bench()
    bench.together("a", "b")
    _vote(bench, "a", UPDATE)
    text = _text(bench, "a")
    assert text.startswith("update_topology: waited 300000 ms for rank 1 of group 0 (peer 62626262, last heard ")
    assert "rank 0" not in text


def test_what_an_absent_voter_waits_in_is_named() -> None:
    bench = Bench()
    bench.together("a", "b", "c")
    bench.stalled("b", tag=7, sequence=3, waited_ms=250)
    bench.stalled("b", tag=7, sequence=5, waited_ms=100)
    _vote(bench, "a", PENDING)
    assert ", which had waited 100 ms in operation (tag 7, sequence 5) for rank 0; rank 2" in _text(bench, "a")


def test_a_voter_of_another_group_that_synchronises_is_named_with_its_call() -> None:
    bench = Bench()
    bench.together("a")
    for name in "xy":
        bench.join(name, group=1)
    bench.run()
    bench.vote("a", UPDATE)
    bench.run()
    bench.wait(1_000)
    _vote(bench, "x", SYNC)
    _vote(bench, "a", PENDING)
    bench.abandon("a")
    bench.run()
    answer = [line for line in bench.lines if line.startswith("a < VoteResult")]
    assert "rank 0 of group 1 (peer 78787878, last heard 0 ms ago), which waits in sync_shared_state" in answer[-1]
    assert "rank 1 of group 1 (peer 79797979" in answer[-1]


def test_a_synchronisation_waits_for_its_own_group_only() -> None:
    bench = Bench()
    bench.together("a", "b")
    bench.join("x", group=1)
    bench.run()
    for name in "ab":
        bench.vote(name, UPDATE)
    bench.run()
    _vote(bench, "a", SYNC)
    text = _text(bench, "a")
    assert "rank 1 of group 0" in text
    assert "group 1" not in text


def test_who_gave_up_the_same_call_is_named_last() -> None:
    bench = Bench()
    bench.together("a", "b", "c")
    for name in "ab":
        _vote(bench, name, UPDATE)
    bench.abandon("a")
    text = _text(bench, "b")
    assert text.index("rank 2 of group 0") < text.index("rank 0 of group 0")
    assert "(peer 61616161, last heard 0 ms ago), which gave up this call " in text


def test_a_peer_that_has_not_come_back_is_told_apart() -> None:
    bench = Bench()
    bench.together("a", "b")
    _vote(bench, "a", UPDATE)
    bench.stop_master()
    bench.abandon("a")
    bench.start_master()
    bench.reconnect("a")
    bench.run()
    answers = [line for line in bench.lines if line.startswith("a < VoteResult") and "TIMEOUT" in line]
    assert "(peer 62626262, not back since the master's restart)" in answers[-1]


def test_a_peer_without_a_connection_is_told_apart() -> None:
    bench = Bench()
    bench.together("a", "b")
    _vote(bench, "a", UPDATE)
    assert bench.master is not None
    bench.do(bench.master.disconnected(identity("b"), bench.now))
    bench.abandon("a")
    bench.run()
    assert any("last heard 0 ms ago, not connected)" in line for line in bench.lines)


def test_many_absent_voters_fit_a_text() -> None:
    bench = Bench()
    bench.together(*"abcdefghij")
    _vote(bench, "a", UPDATE)
    text = _text(bench, "a")
    assert text.count(" of group 0 (peer ") == NAMED
    assert text.endswith(f"; {9 - NAMED} others")
    assert len(text) <= MAX_TEXT_CHARACTERS
