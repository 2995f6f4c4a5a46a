# SPDX-License-Identifier: MIT
"""Chrome trace events: what Perfetto needs of each, spans within their operation, names of processes and threads."""

from __future__ import annotations

import json
from typing import Any

from pccl.trace.chrome import events
from tests.traces import TAKEN, WALL, event, operation, trace, waits

MICROSECONDS = 10**6


def of(kind: str, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [it for it in found if it["ph"] == kind]


def test_operations_are_spans_with_their_phases_inside() -> None:
    made = json.loads(json.dumps(events([trace(1, operation(1, 4, 2, 5))])))
    whole, data, finish = of("X", made["traceEvents"])
    assert (whole["name"], data["name"], finish["name"]) == ("all_reduce(float32[10], sum, ring)", "data", "finish")
    assert whole["ts"] == WALL / 1000 + 2 * MICROSECONDS
    assert whole["dur"] == 3 * MICROSECONDS
    assert whole["args"]["status"] == "OK"
    for phase in (data, finish):
        assert whole["ts"] <= phase["ts"]
        assert phase["ts"] + phase["dur"] <= whole["ts"] + whole["dur"]
        assert (phase["pid"], phase["tid"]) == (whole["pid"], whole["tid"])


def test_an_open_operation_lasts_until_the_trace_was_taken() -> None:
    open_ = operation(0, 4, 2, 0, waits_count=1, waits=waits(0, 2), called_ns=0)
    whole, data = of("X", events([trace(0, open_)])["traceEvents"])
    assert (whole["args"]["status"], whole["args"]["waits for"]) == ("not ended", [2])
    assert data["dur"] == (TAKEN - 2) * MICROSECONDS - 1


def test_processes_threads_and_events_have_names() -> None:
    found = events([trace(rank, operation(rank, 0, 1, 2), event(rank, "epoch", 1)) for rank in range(2)])["traceEvents"]
    names = [it["args"]["name"] for it in of("M", found) if it["name"] == "process_name"]
    assert names == ["rank 0 (peer 00000000) on host0", "rank 1 (peer 01010101) on host1"]
    assert {it["args"]["name"] for it in of("M", found) if it["name"] == "thread_name"} == {"epochs, links", "tag 3"}
    assert [(it["name"], it["s"]) for it in of("i", found)] == [("epoch (epoch 7)", "p")] * 2
