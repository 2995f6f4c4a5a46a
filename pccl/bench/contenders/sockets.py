# SPDX-License-Identifier: MIT
"""The limit: two plain processes that exchange, both ways at once, as many bytes as one rank of the collective must
send.

One TCP connection over loopback, send and recv, no reduction, no framing. What a library adds shows against this. How
much the kernel may queue decides about caches and about how often a side must stop, so there are several connections,
and each size of work gets the one that is fastest for it.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable
from typing import Any

from pccl.bench.contenders.contender import Contender, Seat
from pccl.bench.metrics import bytes_per_byte
from pccl.bench.work import Work

# Up to here both sides may send first: a fresh loopback connection buffers more than that.
BUFFERED_BYTES = 32 << 10
PIECE_BYTES = 1 << 20
# What the kernel may queue on a connection, in each direction; 0 is its own choice.
QUEUE_BYTES = (0, 128 << 10, 512 << 10)
TRIALS = 4


class Sockets(Contender):
    """One side of the pair."""

    def __init__(self, seat: Seat) -> None:
        super().__init__(seat)
        self._listener: socket.socket | None = None
        self._connections: list[socket.socket] = []
        self._socket: socket.socket

    def offer(self) -> Any:
        """Rank 0: the port it listens on."""
        if self.seat.rank != 0:
            return None
        self._listener = socket.create_server(("127.0.0.1", 0))
        return self._listener.getsockname()[1]

    def meet(self, offers: list[Any]) -> None:
        """Rank 1 dials."""
        for queued in QUEUE_BYTES:
            if self._listener is not None:
                made = self._listener.accept()[0]
            else:
                made = socket.create_connection(("127.0.0.1", offers[0]))
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for direction in (socket.SO_SNDBUF, socket.SO_RCVBUF) if queued else ():
                made.setsockopt(socket.SOL_SOCKET, direction, queued)
            self._connections.append(made)
        self._socket = self._connections[0]
        if self._listener is not None:
            self._listener.close()

    @property
    def transport(self) -> str:
        """One connection."""
        return "tcp"

    def bind(self, work: Work, *, start: bool) -> Callable[[], Any]:
        """An exchange of what a rank of the whole team would send (a barrier: one byte)."""
        if start:
            raise ValueError("a pair of sockets exchanges one message at a time")
        peers = self.seat.settings["peers"]
        total = max(1, round(work.shape.actual_size * bytes_per_byte(work.shape.op, peers)))
        # Written memory: untouched pages would all be one zero page, which is faster to read than any real buffer.
        outgoing, incoming = memoryview(b"." * total), memoryview(bytearray(b"," * total))
        self._socket = self._connections[0]
        if total <= BUFFERED_BYTES:
            return lambda: self._exchange_small(outgoing, incoming)
        self._choose(outgoing, incoming)
        return lambda: self._exchange_large(outgoing, incoming)

    def barrier(self) -> None:
        """One byte both ways."""
        self._exchange_small(memoryview(b"."), memoryview(bytearray(1)))

    def settle(self) -> None:
        """Nothing is put off."""

    def close(self) -> None:
        """Closes the connections."""
        for connection in self._connections:
            connection.close()

    def _choose(self, outgoing: memoryview, incoming: memoryview) -> None:
        """Tries each connection; rank 0 decides, so that both take the same."""
        times = []
        for connection in self._connections:
            self._socket = connection
            tries = []
            for _ in range(TRIALS):
                begin = time.perf_counter_ns()
                self._exchange_large(outgoing, incoming)
                tries.append(time.perf_counter_ns() - begin)
            times.append(min(tries))
        first = self._connections[0]
        if self.seat.rank == 0:
            choice = times.index(min(times))
            first.sendall(bytes([choice]))
        else:
            choice = first.recv(1)[0]
        self._socket = self._connections[choice]

    def _exchange_small(self, outgoing: memoryview, incoming: memoryview) -> None:
        self._socket.sendall(outgoing)
        received = self._socket.recv_into(incoming)
        while received < len(incoming):
            received += self._socket.recv_into(incoming[received:])

    def _exchange_large(self, outgoing: memoryview, incoming: memoryview) -> None:
        end = len(outgoing)
        sent = received = 0
        while sent < end or received < end:
            before = sent + received
            try:
                if sent < end:
                    sent += self._socket.send(outgoing[sent : sent + PIECE_BYTES], socket.MSG_DONTWAIT)
            except BlockingIOError:
                pass
            try:
                if received < end:
                    received += self._socket.recv_into(incoming[received:], 0, socket.MSG_DONTWAIT)
            except BlockingIOError:
                pass
            if sent + received == before:
                select.select([self._socket] if received < end else [], [self._socket] if sent < end else [], [])


contender = Sockets
