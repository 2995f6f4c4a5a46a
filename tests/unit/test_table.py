# SPDX-License-Identifier: MIT
"""A trace as a table: one row per operation with what each rank did, the findings above it."""

from __future__ import annotations

import io
import json

from rich.console import Console

from pccl.errors import Status
from pccl.trace.record import Trace
from pccl.trace.table import plain, render
from tests.traces import event, operation, trace, waits


def shown(*traces: Trace, last: int = 0) -> str:
    console = Console(file=io.StringIO(), width=240)
    console.print(render(traces, last))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_ranks_are_side_by_side() -> None:
    failed = operation(1, 1, 4, 6, status=int(Status.TIMEOUT), absent=True, waits_count=1, waits=waits(1, 2))
    text = shown(
        trace(0, operation(0, 0, 2, 3), operation(0, 1, 4, 0, waits_count=1, waits=waits(0, 1))),
        trace(1, operation(1, 0, 2, 2.5), failed, event(1, "frozen", 6, rank=2, peer="02" * 16, text="[red]markup")),
    )
    assert "0 1000.0 ms; 1 500.0 ms" in text
    assert "0 runs for 96000.0 ms, waits for rank 1; 1 TIMEOUT after 2000.0 ms, not started by rank 2" in text
    assert "2 not started" in text
    assert "never started by rank 2" in text
    assert "frozen rank 2" in text
    assert "[red]markup" in text
    assert "rank 0 (peer 00000000) of group 0 in epoch 7, host0 process 100, 2 operations" in text


def test_the_last_operations_are_shown_and_the_rest_counted() -> None:
    text = shown(trace(0, *(operation(0, step, step, step + 0.5) for step in range(9))), last=4)
    assert "the last 4 of 9" in text
    assert "3 #8" in text
    assert "3 #4" not in text


def test_impossible_times_and_statuses_are_shown_as_they_are() -> None:
    odd = operation(0, 0, 2, 3, status=77, called_ns=2**64 - 1, ended_ns=2**64 - 1)
    assert "status 77" in shown(trace(0, odd, wall_ns=2**64 - 1, monotonic_ns=0))


def test_plain_is_json() -> None:
    data = json.loads(json.dumps(plain([trace(0, operation(0, 0, 2, 3))])))
    assert data["findings"] == []
    assert data["traces"][0]["operations"][0]["sequence"] == 0
