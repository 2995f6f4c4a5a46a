# SPDX-License-Identifier: MIT
"""The two zmq sockets of the control plane on an asyncio loop: the master's ROUTER and a peer's DEALER.

They move bytes and report connections; what the bytes mean is not known here. The one idea: zmq's descriptor is
edge-triggered and any call on the socket may consume the edge, so there is exactly one reader, `_Pump`, which drains
the socket after its descriptor became readable *and* after every send.

Every message ends with a CRC32: what the network damaged, and TCP's own sum let through, must not be believed, and is
nobody's fault. It counts as lost; what then has to be said again is for the cores to know.

Each socket has a context of its own: closing it then leaves no thread and no descriptor behind, and waits for
what is still to be sent for a bounded time only.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket as socketlib
import zlib
from collections.abc import Callable, Sequence

import zmq
from zmq.utils.monitor import parse_monitor_message

from pccl import system
from pccl.addresses import HostPort, is_ipv6
from pccl.messages import MAX_MESSAGE_BYTES

QUEUE_MESSAGES = 4096
"""Messages that wait for one connection; a peer whose queue is full counts as unreachable."""

_DRAIN_MESSAGES = 256
"""Messages taken in one go before other work of the loop gets its turn."""

_FAREWELL_MS = 200
_RECONNECT_MS = 20
_RECONNECT_MAX_MS = 500
_HANDSHAKE_MS = 5_000
"""What a connection may take to become a zmq connection; silent or foreign ones are dropped then."""

STRANGER_S = 8.0
"""What a connection to the master may take to send its first message. zmq's own limit ends with the greeting, and for
its oldest protocol with one byte."""

MAX_STRANGERS = 512
"""Connections that have sent no message yet; one more pushes the oldest out."""

DESCRIPTORS = 32
"""What a peer or a master takes for its start, with some to spare: asked for before, since zmq and the loop end the
whole process when they run out in the middle of theirs."""


_EXHAUSTED = (errno.EMFILE, errno.ENFILE)
"""What accept fails with when the process, or the system, has no descriptors left."""

_SEAL_BYTES = 4


def seal(data: bytes) -> bytes:
    """A message as it goes over the wire."""
    return data + zlib.crc32(data).to_bytes(_SEAL_BYTES, "little")


def unseal(parts: Sequence[bytes]) -> bytes | None:
    """The message in the parts that arrived; None when they are not what was sent."""
    if len(parts) != 1 or len(parts[0]) < _SEAL_BYTES:
        return None
    data = parts[0][:-_SEAL_BYTES]
    return data if seal(data) == parts[0] else None


class _Pump:
    """Hands every message that a zmq socket receives to `deliver`, on the loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, socket: zmq.Socket[bytes], deliver: Callable[[list[zmq.Frame]], None]
    ) -> None:
        self._loop = loop
        self._socket = socket
        self._deliver = deliver
        self._scheduled = False
        self._descriptor = int(socket.getsockopt(zmq.FD))
        loop.add_reader(self._descriptor, self._drain)
        self.soon()

    def soon(self) -> None:
        """To be called after any other use of the socket."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._drain)

    def stop(self) -> None:
        self._loop.remove_reader(self._descriptor)
        self._socket.close()

    def _drain(self) -> None:
        self._scheduled = False
        for _ in range(_DRAIN_MESSAGES):
            if self._socket.closed or not int(self._socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
                return
            self._deliver(self._socket.recv_multipart(zmq.NOBLOCK, copy=False))
        self.soon()


class DealerLink:
    """A peer's connection to the master. It dials, and dials again, by itself; all calls on the loop's thread.

    A damaged message ends the connection, since it is not known what it was: who dials afresh is told again."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        identity: bytes,
        master: HostPort,
        *,
        on_message: Callable[[bytes], None],
        on_connected: Callable[[], None],
        on_disconnected: Callable[[], None],
    ) -> None:
        """`master` is numeric. Messages sent before the connection stands wait for it. Raises OSError (descriptors)."""
        self._loop = loop
        self._identity = identity
        self._master = master
        self._on_message = on_message
        self._on_connected = on_connected
        self._on_disconnected = on_disconnected
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.connected = False
        self._dial()

    def send(self, data: bytes) -> None:
        """Queues a message; dropped when QUEUE_MESSAGES wait already, or after a redial that failed."""
        if self._context.closed:
            return
        try:
            self._socket.send(seal(data), zmq.NOBLOCK)
        except zmq.Again:
            pass
        self._pump.soon()

    def redial(self) -> None:
        """Gives the connection up, with what waits for it, and dials afresh. Raises OSError (descriptors): there is
        no connection any more then, and only `close` may follow."""
        self._hang_up(linger_ms=0)
        self._dial()

    def close(self, linger_ms: int) -> None:
        """Closes; blocks up to `linger_ms` while messages wait for a standing connection."""
        if not self._context.closed:
            self._hang_up(linger_ms if self.connected else 0)
            self._context.term()

    def _dial(self) -> None:
        self.connected = False
        try:
            self._socket = new_socket(self._context, zmq.DEALER, self._master)
            monitor = self._socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
        except zmq.ZMQError as failure:
            self._context.destroy(linger=0)  # with the sockets that there are: else its end would wait for them
            raise OSError(failure.errno, failure.strerror) from None
        self._socket.setsockopt(zmq.ROUTING_ID, self._identity)
        self._socket.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_MS)
        self._socket.setsockopt(zmq.RECONNECT_IVL_MAX, _RECONNECT_MAX_MS)
        self._pump = _Pump(self._loop, self._socket, self._deliver)
        self._monitor = _Pump(self._loop, monitor, self._observe)
        self._socket.connect(f"tcp://{self._master}")

    def _hang_up(self, linger_ms: int) -> None:
        self._socket.disable_monitor()
        self._monitor.stop()
        self._socket.setsockopt(zmq.LINGER, linger_ms)
        self._pump.stop()

    def _deliver(self, parts: list[zmq.Frame]) -> None:
        data = unseal([part.bytes for part in parts])
        if data is None:
            self.redial()
        else:
            self._on_message(data)

    def _observe(self, parts: list[zmq.Frame]) -> None:
        standing = _monitored(parts)[0] == zmq.EVENT_HANDSHAKE_SUCCEEDED
        if standing != self.connected:
            self.connected = standing
            (self._on_connected if standing else self._on_disconnected)()


class RouterLink:
    """The master's socket: every peer under its 16-byte id. All calls on the loop's thread but `bind`."""

    def __init__(self, listen: HostPort) -> None:
        """Binds to a numeric address; port 0 lets the system choose. Raises OSError (a taken port, descriptors)."""
        system.require_descriptors(DESCRIPTORS)
        self._pump: _Pump | None = None
        self._monitor: _Pump | None = None
        self._strangers = _Strangers()
        self._reserve = _Reserve()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        try:
            self._socket = new_socket(self._context, zmq.ROUTER, listen)
            self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
            # A peer that dials afresh may be here before its old connection is known to be dead. Without this a router
            # ignores the new one, silently and for good. Whether it is the same peer is for the core to check.
            self._socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
            self._monitor_socket = self._socket.get_monitor_socket(
                zmq.EVENT_ACCEPTED | zmq.EVENT_ACCEPT_FAILED | zmq.EVENT_DISCONNECTED
            )
            self._socket.bind(f"tcp://{listen}" if listen.port else f"tcp://{listen}".removesuffix(":0") + ":*")
        except zmq.ZMQError as failure:
            self._context.destroy(linger=0)
            self._reserve.close()
            raise OSError(failure.errno, failure.strerror) from None
        endpoint = str(self._socket.getsockopt_string(zmq.LAST_ENDPOINT))
        self.address = HostPort(listen.host, int(endpoint.rpartition(":")[2]))

    def start(
        self,
        loop: asyncio.AbstractEventLoop,
        on_message: Callable[[bytes, bytes], None],
        on_damaged: Callable[[bytes], None],
        on_connection_closed: Callable[[], None],
        on_turned_away: Callable[[], None],
    ) -> None:
        """From now on messages (peer id, data), damaged ones (peer id), closed connections, and that some were turned
        away for want of descriptors, are reported on `loop`."""

        def deliver(parts: list[zmq.Frame]) -> None:
            try:
                descriptor = int(parts[-1].get(zmq.SRCFD))
            except zmq.ZMQError:
                return  # a protocol so old that its connections have no properties: nobody of ours
            peer, *rest = [part.bytes for part in parts]
            data = unseal(rest)
            if data is None:
                on_damaged(peer)
            else:
                self._strangers.spoke(descriptor)
                on_message(peer, data)

        def observe(parts: list[zmq.Frame]) -> None:
            event, value = _monitored(parts)
            if event == zmq.EVENT_ACCEPTED:
                self._strangers.came(value, loop)
                if not self._reserve.refill():
                    self._strangers.shut_down(value)
                    on_turned_away()
            elif event == zmq.EVENT_DISCONNECTED:
                self._strangers.spoke(value)
                self._reserve.refill()
                on_connection_closed()
            elif value in _EXHAUSTED:
                self._reserve.spend()

        self._pump = _Pump(loop, self._socket, deliver)
        self._monitor = _Pump(loop, self._monitor_socket, observe)

    def send(self, peer: bytes, data: bytes) -> bool:
        """Queues a message; False when the peer is not connected or its queue is full."""
        try:
            self._socket.send_multipart([peer, seal(data)], zmq.NOBLOCK)
        except zmq.ZMQError as failure:
            if failure.errno in (errno.EHOSTUNREACH, errno.EAGAIN):
                return False
            raise
        finally:
            if self._pump is not None:
                self._pump.soon()
        return True

    def close(self) -> None:
        """Closes it, started or not; queued messages get a short time to leave. Idempotent."""
        self._strangers.close()
        if not self._socket.closed:
            self._socket.disable_monitor()
        if self._pump is not None and self._monitor is not None:
            self._monitor.stop()
            self._socket.setsockopt(zmq.LINGER, _FAREWELL_MS)
            self._pump.stop()
        self._monitor_socket.close(linger=0)
        self._socket.close()
        self._context.term()
        self._reserve.close()


class _Reserve:
    """A descriptor for when there are no others. zmq can then accept nobody, and as long as somebody waits for that it
    tries without a pause. With the one in reserve it can, and whoever got that one is hung up on and dials again."""

    def __init__(self) -> None:
        """Raises OSError when there is none."""
        self._spare: int | None = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def spend(self) -> None:
        """Somebody waits, and there is no descriptor for it; or was a moment ago."""
        if self._spare is None:
            self.refill()
        else:
            self.close()

    def refill(self) -> bool:
        """Whether there is one in reserve again, or still."""
        if self._spare is None:
            with contextlib.suppress(OSError):
                self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        return self._spare is not None

    def close(self) -> None:
        """Gives it back."""
        spare, self._spare = self._spare, None
        if spare is not None:
            os.close(spare)


class _Strangers:
    """Connections that have sent no message yet. zmq knows them by descriptor only, and lets none be closed: so they
    are shut down under it, which it takes for the other side's end. Should the number belong to a peer by now, that
    peer dials again."""

    def __init__(self) -> None:
        self._since: dict[int, float] = {}  # descriptor -> loop time, oldest first
        self._timer: asyncio.TimerHandle | None = None

    def came(self, descriptor: int, loop: asyncio.AbstractEventLoop) -> None:
        self._since.pop(descriptor, None)
        self._since[descriptor] = loop.time()
        if len(self._since) > MAX_STRANGERS:
            self.shut_down(next(iter(self._since)))
        if self._timer is None:
            self._timer = loop.call_later(STRANGER_S, self._check, loop)

    def spoke(self, descriptor: int) -> None:
        """Or has gone by itself."""
        self._since.pop(descriptor, None)

    def close(self) -> None:
        self._since.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _check(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        while self._since:
            descriptor, since = next(iter(self._since.items()))
            left = since + STRANGER_S - loop.time()
            if left > 0:
                self._timer = loop.call_later(left, self._check, loop)
                return
            self.shut_down(descriptor)

    def shut_down(self, descriptor: int) -> None:
        """Hangs up on one of them. Takes no descriptor: there may be none."""
        del self._since[descriptor]
        with contextlib.suppress(OSError):  # it has gone already
            connection = socketlib.socket(fileno=descriptor)
            try:
                connection.shutdown(socketlib.SHUT_RDWR)
            finally:
                connection.detach()


def _monitored(parts: list[zmq.Frame]) -> tuple[int, int]:
    """(event, its value) of a monitor's message; the value of connections is a descriptor."""
    said = parse_monitor_message([part.bytes for part in parts])
    return int(said["event"]), int(said["value"])


def new_socket(context: zmq.Context[zmq.Socket[bytes]], kind: int, address: HostPort) -> zmq.Socket[bytes]:
    """A socket for `address` with the limits of the control plane; neither bound nor connected."""
    socket = context.socket(kind)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.SNDHWM, QUEUE_MESSAGES)
    socket.setsockopt(zmq.RCVHWM, QUEUE_MESSAGES)
    socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES + _SEAL_BYTES)
    socket.setsockopt(zmq.HANDSHAKE_IVL, _HANDSHAKE_MS)
    socket.setsockopt(zmq.IPV6, is_ipv6(address.host))
    return socket
