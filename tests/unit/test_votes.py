# SPDX-License-Identifier: MIT
"""The box of open votes: counts, and clashes that could never be resolved."""

from __future__ import annotations

import pytest

from pccl.protocol.types import VoteKind
from pccl.protocol.votes import Open, VoteBox

UPDATE, PENDING = VoteKind.UPDATE_TOPOLOGY, VoteKind.ARE_PEERS_PENDING
SYNC = VoteKind.SYNC_SHARED_STATE


def _vote(name: str, kind: VoteKind, group: int = 0, call: int = 1) -> Open:
    return Open(name.encode() * 16, group, call, kind, b"", name, since=0)


def test_votes_are_counted_by_scope() -> None:
    box = VoteBox()
    assert box.cast(_vote("a", UPDATE, 0)) == ""
    assert box.cast(_vote("b", UPDATE, 1)) == ""
    assert box.cast(_vote("c", SYNC, 2)) == ""
    assert box.run_count() == 2
    assert [it.peer[:1] for it in box.run_votes()] == [b"a", b"b"]
    assert box.group_count(2) == 1
    assert box.voted_groups() == [2]
    assert box.voters(1) == [b"b" * 16]
    assert box.voters(2) == [b"c" * 16]


@pytest.mark.parametrize(
    ("first", "second", "clashes"),
    [
        (("a", UPDATE, 0), ("b", PENDING, 0), True),
        (("a", UPDATE, 0), ("b", PENDING, 1), True),
        (("a", UPDATE, 0), ("b", SYNC, 0), True),
        (("a", SYNC, 0), ("b", UPDATE, 0), True),
        (("a", UPDATE, 0), ("b", SYNC, 1), False),
        (("a", SYNC, 0), ("b", UPDATE, 1), False),
        (("a", SYNC, 0), ("b", SYNC, 0), False),
        (("a", UPDATE, 0), ("b", UPDATE, 1), False),
    ],
)
def test_only_votes_that_wait_for_each_other_clash(
    first: tuple[str, VoteKind, int], second: tuple[str, VoteKind, int], clashes: bool
) -> None:
    box = VoteBox()
    assert box.cast(_vote(*first)) == ""
    clash = box.cast(_vote(*second))
    assert bool(clash) == clashes
    if clashes:
        assert clash.startswith("a called ")
        assert "while b called " in clash
        assert [it.peer[:1] for it in box.stuck_with(_vote(*second))] in ([b"a", b"b"], [b"b", b"a"])


def test_a_group_that_clashes_fails_the_votes_of_the_run_but_not_other_groups() -> None:
    box = VoteBox()
    for vote in (_vote("a", UPDATE, 0), _vote("b", UPDATE, 1), _vote("c", SYNC, 2)):
        assert box.cast(vote) == ""
    clashing = _vote("d", SYNC, 0)
    assert box.cast(clashing)
    assert [it.peer[:1] for it in box.stuck_with(clashing)] == [b"a", b"b", b"d"]


def test_a_dropped_vote_leaves_nothing_behind() -> None:
    box = VoteBox()
    assert box.cast(_vote("a", UPDATE)) == ""
    box.drop(b"a" * 16, 0)
    box.drop(b"a" * 16, 0)
    assert box.run_count() == 0
    assert box.cast(_vote("a", SYNC)) == ""
    box.drop(b"a" * 16, 0)
    assert box.voted_groups() == []
    assert box.cast(_vote("b", PENDING)) == ""
