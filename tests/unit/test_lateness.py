# SPDX-License-Identifier: MIT
"""Who keeps others waiting: the slow one is counted, its victims are not, and what has gone on is forgotten."""

from __future__ import annotations

from pccl.errors import Status
from pccl.messages import OperationName, Stalled
from pccl.protocol.lateness import GRACE_MS, MAX_OPERATIONS, Late, Lateness
from pccl.protocol.roster import Gathering, Group
from pccl.protocol.types import GroupView

A, B, C = (letter * 16 for letter in (b"a", b"b", b"c"))


def group_of(epoch: int = 4) -> Group:
    view = GroupView(epoch, 3, 0, (A, B, C), (0, 1, 2), (), (), Status.OK, "")
    return Group(view, [A, B, C])


def stalled(sequence: int, waited_ms: int, *ranks: int, absent: bool = True, epoch: int = 4) -> Stalled:
    return Stalled(epoch, OperationName(1, sequence), waited_ms, ranks, absent)


def test_an_absent_member_is_late_once_an_operation_however_many_wait() -> None:
    lateness, group = Lateness(), group_of()
    for reporter, waited in ((A, 300), (B, 310), (A, 900)):
        lateness.note(group, reporter, stalled(0, waited, 2), waited)
    lateness.note(group, A, stalled(1, 300, 2), 2_000)
    assert lateness.of(C) == Late(2, 900)
    assert lateness.of(A) == lateness.of(B) == Late()


def test_waiting_neighbours_are_not_to_blame() -> None:
    lateness, group = Lateness(), group_of()
    lateness.note(group, A, stalled(0, 100, 1, absent=False), 100)
    assert lateness.of(B) == Late()
    (stall,) = lateness.stalls(group, 150)
    assert (stall.rank, stall.ranks, stall.absent, stall.waited_ms) == (0, (1,), False, 150)


def test_a_report_stands_until_the_next_one_is_overdue() -> None:
    lateness, group = Lateness(), group_of()
    lateness.note(group, A, stalled(0, 300, 2), 1_000)
    assert [it.waited_ms for it in lateness.stalls(group, 1_600)] == [900]
    assert lateness.stalls(group, 1_000 + 2 * 300 + GRACE_MS + 1) == []


def test_a_report_is_taken_back() -> None:
    lateness, group = Lateness(), group_of()
    for reporter in (A, B):
        lateness.note(group, reporter, stalled(0, 300, 2), 1_000)
    lateness.note(group, A, stalled(0, 0), 1_010)
    assert [it.rank for it in lateness.stalls(group, 1_020)] == [1]
    lateness.note(group, A, stalled(9, 0), 1_020)
    assert lateness.of(C) == Late(1, 300)


def test_only_the_epoch_that_runs_counts() -> None:
    lateness, group = Lateness(), group_of()
    lateness.note(group, A, stalled(0, 300, 2, epoch=3), 1_000)
    assert lateness.of(C) == Late()
    lateness.note(group, A, stalled(0, 300, 2), 1_000)
    assert lateness.stalls(group_of(epoch=5), 1_000) == []
    group.gathering = Gathering(1_000)
    assert lateness.stalls(group, 1_000) == []


def test_ranks_beyond_the_view_and_departed_peers_do_no_harm() -> None:
    lateness, group = Lateness(), group_of()
    lateness.note(group, A, stalled(0, 300, 2, 99), 1_000)
    lateness.drop(C)
    lateness.drop(A)
    assert lateness.of(C) == Late()
    assert lateness.stalls(group, 1_000) == []


def test_memory_is_bounded() -> None:
    lateness, group = Lateness(), group_of()
    for sequence in range(MAX_OPERATIONS + 3):
        lateness.note(group, A, stalled(sequence, 300, 2), 1_000)
    stalls = lateness.stalls(group, 1_000)
    assert [it.operation.sequence for it in stalls] == list(range(3, MAX_OPERATIONS + 3))
