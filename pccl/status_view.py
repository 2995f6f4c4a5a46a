# SPDX-License-Identifier: MIT
"""A master's status for people (rich tables) and for programs (plain data).

Pure: it gets a StatusAnswer and gives what is to be shown. Whatever is out of order comes first and in words; the table
of members is for looking it up.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pccl.messages import OperationName, StatusAnswer, StatusGroup, StatusMember
from pccl.protocol.topology import Shape

SHOWN_RANKS = 64
_INSTEAD: dict[int, str] = {
    Shape.FULL: "no operation needs it",
    Shape.RING: "all operations go round a ring instead",
    Shape.TREE: "all operations go along a tree instead",
}
COLUMNS = ("group", "rank", "peer", "address", "host", "heard", "kept waiting", "waits in")


def plain(answer: StatusAnswer) -> dict[str, Any]:
    """For JSON: the fields by name; counts as one object, shapes by name, links as pairs."""
    data = dataclasses.asdict(answer)
    for group, shown in zip(answer.groups, data["groups"], strict=True):
        shown["shape"] = Shape(group.shape).name
        for name in ("avoided", "broken"):
            shown[name] = list(zip(shown[name][::2], shown[name][1::2], strict=False))
    data["counts"] = {it.event: it.count for it in answer.counts}
    return data


def render(address: str, answer: StatusAnswer) -> RenderableType:
    """All of it."""
    parts: list[RenderableType] = [Text(heading(address, answer), style="bold")]
    parts += [Text(line, style="yellow") for line in troubles(answer)]
    parts.append(_members(answer))
    parts += [Text(_group(group)) for group in answer.groups]
    for it in answer.newcomers:
        where = f"{it.address}:{it.port} for group {it.group}"
        parts.append(Text(f"newcomer: peer {it.name} at {where}, heard {duration(it.heard_ms)} ago"))
    parts.append(Text(_footing(answer), style="dim"))
    return Group(*parts)


def heading(address: str, answer: StatusAnswer) -> str:
    """The run in one line."""
    census, newcomers = answer.census, len(answer.newcomers)
    return (
        f"{address}: {census.peers} peer{_s(census.peers)} in {census.groups} group{_s(census.groups)}, "
        f"{newcomers} newcomer{_s(newcomers)}, epoch {answer.epoch}, up {duration(answer.uptime_ms)}"
    )


def troubles(answer: StatusAnswer) -> list[str]:
    """What somebody waits for, one line each; empty when all is well."""
    lines = [
        f"group {it.group}: epoch {it.epoch} is stopped since {duration(it.stopped_ms)}; reports missing: "
        f"{_ranks(it.missing) or 'none'}"
        for it in answer.groups
        if it.stopped_ms
    ]
    for call in answer.calls:
        scope = f" of group {call.group}" if call.one_group else ""
        made = f"{call.voted} of {call.voters} since {duration(call.waited_ms)}"
        lines.append(f"{call.name}{scope}: {made}; waits for {call.waits}")
    for group in answer.groups:
        if group.avoided:
            lines.append(f"group {group.group}: no link between ranks {_pairs(group.avoided)}; {_INSTEAD[group.shape]}")
        if group.broken:
            lines.append(f"group {group.group}: links that broke lately: between ranks {_pairs(group.broken)}")
    by_operation: dict[tuple[int, int, OperationName], list[Any]] = {}
    for stall in answer.stalls:
        by_operation.setdefault((stall.group, stall.epoch, stall.operation), []).append(stall)
    names = {(it.group, it.rank): it.name for it in answer.members}
    for (number, epoch, operation), stalls in by_operation.items():
        absent = list(dict.fromkeys(rank for it in stalls if it.absent for rank in it.ranks))
        waited = duration(max(it.waited_ms for it in stalls))
        where = f"group {number}: {operation.short} of epoch {epoch} waits since {waited}"
        if absent:
            who = ", ".join(f"rank {rank} (peer {names.get((number, rank), '?')})" for rank in absent)
            lines.append(f"{where} for {who} to start it")
        else:
            waiting = "; ".join(f"rank {it.rank} for {_ranks(it.ranks) or 'others'}" for it in stalls)
            lines.append(f"{where}: {waiting}")
    for member in answer.members:
        if member.suspected:
            lines.append(f"{_name(member)} is suspected and probed")
        if member.returning:
            lines.append(f"{_name(member)} has not come back since the master's restart")
    return lines


def duration(milliseconds: int) -> str:
    """As "12 ms", "3.4 s", "5 min 06 s", "2 h 05 min"."""
    seconds = milliseconds // 1000
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    if seconds < 60:
        return f"{milliseconds / 1000:.1f} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60:02d} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60:02d} min"


def _members(answer: StatusAnswer) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in COLUMNS:
        right = column in ("group", "rank", "heard")
        table.add_column(column, justify="right" if right else "left", no_wrap=column == "address", overflow="fold")
    hosts: dict[int, str] = {}
    for it in answer.members:
        host = hosts.setdefault(it.host_id, chr(ord("A") + len(hosts)) if len(hosts) < 26 else f"{len(hosts)}")
        if it.cores:
            host += f", {it.cores} core{_s(it.cores)}"
        late = f"{it.late} times, {duration(it.late_ms)} at most" if it.late else ""
        heard = duration(it.heard_ms) + ("" if it.connected else ", away")
        table.add_row(
            str(it.group), str(it.rank), it.name, f"{it.address}:{it.port}", host, heard, late, Text(it.waits)
        )
    left_out = answer.census.peers - len(answer.members)
    if left_out > 0:
        table.add_row("", "", f"and {left_out} more")
    return table


def _group(group: StatusGroup) -> str:
    more = f" and {group.size - SHOWN_RANKS} more" if group.size > SHOWN_RANKS else ""
    return f"group {group.group}: epoch {group.epoch} ({group.cause}), {_arrangement(group)}{more}"


def _arrangement(group: StatusGroup) -> str:
    """Which links operations use."""
    ranks = " ".join(str(rank) for rank in group.ring[:SHOWN_RANKS])
    if group.shape == Shape.FULL:
        return f"all links, ring {ranks}"
    if group.shape == Shape.RING:
        return f"only the links of ring {ranks}"
    places = [place for place in enumerate(group.parents[:SHOWN_RANKS]) if max(place) < len(group.ring)]
    ends = [rank for child, parent in places[1:] for rank in (group.ring[parent], group.ring[child])]
    return f"tree {_pairs(ends)}"


def _footing(answer: StatusAnswer) -> str:
    counts = ", ".join(f"{it.event} {it.count}" for it in answer.counts)
    kept = f"journal {answer.journal_bytes} bytes" if answer.journal_bytes else "no journal"
    return f"since the master's start: {counts or 'nothing'}; {answer.records} records, {kept}"


def _name(member: StatusMember) -> str:
    return f"rank {member.rank} of group {member.group} (peer {member.name})"


def _pairs(ends: Sequence[int]) -> str:
    """As "0-2, 1-2"."""
    return ", ".join(f"{one}-{other}" for one, other in zip(ends[::2], ends[1::2], strict=False))


def _ranks(ranks: tuple[int, ...]) -> str:
    return ", ".join(f"rank {rank}" for rank in ranks)


def _s(count: int) -> str:
    return "" if count == 1 else "s"
