# SPDX-License-Identifier: MIT
"""Traces as Chrome trace events, for Perfetto (https://ui.perfetto.dev) or chrome://tracing.

Pure. Each peer is a process named by its rank, each tag a thread of it: operations of one tag follow each other. An
operation is a span from its call to its end, with its phases inside; what happened to epochs and links are instants.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pccl.errors import Status
from pccl.trace.record import PENDING, Header, Operation, Trace

EVENTS_THREAD = 2**31 - 1


def events(traces: Sequence[Trace]) -> dict[str, Any]:
    """The object to be written as JSON. Times are microseconds of the wall clock."""
    found: list[dict[str, Any]] = []
    for number, trace in enumerate(traces, 1):
        found += _names(number, trace)
        for operation in trace.operations:
            found += _operation(number, trace.header, operation)
        found += [
            {
                "ph": "i",
                "s": "p",
                "pid": number,
                "tid": EVENTS_THREAD,
                "ts": trace.header.wall(event.at_ns) / 1000,
                "name": f"{event.kind} (epoch {event.epoch})",
                "args": {"text": event.text, "rank": event.rank, "peer": event.peer, "status": _status(event.status)},
            }
            for event in trace.events
        ]
    return {"traceEvents": found, "displayTimeUnit": "ms"}


def _names(number: int, trace: Trace) -> list[dict[str, Any]]:
    header = trace.header
    named = [("process_name", 0, f"{header.name} on {header.host}"), ("thread_name", EVENTS_THREAD, "epochs, links")]
    named += [("thread_name", _thread(tag), f"tag {tag}") for tag in dict.fromkeys(it.tag for it in trace.operations)]
    metadata: list[dict[str, Any]] = [
        {"ph": "M", "pid": number, "tid": tid, "name": kind, "args": {"name": text}} for kind, tid, text in named
    ]
    order: dict[str, Any] = {
        "ph": "M",
        "pid": number,
        "name": "process_sort_index",
        "args": {"sort_index": header.rank},
    }
    return [*metadata, order]


def _operation(number: int, header: Header, it: Operation) -> list[dict[str, Any]]:
    end = it.ended_ns or header.monotonic_ns
    args = {
        "epoch": it.epoch,
        "tag": it.tag,
        "sequence": it.sequence,
        "scope": it.scope,
        "status": _status(it.status),
        "bytes": it.payload_bytes,
        "sent": it.tx_bytes,
        "received": it.rx_bytes,
        "world size": it.world_size,
        "waits for": [wait.rank for wait in it.waits],
        "text": it.text,
    }
    spans = [(it.call, it.called_ns, end, args)]
    if it.started_ns:
        data_end = it.data_done_ns or end
        spans.append(("data", it.started_ns, data_end, {}))
        if it.data_done_ns:
            spans.append(("finish", it.data_done_ns, end, {}))
    return [
        {
            "ph": "X",
            "pid": number,
            "tid": _thread(it.tag),
            "name": name,
            "cat": "operation",
            "ts": header.wall(begin) / 1000,
            "dur": max(0, until - begin) / 1000,
            "args": more,
        }
        for name, begin, until, more in spans
    ]


def _thread(tag: int) -> int:
    """Viewers want small numbers."""
    return tag % (EVENTS_THREAD - 1)


def _status(status: int) -> str:
    if status == PENDING:
        return "not ended"
    try:
        return Status(status).name
    except ValueError:
        return str(status)
