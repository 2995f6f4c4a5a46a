# SPDX-License-Identifier: MIT
"""How a group begins: with so many founders at once, in the order of their places."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pccl.errors import Status
from pccl.messages import NO_PLACE, Register
from pccl.protocol.types import Reject, VoteKind
from tests.cores import Bench

UPDATE, PENDING = VoteKind.UPDATE_TOPOLOGY, VoteKind.ARE_PEERS_PENDING


def _members(bench: Bench, name: str) -> str:
    view = bench.peer(name).core.view
    return "".join(chr(member.id[0]) for member in view.members) if view else ""


def _explanation(bench: Bench) -> str:
    assert bench.master is not None
    return bench.master.explain()


def test_a_group_begins_when_all_founders_are_there_with_all_of_them() -> None:
    bench = Bench(founders=3)
    for name in "ab":
        bench.join(name)
        bench.run()
    assert _members(bench, "a") == ""
    assert "group 0 begins with 3 founders, 1 of them missing" in _explanation(bench)
    bench.join("c")
    bench.run()
    assert [_members(bench, name) for name in "abc"] == ["abc"] * 3
    assert bench.peer("a").core.epoch == 1
    assert _explanation(bench) == ""


def test_founders_stand_in_the_order_of_their_places() -> None:
    bench = Bench(founders=4)
    for name, place in (("a", 3), ("b", 0), ("c", 2), ("d", 1)):
        bench.join(name, place=place)
    bench.run()
    assert _members(bench, "a") == "bdca"


@given(places=st.lists(st.sampled_from([0, 1, 2, NO_PLACE]), min_size=1, max_size=6))
def test_equal_places_stand_in_the_order_of_arrival_and_none_is_behind_all(places: list[int]) -> None:
    bench = Bench(founders=len(places))
    names = "abcdef"[: len(places)]
    for name, place in zip(names, places, strict=True):
        bench.join(name, place=place)
    bench.run()
    assert _members(bench, "a") == "".join(sorted(names, key=lambda name: places[names.index(name)]))


def test_newcomers_of_a_group_that_has_begun_need_no_number_but_keep_their_order() -> None:
    bench = Bench(founders=2)
    bench.join("a")
    bench.join("b")
    bench.run()
    bench.join("c", place=7)
    bench.join("d", place=1)
    bench.run()
    bench.vote("a", UPDATE)
    bench.vote("b", UPDATE)
    bench.run()
    assert _members(bench, "a") == "abdc"


def test_update_topology_admits_no_founders_that_are_too_few() -> None:
    bench = Bench(founders=2)
    bench.join("a")
    bench.join("b")
    bench.join("x", group=1)
    bench.run()
    for kind in (PENDING, UPDATE):
        bench.vote("a", kind)
        bench.vote("b", kind)
        bench.run()
        end = bench.peer("a").end()
        assert end is not None
        assert end.flag is False  # type: ignore[union-attr]
    assert _members(bench, "x") == ""
    bench.join("y", group=1, place=0)
    bench.run()
    bench.vote("a", UPDATE)
    bench.vote("b", UPDATE)
    bench.run()
    assert _members(bench, "x") == "yx"


@pytest.mark.parametrize("when", ["before the probes are answered", "before all have reported"])
def test_founders_are_counted_again_when_one_goes_while_a_vote_is_resolved(when: str) -> None:
    bench = Bench(founders=2)
    for name, group in (("a", 0), ("b", 0), ("x", 1), ("y", 1), ("c", 0)):
        bench.join(name, group=group)
    bench.run()
    bench.vote("a", UPDATE)
    bench.vote("b", UPDATE)
    bench.master_hears()
    if when == "before all have reported":
        bench.peers_hear()
        bench.master_hears()
    bench.perform(bench.peer("y"), bench.peer("y").core.leave("", bench.now))
    bench.run()
    assert _members(bench, "x") == ""
    assert _members(bench, "a") == "abc"
    assert "1 of them missing" in _explanation(bench)


def test_founders_that_are_out_of_reach_do_not_count() -> None:
    bench = Bench(founders=2)
    bench.join("a")
    bench.run()
    bench.kill("a")
    assert bench.master is not None
    bench.do(bench.master.connection_closed(bench.now))
    bench.wait(1_200)
    bench.join("b")
    bench.run()
    assert _members(bench, "b") == ""
    assert "1 of them missing" in _explanation(bench)
    bench.join("c")
    bench.run()
    assert _members(bench, "b") == "bc"


def test_a_group_whose_members_have_all_left_begins_as_the_first_did() -> None:
    bench = Bench(founders=2)
    bench.join("a")
    bench.join("b")
    bench.run()
    for name in "ab":
        bench.perform(bench.peer(name), bench.peer(name).core.leave("", bench.now))
    bench.join("c")
    bench.run()
    assert _members(bench, "c") == ""
    bench.join("d")
    bench.run()
    assert _members(bench, "c") == "cd"


def test_a_master_that_restarts_before_the_founding_counts_those_that_come_back() -> None:
    bench = Bench(founders=2)
    bench.join("a", place=5)
    bench.run()
    bench.stop_master()
    bench.start_master()
    bench.reconnect("a")
    bench.join("b", place=4)
    bench.run()
    assert _members(bench, "a") == "ba"


def test_who_gives_up_learns_how_many_are_missing() -> None:
    bench = Bench(founders=4)
    bench.join("a")
    bench.join("b")
    bench.wait(299_000, step=500)
    assert bench.peer("a").ends() == []
    bench.wait(2_000)
    end = bench.peer("a").ends()[0]
    assert isinstance(end, Reject)
    assert end.status is Status.TIMEOUT
    assert "not admitted yet: group 0 begins with 4 founders, 2 of them missing" in end.text


def test_a_place_said_again_may_be_another_until_the_group_begins() -> None:
    bench = Bench(founders=2)
    bench.join("a", place=1)
    bench.run()
    bench.say("a", Register("10.0.0.1", 1000 + ord("a"), 1, 4, 9))
    bench.join("b", place=4)
    bench.run()
    assert _members(bench, "a") == "ba"
