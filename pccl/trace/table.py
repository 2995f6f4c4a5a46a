# SPDX-License-Identifier: MIT
"""Traces for people (rich tables) and for programs (plain data). Pure."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pccl.errors import Status
from pccl.trace import merge
from pccl.trace.merge import Entry, Row
from pccl.trace.record import PENDING, Trace

EVENTS_SHOWN = 30


def plain(traces: Sequence[Trace]) -> dict[str, Any]:
    """For JSON: what each file holds, and the findings."""
    return {"findings": merge.findings(traces), "traces": [dataclasses.asdict(trace) for trace in traces]}


def render(traces: Sequence[Trace], last: int) -> RenderableType:
    """The findings, the `last` operations and the last events."""
    table = merge.rows(traces)
    parts: list[RenderableType] = [Text(_title(trace), style="bold") for trace in traces]
    parts += [Text(line, style="yellow") for line in merge.findings(traces)]
    parts.append(_operations(table[-last:] if last else table, len(table)))
    parts.append(_events(traces))
    return Group(*parts)


def _title(trace: Trace) -> str:
    it = trace.header
    text = f": {it.text}" if it.text else ""
    return (
        f"{it.name} of group {it.group} in epoch {it.epoch}, {it.host} process {it.pid}, "
        f"{len(trace.operations)} operations, taken {_clock(it.wall_ns)} ({it.reason}{text})"
    )


def _operations(shown: Sequence[Row], known: int) -> Table:
    more = f"operations, the last {len(shown)} of {known}" if len(shown) < known else "operations"
    table = Table(title=more, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in ("began", "epoch", "tag", "call", "bytes", "ranks"):
        table.add_column(column, justify="right" if column in ("epoch", "bytes") else "left", overflow="fold")
    for row in shown:
        first = row.entries[0].operation
        _, epoch, tag, sequence, _ = row.name
        ranks = [_entry(it) for it in row.entries] + [f"{rank} not started" for rank in row.absent]
        style = "red" if row.failed else ""
        table.add_row(
            _clock(row.began),
            str(epoch),
            f"{tag} #{sequence}",
            Text(first.call),
            str(first.payload_bytes),
            Text("; ".join(ranks)),
            style=style,
        )
    return table


def _entry(entry: Entry) -> str:
    """As "0 1.2 ms", "1 PEER_LOST after 3.4 s, waited for rank 2"."""
    it = entry.operation
    took = f"{entry.waited_ns() / 1e6:.1f} ms"
    if it.status == Status.OK:
        return f"{it.rank} {took}"
    waits = ", ".join(str(wait.rank) for wait in it.waits)
    verb = "not started by" if it.absent else "waits for" if it.status == PENDING else "waited for"
    whom = f", {verb} rank {waits}" if waits else ""
    if it.status == PENDING:
        return f"{it.rank} runs for {took}{whom}"
    try:
        name = Status(it.status).name
    except ValueError:
        name = f"status {it.status}"
    return f"{it.rank} {name} after {took}{whom}"


def _events(traces: Sequence[Trace]) -> Table:
    table = Table(title="events", title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in ("at", "seen by", "epoch", "event", "text"):
        table.add_column(column, justify="right" if column == "epoch" else "left", overflow="fold")
    for at, header, event in merge.timeline(traces)[-EVENTS_SHOWN:]:
        about = f" rank {event.rank}" if event.peer else ""
        table.add_row(_clock(at), f"rank {header.rank}", str(event.epoch), event.kind + about, Text(event.text))
    return table


def _clock(wall_ns: int) -> str:
    """Local time with microseconds; what a damaged file claims is shown as it is."""
    try:
        return time.strftime("%H:%M:%S", time.localtime(wall_ns // 10**9)) + f".{wall_ns // 1000 % 10**6:06d}"
    except (OverflowError, ValueError, OSError):
        return f"{wall_ns} ns"
