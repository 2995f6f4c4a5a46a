# SPDX-License-Identifier: MIT
"""The master's half of the control plane, as a pure state machine."""

from __future__ import annotations

from collections.abc import Callable

from pccl.messages import Message
from pccl.protocol.types import Limits, MasterOutput, Past, PeerId, Record, SyncFactory


class MasterProtocol:
    """See the module. All `now` are integer milliseconds of one monotonic clock; events may not go back in time."""

    def __init__(
        self, *, draw: Callable[[], int], sync: SyncFactory, limits: Limits | None = None, past: Past | None = None
    ) -> None:
        """`draw()` gives a random integer of 64 bits (secrets.randbits in the shell, seeded in tests). `past` is what
        journal.replay returned."""
        raise NotImplementedError

    def start(self, now: int) -> list[MasterOutput]:
        """Call once, first. Appends the settings of a fresh run, or begins to wait for the peers of `past`."""
        raise NotImplementedError

    def received(self, peer: PeerId, message: Message, now: int) -> list[MasterOutput]:
        raise NotImplementedError

    def malformed(self, peer: PeerId, text: str, now: int) -> list[MasterOutput]:
        """`decode` raised ProtocolError(text) for bytes from `peer`."""
        raise NotImplementedError

    def disconnected(self, peer: PeerId, now: int) -> list[MasterOutput]:
        """A Send to `peer` failed: the router cannot reach it, or its queue is full."""
        raise NotImplementedError

    def connection_closed(self, now: int) -> list[MasterOutput]:
        """The socket monitor saw some connection close; zmq does not say whose."""
        raise NotImplementedError

    def timed_out(self, now: int) -> list[MasterOutput]:
        raise NotImplementedError

    def deadline(self) -> int | None:
        raise NotImplementedError

    def explain(self) -> str:
        """What is waited for, and for whom, one line each; empty if nothing is."""
        raise NotImplementedError

    def snapshot(self) -> list[Record]:
        """Records that replay to the present state: the shell rewrites the journal with them (new file, fsync, rename)
        at start and when it has grown beyond a limit."""
        raise NotImplementedError
