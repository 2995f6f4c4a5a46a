# SPDX-License-Identifier: MIT
"""What a flight recorder remembers, as plain data.

What for: the words that the engine's wrapper, the file format and its readers share. Must not know: files, the engine,
how anything is shown.

All times are nanoseconds of the recording host's monotonic clock, 0 for "it never came to that"; `Header.wall_ns` and
`Header.monotonic_ns` are one moment on both clocks, which is how traces of several hosts are brought together.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pccl import scope
from pccl.errors import Status

PENDING = int(Status.PENDING)

EVENT_KINDS = ("epoch", "frozen", "halted", "link_up", "link_down", "fetch")


@dataclass(frozen=True, slots=True)
class Wait:
    """A rank that an operation waited for, and when bytes last came from it."""

    rank: int
    heard_ns: int


@dataclass(frozen=True, slots=True)
class Operation:
    """One collective, as its own peer saw it. `status` PENDING: it had not ended when the trace was taken.
    `last_peer` is whose bytes came last (32 hex digits, empty for nobody's)."""

    epoch: int
    tag: int
    sequence: int
    scope: int
    collective: str
    dtype: str
    op: str
    algorithm: str
    deferred: bool
    count: int
    payload_bytes: int
    world_size: int
    rank: int
    status: int
    called_ns: int
    started_ns: int
    data_done_ns: int
    ended_ns: int
    tx_bytes: int
    rx_bytes: int
    last_peer: str
    absent: bool
    waits_count: int
    waits: tuple[Wait, ...]
    text: str

    @property
    def call(self) -> str:
        """As "all_reduce(float32[1000], sum, ring)"."""
        if self.collective in ("barrier", "commit"):
            return f"{self.collective}()"
        op = f", {self.op}" if self.collective in ("all_reduce", "reduce_scatter") else ""
        deferred = ", deferred" if self.deferred else ""
        two = scope.pair(self.scope)
        if two is not None:
            other = f"to rank {two[1]}" if self.collective == "send" else f"from rank {two[0]}"
            return f"{self.collective}({self.dtype}[{self.count}], {other}{deferred})"
        return f"{self.collective}({self.dtype}[{self.count}]{op}, {self.algorithm}{deferred})"

    @property
    def agreed(self) -> str:
        """What all who take part must have called alike: a send and its receive, but for the word."""
        if scope.pair(self.scope) is None:
            return self.call
        return f"{self.dtype}[{self.count}]{', deferred' if self.deferred else ''}"


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to the epoch or to a link. `kind` is one of EVENT_KINDS. `rank` is that of `peer` (32 hex
    digits) where there is one, else the recording peer's own."""

    kind: str
    at_ns: int
    epoch: int
    world_size: int
    rank: int
    peer: str
    status: int
    text: str


@dataclass(frozen=True, slots=True)
class Link:
    """A link as it was when the trace was taken. `heard_ns` is when bytes last came over it. `rtt_ns` and `bytes_per_s`
    are what is known of it, 0 for nothing."""

    rank: int
    peer: str
    transport: str
    status: int
    heard_ns: int
    text: str
    rtt_ns: int = 0
    bytes_per_s: int = 0


@dataclass(frozen=True, slots=True)
class TraceMember:
    """One member of the view at that time, in rank order."""

    peer: str
    address: str
    port: int


@dataclass(frozen=True, slots=True)
class Header:
    """Who recorded it, when it was taken, and why (`reason` is an error's name, "signal" or "asked")."""

    peer: str
    group: int
    rank: int
    epoch: int
    host: str
    pid: int
    reason: str
    text: str
    wall_ns: int
    monotonic_ns: int
    members: tuple[TraceMember, ...] = ()

    @property
    def name(self) -> str:
        """As "rank 2 (peer 0a1b2c3d)"."""
        return f"rank {self.rank} (peer {self.peer[:8]})"

    def wall(self, at_ns: int) -> int:
        """Nanoseconds since 1970 of a moment of this trace's own clock."""
        return at_ns + self.wall_ns - self.monotonic_ns


@dataclass(frozen=True, slots=True)
class Trace:
    """All of it. Operations are in the order of their ends, those still open last; events are in order."""

    header: Header
    operations: tuple[Operation, ...] = ()
    events: tuple[Event, ...] = ()
    links: tuple[Link, ...] = field(default=())
