# SPDX-License-Identifier: MIT
"""One forwarded connection: two sockets, and a flow in each direction that asks before each piece what may pass.

Must not know: where connections come from. What holds and what is counted is its `Lane`'s to say, at any moment
something else. All in one thread.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections import deque
from collections.abc import Callable
from typing import Literal, Protocol

from pccl import addresses
from pccl.stress.relay_faults import Corrupter, Faults, Pacer

Direction = Literal["up", "down"]
Action = Callable[[], object]

READ_BYTES = 128 * 1024
HELD_BYTES = 512 * 1024
DELAYED_BYTES = 16 * 1024 * 1024
"""What one direction of a connection may have under way when bytes are delayed: 16 MiB are 80 ms of 200 MB/s."""


class Bell:
    """Wakes all that wait for it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[asyncio.Future[None], None] = {}

    def ring(self) -> None:
        """All who wait now go on."""
        for future in self._waiting:
            _resolve(future)

    async def wait(self, timeout_s: float | None = None) -> None:
        """Until the next ring, or until `timeout_s` have passed."""
        future = self._loop.create_future()
        self._waiting[future] = None
        timer = None if timeout_s is None else self._loop.call_later(timeout_s, _resolve, future)
        try:
            await future
        finally:
            del self._waiting[future]
            if timer is not None:
                timer.cancel()


class Rule:
    """Faults, and the line that those share whom they apply to."""

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self.line = Pacer()


class Meter:
    """Bytes that have passed, and what is to happen when it reaches certain numbers."""

    def __init__(self) -> None:
        self.count = 0
        self._triggers: list[tuple[int, Action]] = []

    def add(self, after_bytes: int, action: Action) -> None:
        """`action` is due after so many more bytes."""
        self._triggers.append((self.count + after_bytes, action))
        self._triggers.sort(key=lambda trigger: trigger[0])

    def limit(self, count: int) -> int:
        """So many of `count` bytes may pass before something is to happen."""
        return min(count, self._triggers[0][0] - self.count) if self._triggers else count

    def passed(self, count: int) -> list[Action]:
        """Counts them; what is to happen now."""
        self.count += count
        due = []
        while self._triggers and self._triggers[0][0] <= self.count:
            due.append(self._triggers.pop(0)[1])
        return due


class Lane(Protocol):
    """What a connection asks its link."""

    changed: Bell
    target: tuple[str, int]
    name_at: tuple[int, int] | None

    def rule(self, name: str | None, direction: Direction) -> Rule: ...
    def meters(self, name: str | None, direction: Direction) -> list[Meter]: ...
    def act(self, action: Action) -> None: ...


class Connection:
    """From an accepted socket to the end of both."""

    def __init__(self, lane: Lane, dialler: socket.socket, seed: str, loop: asyncio.AbstractEventLoop) -> None:
        self.lane = lane
        self.name: str | None = None
        self.ending = False
        self.seed = seed
        self._loop = loop
        self._sockets = [dialler]
        self.task = loop.create_task(self._serve())
        self.task.add_done_callback(self._close)  # also of a task that was cancelled before it began

    def end(self, *, reset: bool) -> None:
        """Nothing more is sent. The sockets are closed, with a TCP reset or without, as soon as nobody uses them."""
        if not self.ending:
            self.ending = True
            if reset:
                self._reset_on_close()
            self.task.cancel()

    async def _serve(self) -> None:
        tasks: list[asyncio.Task[None]] = []
        try:
            up, down = await self._open()
            tasks = [self._loop.create_task(work) for work in (up.read(), up.write(), down.read(), down.write())]
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
        except (OSError, EOFError):
            self._reset_on_close()  # what one end did to us, or its absence, the other end shall feel
        except asyncio.CancelledError:
            pass
        finally:
            self.ending = True
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _close(self, task: asyncio.Task[None]) -> None:
        for one in self._sockets:
            one.close()

    def _reset_on_close(self) -> None:
        for one in self._sockets:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    async def _open(self) -> tuple[_Flow, _Flow]:
        """Reads the name, if connections have some, and dials. Raises OSError, EOFError."""
        dialler, lane = self._sockets[0], self.lane
        while lane.rule(None, "up").faults.hold:
            await lane.changed.wait()
        head = b""
        if lane.name_at is not None:
            first, end = lane.name_at
            while len(head) < end:
                data = await self._loop.sock_recv(dialler, end - len(head))
                if not data:
                    raise EOFError
                head += data
            self.name = head[first:end].hex()
        if lane.rule(self.name, "up").faults.refuse:
            raise EOFError
        target = socket.socket(socket.AF_INET6 if addresses.is_ipv6(lane.target[0]) else socket.AF_INET)
        self._sockets.append(target)
        target.setblocking(False)
        for one in self._sockets:
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await self._loop.sock_connect(target, lane.target)
        up, down = _Flow(self, "up", dialler, target, self._loop), _Flow(self, "down", target, dialler, self._loop)
        if head:
            up.put(head)
        return up, down


class _Flow:
    """One direction: a reader and a writer with a bounded queue between them."""

    def __init__(
        self,
        connection: Connection,
        direction: Direction,
        source: socket.socket,
        sink: socket.socket,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._connection = connection
        self._lane = connection.lane
        self._direction: Direction = direction
        self._source = source
        self._sink = sink
        self._loop = loop
        self._queue: deque[tuple[float, bytes]] = deque()
        self._queued = 0
        self._moved = Bell(loop)
        self._line = Pacer()
        self._corrupter = Corrupter(f"{connection.seed}/{direction}")

    def put(self, data: bytes) -> None:
        """Queues what arrived; nothing is the end of the stream."""
        self._queue.append((time.monotonic() + self._rule.faults.delay_ms / 1000, data))
        self._queued += len(data)
        self._moved.ring()

    async def read(self) -> None:
        """From the source into the queue, until the source ends. Raises OSError."""
        while True:
            await self._free()
            if self._queued >= (DELAYED_BYTES if self._rule.faults.delay_ms else HELD_BYTES):
                await self._moved.wait()
                continue
            await self._readiness(self._source, self._loop.add_reader, self._loop.remove_reader)
            if self._held:
                continue
            try:
                data = self._source.recv(READ_BYTES)
            except BlockingIOError:
                continue
            self.put(data)
            if not data:
                return

    async def write(self) -> None:
        """From the queue into the sink, until the end is through. Raises OSError."""
        while True:
            if not self._queue:
                await self._moved.wait()
                continue
            due, data = self._queue[0]
            while (left := due - time.monotonic()) > 0:
                await asyncio.sleep(left)
            if not data:
                await self._free()
                self._sink.shutdown(socket.SHUT_WR)
                return
            await self._send(memoryview(data))
            self._queue.popleft()
            self._queued -= len(data)
            self._moved.ring()

    async def _send(self, view: memoryview) -> None:
        paced = 0  # bytes whose time on the line has passed
        while view:
            await self._free()
            rule = self._rule
            size = min(rule.faults.piece_bytes(), len(view))
            if size and not paced:
                if await self._pace(rule, size):
                    paced = size
                continue
            sent = self._send_some(view[: paced or len(view)], rule.faults.corrupt_every)
            if not sent:
                await self._readiness(self._sink, self._loop.add_writer, self._loop.remove_writer)
            view = view[sent:]
            paced = max(0, paced - sent)

    def _send_some(self, view: memoryview, corrupt_every: int) -> int:
        """As much as may and can go now: how much. What is to happen just then has happened."""
        meters = self._lane.meters(self._connection.name, self._direction)
        count = min(meter.limit(len(view)) for meter in meters)
        data: bytes | memoryview = view[:count]
        if corrupt_every and (unharmed := self._corrupter.distance(corrupt_every)) < count:
            data = bytes(view[:unharmed]) + bytes([self._corrupter.damaged(view[unharmed])])
        try:
            sent = self._sink.send(data)
        except BlockingIOError:
            return 0
        if corrupt_every:
            self._corrupter.passed(sent)
        for meter in meters:
            for action in meter.passed(sent):
                self._lane.act(action)
        return sent

    async def _pace(self, rule: Rule, count: int) -> bool:
        """Waits until `count` bytes have passed at the rates of `rule`. False: another rule holds meanwhile."""
        now, faults = time.monotonic(), rule.faults
        until = max(self._line.passed_at(now, count, faults.rate), rule.line.passed_at(now, count, faults.total_rate))
        while (left := until - time.monotonic()) > 0 and self._rule is rule:
            await self._lane.changed.wait(left)
        return self._rule is rule

    async def _free(self) -> None:
        """Waits while nothing may pass."""
        while self._held:
            await self._lane.changed.wait()

    async def _readiness(self, one: socket.socket, add: Callable[..., object], remove: Callable[..., object]) -> None:
        """Until a socket is readable or writable, as `add` and `remove` say."""
        future = self._loop.create_future()
        add(one, _resolve, future)
        try:
            await future
        finally:
            remove(one)

    @property
    def _rule(self) -> Rule:
        return self._lane.rule(self._connection.name, self._direction)

    @property
    def _held(self) -> bool:
        return self._connection.ending or self._rule.faults.hold


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
