# SPDX-License-Identifier: MIT
"""Traces laid side by side: operations by name on one clock, and the one to blame."""

from __future__ import annotations

from dataclasses import replace

from pccl import scope
from pccl.errors import Status
from pccl.trace import merge
from tests.traces import SECOND, WALL, event, operation, trace, waits


def test_operations_are_matched_by_name_and_set_on_one_clock() -> None:
    traces = [trace(rank, operation(rank, 0, 2, 3), operation(rank, 1, 4 + rank, 8)) for rank in range(3)]
    first, second = merge.rows(traces)
    assert first.name == (0, 7, 3, 0, 0)
    assert [it.operation.rank for it in second.entries] == [0, 1, 2]
    assert [it.started() - WALL for it in second.entries] == [rank * SECOND + 4 * SECOND + 1_000 for rank in range(3)]
    assert (second.began, second.failed, second.absent) == (WALL + 4 * SECOND, False, ())


def test_who_never_started_is_found_by_its_own_trace() -> None:
    open_ = [trace(rank, event(rank, "epoch", 1), operation(rank, 5, 2, 0)) for rank in range(2)]
    idle = trace(2, event(2, "epoch", 1))
    (row,) = merge.rows([*open_, idle])
    assert row.absent == (2,)
    assert merge.findings([*open_, idle])[0] == "group 0, epoch 7, tag 3 #5: never started by rank 2"


def test_who_never_started_is_found_by_what_others_noted() -> None:
    lost = operation(0, 5, 2, 9, status=int(Status.TIMEOUT), absent=True, waits_count=2, waits=waits(0, 1, 2))
    found = merge.findings([trace(0, lost)])
    assert found == [
        "group 0, epoch 7, tag 3 #5: never started by rank 1, rank 2",
        "waited for longest: rank 1 of group 0 in epoch 7, 7.00 s",
    ]


def test_a_trace_that_does_not_reach_back_blames_nobody() -> None:
    young = trace(2, event(2, "link_up", 50), operation(2, 9, 60, 61))
    (row, _) = merge.rows([trace(0, event(0, "epoch", 1), operation(0, 5, 2, 0)), young])
    assert row.absent == ()


def test_different_calls_under_one_name_are_named_with_their_ranks() -> None:
    traces = [trace(rank, operation(rank, 0, 2, 3, count=10 + (rank == 2))) for rank in range(3)]
    assert merge.findings(traces) == [
        "group 0, epoch 7, tag 3 #0: rank 0, rank 1 called all_reduce(float32[10], sum, ring); "
        "rank 2 called all_reduce(float32[11], sum, ring)"
    ]


def test_who_came_last_is_counted_beyond_the_skew_of_clocks() -> None:
    traces = [
        trace(
            rank,
            *(
                operation(rank, step, 10 * step + (3 if rank == 1 and step else 0.01 * rank), 10 * step + 5)
                for step in range(4)
            ),
        )
        for rank in range(3)
    ]
    assert merge.findings(traces) == [
        "rank 1 (peer 01010101) came last in 3 of 4 operations, up to 2.98 s after the others"
    ]


def test_the_first_stop_of_an_epoch_is_named() -> None:
    traces = [
        trace(0, event(0, "frozen", 5.2, text="rank 1 stopped: the link broke", status=11)),
        trace(1, event(1, "frozen", 5.1, text="the link to rank 2 broke", status=5, rank=2, peer="02" * 16)),
    ]
    assert merge.findings(traces) == [
        "group 0: epoch 7 was first stopped at rank 1 (peer 01010101): the link to rank 2 broke"
    ]


def test_nothing_is_no_trouble() -> None:
    assert merge.rows([]) == merge.findings([]) == merge.timeline([]) == []
    assert merge.findings([trace(0)]) == []


def test_a_send_and_its_receive_are_one_row_and_agree() -> None:
    pair = {"scope": scope.of_pair(0, 2), "tag": 3}
    there = operation(0, 0, 10, 11, collective="send", **pair)
    back = operation(2, 0, 10, 11, collective="recv", **pair)
    waiting = trace(1, operation(1, 0, 1, 2))
    found = [row for row in merge.rows([trace(0, there), waiting, trace(2, back)]) if row.name[-1]]
    assert [(row.name, row.absent) for row in found] == [((0, 7, 3, 0, scope.of_pair(0, 2)), ())]
    assert there.call == "send(float32[10], to rank 2)"
    assert back.call == "recv(float32[10], from rank 0)"
    assert there.agreed == back.agreed
    title = "group 0, epoch 7, tag 3 #0 from rank 0 to rank 2"
    odd = replace(back, count=9)
    assert f"{title}: rank 0 called {there.call}; rank 2 called {odd.call}" in merge.findings(
        [trace(0, there), trace(2, odd)]
    )
    lonely = operation(0, 0, 10, 0, collective="send", absent=True, waits=waits(0, 2), waits_count=1, **pair)
    assert f"{title}: never started by rank 2" in merge.findings([trace(0, lonely), waiting, trace(2)])
