# SPDX-License-Identifier: MIT
"""Traces made by hand, for tests of what is read out of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pccl.trace.record import Event, Header, Operation, Trace, TraceMember, Wait

SECOND = 10**9
BOOT = 5_000 * SECOND
"""The recording hosts' monotonic clock at second 0 of a story; each rank's is a bit further."""
WALL = 1_700_000_000 * SECOND
TAKEN = 100

MEMBERS = tuple(TraceMember(f"{rank:02x}" * 16, "10.0.0.1", 4000 + rank) for rank in range(3))


def clock(rank: int, seconds: float) -> int:
    """Monotonic nanoseconds of a rank's host, so many seconds into the story."""
    return BOOT + rank * 1_000 * SECOND + round(seconds * SECOND)


def header(rank: int, **changed: Any) -> Header:
    """Taken TAKEN seconds into the story."""
    made = Header(MEMBERS[rank].peer, 0, rank, 7, f"host{rank}", 100 + rank, "asked", "", 0, 0, MEMBERS)
    return replace(made, **{"wall_ns": WALL + TAKEN * SECOND, "monotonic_ns": clock(rank, TAKEN), **changed})


def operation(rank: int, sequence: int, start: float, end: float, **changed: Any) -> Operation:
    """A good one, unless changed; `end` 0: still open."""
    called, ended = clock(rank, start), clock(rank, end) if end else 0
    made = Operation(
        epoch=7,
        tag=3,
        sequence=sequence,
        scope=0,
        collective="all_reduce",
        dtype="float32",
        op="sum",
        algorithm="ring",
        deferred=False,
        count=10,
        payload_bytes=40,
        world_size=3,
        rank=rank,
        status=0 if end else 16,
        called_ns=called,
        started_ns=called + 1_000,
        ended_ns=ended,
        data_done_ns=ended - 1_000 if end else 0,
        tx_bytes=40,
        rx_bytes=40,
        last_peer=MEMBERS[0].peer,
        absent=False,
        waits_count=0,
        waits=(),
        text="",
    )
    return replace(made, **changed)


def event(seen_by: int, kind: str, at: float, **changed: Any) -> Event:
    """On the clock of the rank that saw it."""
    return replace(Event(kind, clock(seen_by, at), 7, 3, seen_by, "", 0, ""), **changed)


def waits(rank: int, *ranks: int) -> tuple[Wait, ...]:
    """Rank `rank` waits for these, whom it heard a second into the story."""
    return tuple(Wait(it, clock(rank, 1)) for it in ranks)


def trace(rank: int, *records: Operation | Event, **changed: Any) -> Trace:
    operations = tuple(it for it in records if isinstance(it, Operation))
    return Trace(header(rank, **changed), operations, tuple(it for it in records if isinstance(it, Event)))
