# SPDX-License-Identifier: MIT
"""What the traces of several peers say together, on one clock, and who is to blame.

Pure. The one idea: an operation has one name on all members (group, epoch, tag, sequence, scope), so the traces are
laid side by side by that name. Who did what, who came last and who never came is then a comparison of lines; a member
whose trace is missing is judged by what the others noted about it.

Clocks of different hosts are as far apart as NTP leaves them; lateness below SKEW_NS is not held against anyone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pccl import scope
from pccl.errors import Status
from pccl.trace.record import PENDING, Event, Header, Operation, Trace

SKEW_NS = 50_000_000
MISSING_NAMED = 5

Name = tuple[int, int, int, int, int]
"""Group, epoch, tag, sequence, scope."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One peer's record of an operation."""

    header: Header
    operation: Operation

    def started(self) -> int:
        """Wall nanoseconds; 0 if it never began."""
        return self.header.wall(self.operation.started_ns) if self.operation.started_ns else 0

    def ended(self) -> int:
        """Wall nanoseconds; of an open one, when the trace was taken."""
        return self.header.wall(self.operation.ended_ns or self.header.monotonic_ns)

    def waited_ns(self) -> int:
        """From its call to its end."""
        return (self.operation.ended_ns or self.header.monotonic_ns) - self.operation.called_ns


@dataclass(frozen=True, slots=True)
class Row:
    """One operation on all peers whose traces are there, by rank. `absent`: ranks that others saw not to have started
    it, or whose trace lacks it while it covers its time."""

    name: Name
    entries: tuple[Entry, ...]
    absent: tuple[int, ...]

    @property
    def began(self) -> int:
        """Wall nanoseconds of the first call."""
        return min(it.header.wall(it.operation.called_ns) for it in self.entries)

    @property
    def failed(self) -> bool:
        """Whether it did not succeed everywhere, as far as is known."""
        return any(it.operation.status != Status.OK for it in self.entries)


def rows(traces: Sequence[Trace]) -> list[Row]:
    """All operations in the order of their beginnings."""
    found: dict[Name, list[Entry]] = {}
    for trace in traces:
        for operation in trace.operations:
            name = (trace.header.group, operation.epoch, operation.tag, operation.sequence, operation.scope)
            if operation.started_ns:
                found.setdefault(name, []).append(Entry(trace.header, operation))
    made = []
    for name, entries in found.items():
        entries.sort(key=lambda it: it.operation.rank)
        made.append(Row(name, tuple(entries), _absent(name, entries, traces)))
    return sorted(made, key=lambda row: row.began)


def timeline(traces: Sequence[Trace]) -> list[tuple[int, Header, Event]]:
    """All events with their wall times, in order."""
    events = [(trace.header.wall(event.at_ns), trace.header, event) for trace in traces for event in trace.events]
    return sorted(events, key=lambda it: it[0])


def findings(traces: Sequence[Trace]) -> list[str]:
    """What is out of order, in words, the most telling first."""
    table = rows(traces)
    lines = _differences(table)
    lines += [f"{_title(row.name)}: never started by {_ranks(row.absent)}" for row in table if row.absent][-10:]
    lines += _first_failure(traces)
    lines += _latest(table)
    return lines


# ---------------------------------------------------------------------------------------------- parts


def _absent(name: Name, entries: Sequence[Entry], traces: Sequence[Trace]) -> tuple[int, ...]:
    group, epoch, _, _, whose = name
    there = {it.operation.rank for it in entries}
    world_size = entries[0].operation.world_size
    missing = [
        wait.rank
        for it in entries
        if it.operation.absent and it.operation.status != Status.OK
        for wait in it.operation.waits
    ]
    began = min(it.started() for it in entries)
    for trace in traces if not scope.is_subgroup(whose) else ():
        header = trace.header
        same_view = header.group == group and header.epoch == epoch and header.rank < world_size
        if same_view and _oldest(trace) <= began and any(it.operation.status == PENDING for it in entries):
            missing.append(header.rank)
    return tuple(sorted({rank for rank in missing if rank not in there and scope.has(whose, rank, missing)}))


def _oldest(trace: Trace) -> int:
    """The wall time from which on the trace knows everything: its ring has dropped nothing since."""
    times = [it.called_ns for it in trace.operations] + [it.at_ns for it in trace.events if it.kind == "epoch"]
    return trace.header.wall(min(times, default=trace.header.monotonic_ns))


def _differences(table: Sequence[Row]) -> list[str]:
    lines: list[str] = []
    for row in table:
        calls: dict[str, list[int]] = {}
        for entry in row.entries:
            calls.setdefault(entry.operation.call, []).append(entry.operation.rank)
        if len({entry.operation.agreed for entry in row.entries}) > 1:
            said = "; ".join(f"{_ranks(ranks)} called {call}" for call, ranks in calls.items())
            lines.append(f"{_title(row.name)}: {said}")
    return lines


def _first_failure(traces: Sequence[Trace]) -> list[str]:
    """The first stop of each epoch; the others only heard of it."""
    lines: list[str] = []
    seen: set[tuple[int, int]] = set()
    for _, header, event in timeline(traces):
        key = (header.group, event.epoch)
        if event.kind in ("frozen", "halted") and key not in seen and event.status != Status.CLOSED:
            seen.add(key)
            lines.append(f"group {key[0]}: epoch {key[1]} was first stopped at {header.name}: {event.text}")
    return lines


def _latest(table: Sequence[Row]) -> list[str]:
    """Who came last, by how much; and whom the others waited for longest where no trace tells."""
    late: dict[str, list[int]] = {}
    compared = 0
    waited: dict[tuple[int, int, int], int] = {}
    for row in table:
        starts = sorted([(it.started(), it.header.name) for it in row.entries])
        if len(starts) > 1:
            compared += 1
            behind = starts[-1][0] - starts[-2][0]
            if behind > SKEW_NS:
                late.setdefault(starts[-1][1], []).append(behind)
        for entry in row.entries:
            for wait in entry.operation.waits:
                key = (*row.name[:2], wait.rank)
                waited[key] = max(waited.get(key, 0), entry.waited_ns())
    lines = []
    for name, times in sorted(late.items(), key=lambda it: -sum(it[1])):
        worst = f"up to {max(times) / 1e9:.2f} s after the others"
        lines.append(f"{name} came last in {len(times)} of {compared} operations, {worst}")
    if waited:
        group, epoch, rank = max(waited, key=lambda it: waited[it])
        longest = waited[group, epoch, rank] / 1e9
        lines.append(f"waited for longest: rank {rank} of group {group} in epoch {epoch}, {longest:.2f} s")
    return lines


def _title(name: Name) -> str:
    group, epoch, tag, sequence, whose = name
    return f"group {group}, epoch {epoch}, tag {tag} #{sequence}{scope.words(whose)}"


def _ranks(ranks: Sequence[int]) -> str:
    shown = ", ".join(f"rank {rank}" for rank in ranks[:MISSING_NAMED])
    return shown + (f" and {len(ranks) - MISSING_NAMED} more" if len(ranks) > MISSING_NAMED else "")
