# SPDX-License-Identifier: MIT
"""A master's status for people (rich tables) and for programs (plain data).

Pure: it gets a StatusAnswer and gives what is to be shown. Whatever is out of order comes first and in words; the table
of members is for looking it up.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pccl.messages import StatusAnswer, StatusGroup, StatusMember

SHOWN_RANKS = 64
COLUMNS = ("group", "rank", "peer", "address", "host", "heard", "kept waiting", "waits in")


def plain(answer: StatusAnswer) -> dict[str, Any]:
    """For JSON: the fields by name; counts as one object."""
    data = dataclasses.asdict(answer)
    data["counts"] = {it.event: it.count for it in answer.counts}
    return data


def render(address: str, answer: StatusAnswer) -> RenderableType:
    """All of it."""
    parts: list[RenderableType] = [Text(heading(address, answer), style="bold")]
    parts += [Text(line, style="yellow") for line in troubles(answer)]
    parts.append(_members(answer))
    parts += [Text(_ring(group)) for group in answer.groups]
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
        pairs = zip(group.broken[::2], group.broken[1::2], strict=False)
        lines += [f"group {group.group}: the link between rank {a} and rank {b} broke lately" for a, b in pairs]
    by_operation: dict[tuple[int, int, int, int], list[Any]] = {}
    for stall in answer.stalls:
        by_operation.setdefault((stall.group, stall.epoch, stall.tag, stall.sequence), []).append(stall)
    names = {(it.group, it.rank): it.name for it in answer.members}
    for (number, epoch, tag, sequence), stalls in by_operation.items():
        absent = list(dict.fromkeys(rank for it in stalls if it.absent for rank in it.ranks))
        waited = duration(max(it.waited_ms for it in stalls))
        where = f"group {number}: tag {tag} #{sequence} of epoch {epoch} waits since {waited}"
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
        late = f"{it.late} times, {duration(it.late_ms)} at most" if it.late else ""
        heard = duration(it.heard_ms) + ("" if it.connected else ", away")
        table.add_row(
            str(it.group), str(it.rank), it.name, f"{it.address}:{it.port}", host, heard, late, Text(it.waits)
        )
    left_out = answer.census.peers - len(answer.members)
    if left_out > 0:
        table.add_row("", "", f"and {left_out} more")
    return table


def _ring(group: StatusGroup) -> str:
    ranks = " ".join(str(rank) for rank in group.ring[:SHOWN_RANKS])
    more = f" and {group.size - SHOWN_RANKS} more" if group.size > SHOWN_RANKS else ""
    return f"group {group.group}: epoch {group.epoch} ({group.cause}), ring {ranks}{more}"


def _footing(answer: StatusAnswer) -> str:
    counts = ", ".join(f"{it.event} {it.count}" for it in answer.counts)
    kept = f"journal {answer.journal_bytes} bytes" if answer.journal_bytes else "no journal"
    return f"since the master's start: {counts or 'nothing'}; {answer.records} records, {kept}"


def _name(member: StatusMember) -> str:
    return f"rank {member.rank} of group {member.group} (peer {member.name})"


def _ranks(ranks: tuple[int, ...]) -> str:
    return ", ".join(f"rank {rank}" for rank in ranks)


def _s(count: int) -> str:
    return "" if count == 1 else "s"
