# SPDX-License-Identifier: MIT
"""From epoch to epoch: verdicts, causes, failures during recovery, links, rings."""

from __future__ import annotations

from pccl.errors import Status
from pccl.messages import Census, OperationName, ReportLine, View
from pccl.protocol.topology import Arrangement, Shape
from pccl.protocol.types import DialPeer, GroupView, Install, Limits, Resolve, VoteKind
from pccl.protocol.verdict import DATA_DONE, DATA_PHASE
from tests.cores import Bench, identity, offer


def _view(bench: Bench, name: str) -> View:
    view = bench.peer(name).core.view
    assert view is not None
    return view


def _install(bench: Bench, name: str) -> Install:
    return bench.peer(name).installs()[-1]


def _members(bench: Bench, name: str) -> str:
    return "".join(chr(member.id[0]) for member in _view(bench, name).members)


def test_survivors_get_the_same_verdict_and_close_the_gap() -> None:
    bench = Bench()
    bench.together("a", "b", "c", "d")
    bench.peer("a").lines = (ReportLine(7, 0, 0, DATA_DONE), ReportLine(7, 0, 1, DATA_DONE))
    bench.peer("c").lines = (ReportLine(7, 1, 1, DATA_PHASE),)
    bench.peer("d").lines = (ReportLine(7, 0, 0, DATA_DONE),)
    bench.kill("b")
    bench.frozen("a", "b")
    bench.run()
    for rank, name in enumerate("acd"):
        assert _install(bench, name).commits == (OperationName(7, 0),)
        assert _install(bench, name).rank == rank
        assert _members(bench, name) == "acd"
    text = "rank 1 (peer 62626262 at 10.0.0.1:1098, last heard 0 ms ago) was lost: rank 0 reports: reset"
    assert _view(bench, "a").text == text


def test_a_lost_member_s_own_report_does_not_count() -> None:
    bench = Bench()
    bench.together("a", "b", "c")
    bench.peer("a").lines = bench.peer("b").lines = (ReportLine(1, 0, 0, DATA_DONE),)
    bench.peer("c").lines = (ReportLine(1, 0, 0, DATA_PHASE),)
    bench.frozen("c")
    bench.master_hears()
    bench.kill("c")
    bench.frozen("a", "c")
    bench.run()
    assert _install(bench, "a").commits == (OperationName(1, 0),)


def test_a_second_loss_while_reports_are_collected_ends_in_one_view() -> None:
    bench = Bench()
    bench.together("a", "b", "c", "d")
    bench.kill("c")
    bench.kill("d")
    bench.peer("b").deaf = True
    bench.frozen("a", "c")
    bench.run()
    assert _view(bench, "a").epoch == 2
    bench.peer("b").deaf = False
    bench.perform(bench.peer("b"), bench.peer("b").core.engine_frozen(2, identity("d"), 5, "reset", (), bench.now))
    bench.run()
    assert _view(bench, "a").epoch == _view(bench, "b").epoch == 3
    assert _members(bench, "a") == "ab"
    for rank, name in ((2, "63636363"), (3, "64646464")):
        assert f"rank {rank} (peer {name} at " in _view(bench, "a").text


def test_a_loss_between_a_view_and_its_installation_waits_for_the_installation() -> None:
    bench = Bench()
    bench.together("a", "b", "c")
    for name in "abc":
        bench.frozen(name)
    bench.master_hears()
    kept, bench.to_peers = bench.to_peers, []
    bench.kill("c")
    bench.to_peers = [it for it in kept if it[0] == identity("a")]
    bench.peers_hear()
    bench.suspect("a", "c")
    bench.master_hears()
    bench.to_peers = [it for it in kept if it[0] == identity("b")] + bench.to_peers
    bench.run()
    assert [it.view.epoch for it in bench.peer("b").installs()] == [2, 3, 4]
    assert _members(bench, "b") == "ab"


def test_a_suspicion_of_someone_who_is_gone_still_freezes() -> None:
    bench = Bench()
    bench.together("a", "b", "c")
    bench.perform(bench.peer("c"), bench.peer("c").core.leave("", bench.now))
    bench.master_hears()
    bench.frozen("a", "c")
    bench.run()
    assert _members(bench, "a") == _members(bench, "b") == "ab"


def test_everything_ends_with_the_last_member_and_begins_again() -> None:
    bench = Bench()
    bench.together("a")
    bench.perform(bench.peer("a"), bench.peer("a").core.leave("", bench.now))
    bench.run()
    assert bench.master is not None
    assert bench.master.census.groups == 0
    bench.join("b")
    bench.run()
    assert _view(bench, "b").epoch == 3
    assert _view(bench, "b").previous == 0


def test_a_timeout_whose_awaited_peers_live_keeps_the_members_and_says_timeout() -> None:
    bench = Bench()
    bench.together("a", "b")
    bench.frozen("a", "b", reason=Status.TIMEOUT, text="operation (3, 0) waited 5000 ms for rank 1")
    bench.run()
    view = _view(bench, "b")
    assert _members(bench, "b") == "ab"
    assert view.cause == Status.TIMEOUT
    assert view.text == "rank 0: operation (3, 0) waited 5000 ms for rank 1; rank 1 lives: it answers the master"


def test_a_timeout_whose_awaited_peer_is_gone_is_a_loss() -> None:
    bench = Bench()
    bench.together("a", "b")
    bench.kill("b")
    bench.frozen("a", "b", reason=Status.TIMEOUT, text="waited for rank 1")
    bench.run()
    assert _view(bench, "a").cause == Status.PEER_LOST
    assert _members(bench, "a") == "a"


def test_a_failure_inside_one_member_is_told_to_the_others_as_something_to_retry() -> None:
    bench = Bench()
    bench.together("a", "b")
    bench.frozen("a", reason=Status.NO_MEMORY, text="out of memory")
    bench.run()
    assert _view(bench, "b").cause == Status.PEER_LOST
    assert _view(bench, "b").text == "rank 0: out of memory"


def test_an_idle_link_that_broke_makes_a_new_epoch() -> None:
    bench = Bench()
    bench.together("a", "b", "c")
    bench.suspect("a", "b")
    bench.run()
    assert _view(bench, "c").epoch == 3
    assert _members(bench, "c") == "abc"
    assert "the link between rank 0 and rank 1 broke" in _view(bench, "c").text


def test_the_ring_avoids_a_broken_link_and_returns_when_it_is_forgotten() -> None:
    bench = Bench(Limits(link_window_ms=3_000))
    bench.together("a", "b", "c", "d", "e")
    assert _view(bench, "a").ring == (0, 1, 2, 3, 4)
    bench.suspect("a", "b")
    bench.run()
    ring = _view(bench, "a").ring
    assert abs(ring.index(0) - ring.index(1)) not in (1, 4)
    bench.wait(3_100)
    for name in "abcde":
        bench.vote(name, VoteKind.OPTIMIZE_TOPOLOGY)
    bench.run()
    assert _view(bench, "a").ring == (0, 1, 2, 3, 4)
    for name in "abcde":
        end = bench.peer(name).end()
        assert isinstance(end, Resolve)
        assert end.flag


def _break(bench: Bench, one: str, other: str) -> None:
    """The link between two members breaks under an operation."""
    bench.frozen(one, other)
    bench.run()


def _arrangement(bench: Bench, name: str) -> Arrangement:
    view = _view(bench, name)
    return Arrangement(Shape(view.shape), view.ring, view.parents)


def test_a_link_that_breaks_twice_is_not_needed_any_more_and_nobody_has_to_go() -> None:
    bench = Bench()
    bench.together("a", "b", "c", "d", "e")
    _break(bench, "a", "b")
    assert _view(bench, "c").shape == Shape.FULL
    _break(bench, "b", "a")
    assert _view(bench, "c").shape == Shape.RING
    assert not _arrangement(bench, "c").joins(0, 1)
    for other in "cd":  # b is left with one link, to e
        _break(bench, "b", other)
        _break(bench, "b", other)
    assert _view(bench, "c").shape == Shape.TREE
    assert _members(bench, "c") == "abcde"
    for other in (0, 2, 3):
        assert not _arrangement(bench, "c").joins(1, other)


def test_a_link_that_cannot_be_dialled_is_avoided_at_its_first_break() -> None:
    bench = Bench()
    bench.together("a", "b", "c")
    bench.doubt("a", "b")
    bench.run()
    assert DialPeer(_view(bench, "b").epoch, identity("a")) in bench.peer("b").outputs
    _break(bench, "a", "b")
    assert _view(bench, "c").shape == Shape.TREE
    assert _view(bench, "c").ring[0] == 2, "the root has both links"


def test_a_link_that_one_side_could_make_is_as_good_as_any() -> None:
    bench = Bench()
    bench.together("a", "b", "c")
    bench.doubt("a", "b")
    bench.run()
    bench.linked("a", "b")
    bench.run()
    epoch = _view(bench, "c").epoch
    _break(bench, "a", "b")
    assert (_view(bench, "c").shape, _view(bench, "c").epoch) == (Shape.FULL, epoch + 1)


def test_an_avoided_link_is_dialled_again_and_used_once_it_stands() -> None:
    bench = Bench(Limits(link_retry_ms=1_000))
    bench.together("a", "b", "c")
    _break(bench, "a", "b")
    _break(bench, "a", "b")
    epoch = _view(bench, "a").epoch
    bench.wait(7_100)
    dials = [it for it in bench.peer("a").outputs if isinstance(it, DialPeer)]
    assert dials == [DialPeer(epoch, identity("b"))] * 3, "after one, three and seven seconds"
    bench.suspect("a", "b", "no link within 10000 ms")
    bench.run()
    assert _view(bench, "a").epoch == epoch, "a trial stops nobody"
    bench.linked("b", "a")
    bench.run()
    assert _view(bench, "a").epoch == epoch, "nor does its success"
    for name in "abc":
        bench.vote(name, VoteKind.UPDATE_TOPOLOGY)
    bench.run()
    assert (_view(bench, "a").epoch, _view(bench, "a").shape) == (epoch + 1, Shape.FULL)
    for name in "abc":
        bench.vote(name, VoteKind.UPDATE_TOPOLOGY)
    bench.run()
    assert _view(bench, "a").epoch == epoch + 1, "there is nothing left to change"


def test_a_link_that_heals_and_breaks_is_offered_less_and_less_often() -> None:
    bench = Bench(Limits(link_retry_ms=1_000))
    bench.together("a", "b", "c")
    pauses: list[int] = []
    for _ in range(4):
        _break(bench, "a", "b")
        _break(bench, "a", "b")
        begin, dials = bench.now, len(bench.peer("a").outputs)
        while not any(isinstance(it, DialPeer) for it in bench.peer("a").outputs[dials:]):
            bench.wait(100)
        pauses.append(round((bench.now - begin) / 1_000))
        bench.linked("a", "b")
        bench.run()
        for name in "abc":
            bench.vote(name, VoteKind.OPTIMIZE_TOPOLOGY)
        bench.run()
        assert _view(bench, "a").shape == Shape.FULL
    assert pauses == [1, 4, 16, 64]


def test_two_members_without_a_link_part_after_several_tries() -> None:
    bench = Bench()
    bench.together("a", "b")
    for _ in range(2):
        bench.doubt("a", "b")
        bench.doubt("b", "a")
        _break(bench, "a", "b")
        assert _members(bench, "a") == "ab"
    _break(bench, "a", "b")
    assert _members(bench, "a") == "ab", "it could be dialled, so three resets within a moment prove nothing"
    bench.wait(bench.limits.link_patience_ms)
    _break(bench, "a", "b")
    assert _members(bench, "a") == "a"
    assert "no way leads to it, the links between ranks 0-1 are dead" in _view(bench, "a").text


def test_a_newcomer_joins_those_that_have_no_link_to_each_other() -> None:
    bench = Bench()
    bench.together("a", "b")
    for last in (False, False, True):
        bench.doubt("a", "b")
        bench.doubt("b", "a")
        bench.run()
        if last:
            bench.join("c")
            bench.run()
            for name in "ab":
                bench.vote(name, VoteKind.UPDATE_TOPOLOGY)
        _break(bench, "a", "b")
    assert _members(bench, "a") == _members(bench, "b") == "abc"
    assert _arrangement(bench, "c") == Arrangement(Shape.TREE, (2, 0, 1), (0, 0, 0))


def test_the_smaller_part_of_a_group_that_falls_apart_has_to_go() -> None:
    bench = Bench()
    bench.together("a", "b", "c", "d", "e")
    for _ in range(4):
        bench.wait(bench.limits.link_patience_ms // 3 + 1)
        for one in "ab":
            for other in "cde":
                if bench.peer(one).core.view in (None, bench.peer(other).core.view):
                    _break(bench, one, other)
    assert _members(bench, "e") == "cde"
    assert "the links between ranks 0-2, 0-3, 0-4, 1-2, 1-3, 1-4 are dead" in _view(bench, "e").text


def test_a_restarted_master_remembers_what_is_avoided() -> None:
    bench = Bench(Limits(link_retry_ms=1_000))
    bench.together("a", "b", "c")
    _break(bench, "a", "b")
    _break(bench, "a", "b")
    bench.stop_master()
    bench.start_master()
    for name in "abc":
        bench.reconnect(name)
    bench.run()
    assert bench.master is not None
    assert "group 0: no link between ranks 0-1: TREE instead" in bench.master.explain()
    bench.suspect("b", "c")
    bench.run()
    assert not _arrangement(bench, "c").joins(0, 1)
    bench.wait(1_100)
    assert any(isinstance(it, DialPeer) for it in bench.peer("b").outputs)


def test_other_groups_keep_their_epoch_and_hear_the_census_with_their_next_joint_call() -> None:
    bench = Bench()
    bench.together("a")
    bench.join("b")
    bench.join("x", group=9)
    bench.run()
    bench.vote("a", VoteKind.UPDATE_TOPOLOGY)
    bench.run()
    before = _view(bench, "x").epoch
    assert _view(bench, "x").census == _view(bench, "a").census
    assert before != _view(bench, "a").epoch
    bench.perform(bench.peer("b"), bench.peer("b").core.leave("", bench.now))
    bench.run()
    assert _view(bench, "x").epoch == before
    assert bench.peer("a").core.census == Census(2, 2, 1)
    assert bench.peer("x").core.census == Census(3, 2, 2), "as when its members last learnt something together"
    bench.vote("x", VoteKind.SYNC_SHARED_STATE, offer(0, "w"))
    bench.run()
    assert bench.peer("x").core.census == Census(2, 2, 1)


def test_what_is_told_again_has_the_numbers_of_then() -> None:
    """A member that missed a view or an answer reads what the others read, though another group has changed since."""
    bench = Bench()
    bench.together("a", "b", "c")
    bench.join("x", group=9)
    bench.run()
    bench.join("y", group=9)
    bench.run()
    for name in "abc":
        bench.vote(name, VoteKind.UPDATE_TOPOLOGY)
    bench.run()
    bench.peer("b").deaf = True
    for name in "abcxy":
        bench.vote(name, VoteKind.ARE_PEERS_PENDING)
    bench.run()
    bench.perform(bench.peer("y"), bench.peer("y").core.leave("", bench.now))
    bench.run()
    bench.reconnect("b")
    bench.run()
    assert [bench.peer(name).core.census for name in "ab"] == [Census(5, 2, 3)] * 2
    bench.peer("b").deaf = True
    bench.kill("c")
    bench.frozen("a", "c")
    bench.frozen("b", "c")
    bench.run()
    bench.perform(bench.peer("x"), bench.peer("x").core.leave("", bench.now))
    bench.run()
    bench.reconnect("b")
    bench.run()
    assert [bench.peer(name).core.census for name in "ab"] == [Census(3, 2, 2)] * 2
    assert _view(bench, "a") == _view(bench, "b")


def test_who_held_the_others_together_leaves_while_they_vote_for_a_better_ring() -> None:
    bench = Bench()
    bench.together("a", "b", "c")
    for _ in range(bench.limits.link_failures + 1):
        bench.frozen("b", "c")
        bench.run()
    assert _view(bench, "a").ring == (0, 1, 2)
    assert _view(bench, "a").parents, "b and c meet at a"
    bench.vote("b", VoteKind.OPTIMIZE_TOPOLOGY)
    bench.vote("c", VoteKind.OPTIMIZE_TOPOLOGY)
    bench.run()
    bench.perform(bench.peer("a"), bench.peer("a").core.leave("", bench.now))
    bench.run()
    assert len(_view(bench, "b").members) < 3


def test_each_epoch_of_the_run_is_used_once() -> None:
    bench = Bench()
    bench.together("a")
    bench.join("b", group=1)
    bench.join("c", group=2)
    bench.run()
    bench.vote("a", VoteKind.UPDATE_TOPOLOGY)
    bench.run()
    bench.perform(bench.peer("b"), bench.peer("b").core.leave("", bench.now))
    bench.run()
    epochs = [view.epoch for record in bench.records for view in _views(record)]
    assert epochs == sorted(set(epochs)) == [1, 2, 3, 4]


def _views(record: object) -> tuple[GroupView, ...]:
    return getattr(record, "views", ())


def test_members_have_the_same_view_of_hosts_and_cores_also_from_a_master_that_came_back() -> None:
    bench = Bench()
    told = {"a": (1, 4), "b": (1, 2), "c": (2, 0)}
    for name, (host, cores) in told.items():
        bench.join(name, host=host, cores=cores)
        bench.run()
    bench.vote("a", VoteKind.UPDATE_TOPOLOGY)
    bench.run()
    bench.stop_master()
    bench.start_master()
    for name in "abc":
        bench.reconnect(name)
    told["d"] = (1, 2**32 - 1)
    bench.join("d", host=1, cores=2**32 - 1)
    bench.run()
    for name in "abc":
        bench.vote(name, VoteKind.UPDATE_TOPOLOGY)
    bench.run()
    for name in told:
        members = _view(bench, name).members
        assert {chr(it.id[0]): (it.host_id, it.cores) for it in members} == told
