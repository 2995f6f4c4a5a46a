# SPDX-License-Identifier: MIT
"""A TCP forwarder that misbehaves on demand, for tests and for anyone who wants to know what a bad network does.

    with Relay() as relay:
        link = relay.link(to="10.0.0.5:48150")          # link.address is what others dial instead
        link.set(delay_ms=40, rate=10_000_000)          # both ways
        link.set("up", hold=True)                       # nothing from the dialler gets through any more
        link.at("down", 4096, link.reset)               # a reset just after the next 4096 bytes to the dialler

It forwards byte for byte, needs no privileges, and holds a bounded amount. *Up* is from who dialled to `to`, *down* the
other way. A peer is put behind it with `Communicator(advertise=link.address)`, a run with the link's address in place
of the master's.

Connections of a link can be told apart by a few bytes at a fixed place of what their dialler says first (`name_at`),
for faults of some of them only: pccl's data plane greets with the dialler's peer id (`DIALLER_ID`).

The one idea: faults are asked for just before each piece is sent, pieces end where something is to happen, and all of
that runs in one thread, so what a call or a trigger changes holds from the very next byte.

Must not know: what the bytes mean.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Literal, TypeVar

import uvloop

from pccl import addresses
from pccl.addresses import HostPort
from pccl.errors import Closed, InvalidArgument, SystemFailure
from pccl.stress.relay_faults import Faults
from pccl.stress.relay_flow import READ_BYTES, Action, Bell, Connection, Direction, Meter, Rule
from pccl.thread import Worker

Directions = Literal["up", "down", "both"]
T = TypeVar("T")

DIALLER_ID = (24, 40)
"""`name_at` for pccl's data plane: a connection's name is then the dialler's peer id in hexadecimal digits."""

BACKLOG = 1024
_PEER_HOST, _BEFORE_HOST = "127.0.0.1", "127.0.0.2"
_PEER_PORTS = range(12_000, 30_000)
"""Not those that systems choose for connections."""
_NO_DESCRIPTORS_S = 0.05
_END_S = 10.0


@dataclass(frozen=True, slots=True)
class Counts:
    """What a link has seen: connections since its start and open now, bytes that were sent on."""

    accepted: int
    open: int
    up_bytes: int
    down_bytes: int


class Relay:
    """Links and the thread that serves them. Methods of both may be called from any thread and from triggers."""

    def __init__(self, seed: int = 0) -> None:
        """`seed` decides which bytes get damaged."""
        self.loop = uvloop.new_event_loop()
        self.meter = Meter()
        self._seed = seed
        self._links: list[Link] = []
        self._numbers = itertools.count()
        self._failure: BaseException | None = None
        self._closed = False
        self._thread = Worker("pccl-relay", self._work)
        self._thread.start()

    def __enter__(self) -> Relay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def link(self, to: str, listen: str = "127.0.0.1:0", name_at: tuple[int, int] | None = None) -> Link:
        """Listens on `listen`, port 0 is any, and forwards each connection to `to`, both HOST:PORT.

        Raises InvalidArgument, and SystemFailure when it cannot listen there.
        """
        if name_at is not None and not 0 <= name_at[0] < name_at[1] <= READ_BYTES:
            raise InvalidArgument(f"name_at is (first, end) of some bytes, not {name_at!r}")
        target, where = addresses.parse(to), addresses.parse(listen)
        if target.port == 0:
            raise InvalidArgument(f"a relay has to know to which port it forwards, not {to!r}")
        try:
            target, where = addresses.resolve(target)[0], addresses.resolve(where)[0]
            port = _Port(where)
        except OSError as failure:
            raise SystemFailure(f"a relay from {listen} to {to}: {failure.strerror or failure}") from None
        link = Link(self, (target.host, target.port), port, name_at, f"{self._seed}/{next(self._numbers)}")
        self._links.append(link)
        link.refuse(False)
        return link

    def before_peer(self) -> Link:
        """A link to a peer that this machine is about to start, which learns from `Communicator(advertise=...)` where
        to listen: at the link's port, but at another address. Its connections have their diallers' ids for names."""
        while True:
            port = random.SystemRandom().choice(_PEER_PORTS)
            if _is_free(HostPort(_PEER_HOST, port)) and _is_free(HostPort(_BEFORE_HOST, port)):
                return self.link(f"{_PEER_HOST}:{port}", f"{_BEFORE_HOST}:{port}", DIALLER_ID)

    def at(self, after_bytes: int, action: Action) -> None:
        """As `Link.at`, for the bytes of all links and both directions together. Raises InvalidArgument."""
        if after_bytes < 1:
            raise InvalidArgument(f"a trigger comes after at least one byte, not after {after_bytes}")
        self.run(partial(self.meter.add, after_bytes, action))

    def total_bytes(self) -> int:
        """Sent on so far by all links, both directions together."""
        return self.run(lambda: self.meter.count)

    def close(self) -> None:
        """Closes all links and connections. Raises what a trigger's action raised. Idempotent; a call that Ctrl-C
        ended may be repeated."""
        if not self._closed:
            self._closed = True
            self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.wait(_END_S)
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def run(self, call: Callable[[], T]) -> T:
        """`call` in the relay's thread. Raises Closed."""
        if threading.current_thread() is self._thread:
            return call()
        if self._closed:
            raise Closed("the relay is closed")
        done: Future[T] = Future()

        def work() -> None:
            try:
                done.set_result(call())
            except BaseException as failure:
                done.set_exception(failure)

        self.loop.call_soon_threadsafe(work)
        return done.result(_END_S)

    def forget(self, link: Link) -> None:
        """It holds nothing any more. In the relay's thread."""
        if link in self._links:
            self._links.remove(link)

    def fail(self, failure: BaseException) -> None:
        """For `close` to raise; the first one counts."""
        self._failure = self._failure or failure

    def _work(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            tasks = [task for link in list(self._links) for task in link.dispose()]
            if tasks:
                self.loop.run_until_complete(asyncio.wait(tasks))
        finally:
            self.loop.close()


class Link:
    """One listening port of a relay and where its connections go. Made by `Relay.link`."""

    def __init__(
        self, relay: Relay, target: tuple[str, int], port: _Port, name_at: tuple[int, int] | None, seed: str
    ) -> None:
        self.address = str(port.address)
        self.target = target
        self.name_at = name_at
        self.changed = Bell(relay.loop)
        self._relay = relay
        self._port = port
        self._seed = seed
        self._rules: dict[tuple[str | None, Direction], Rule] = {
            (None, "up"): Rule(Faults()),
            (None, "down"): Rule(Faults()),
        }
        self._meters: dict[tuple[str | None, Direction], Meter] = {}
        self._connections: dict[int, Connection] = {}
        self._numbers = itertools.count()
        self._accepted = 0
        self._closed = False

    # ------------------------------------------------------------ for anyone

    def set(self, direction: Directions = "both", *, name: str | None = None, **changes: Any) -> None:
        """Changes fields of Faults, from the next byte on; others stay. Connections of a `name` that was given faults
        obey those alone (at first a copy of what held for all). Raises InvalidArgument."""
        if direction not in ("up", "down", "both"):
            raise InvalidArgument(f'a direction is "up", "down" or "both", not {direction!r}')
        ways: tuple[Direction, ...] = ("up", "down") if direction == "both" else (direction,)
        self._relay.run(partial(self._set, ways, name, changes))

    def cut(self, name: str | None = None, limit: int | None = None) -> int:
        """Closes connections, those of `name` or all, the oldest `limit` of them: how many."""
        return self._relay.run(partial(self._end, name, limit, reset=False))

    def reset(self, name: str | None = None, limit: int | None = None) -> int:
        """Ends connections with a TCP reset to both ends, those of `name` or all, the oldest `limit`: how many."""
        return self._relay.run(partial(self._end, name, limit, reset=True))

    def refuse(self, on: bool = True) -> None:
        """Whether new connections are refused as by a host where nobody listens. The port stays this link's. Raises
        SystemFailure."""
        try:
            self._relay.run(self._shut if on else self._listen)
        except OSError as failure:
            raise SystemFailure(f"a relay on {self.address}: {failure.strerror or failure}") from None

    def close(self) -> None:
        """Resets all connections and gives the port up; the link is of no use any more. Idempotent."""
        self._relay.run(self._close)

    def at(self, direction: Direction, after_bytes: int, action: Action, *, name: str | None = None) -> None:
        """Calls `action` in the relay's thread as soon as exactly so many more bytes, of all connections or those of
        `name`, were sent on; before the next one is. It must not block. Raises InvalidArgument."""
        if direction not in ("up", "down") or not isinstance(after_bytes, int) or after_bytes < 1:
            raise InvalidArgument(f'a trigger is "up" or "down" after at least one byte, not {direction} {after_bytes}')
        self._relay.run(lambda: self._meter(name, direction).add(after_bytes, action))

    def names(self) -> list[str]:
        """Of the open connections, each once, the oldest first."""
        return self._relay.run(
            lambda: list(dict.fromkeys(it.name for it in self._connections.values() if it.name is not None))
        )

    def counts(self) -> Counts:
        """What it has seen so far."""
        return self._relay.run(
            lambda: Counts(
                self._accepted, len(self._connections), self._meter(None, "up").count, self._meter(None, "down").count
            )
        )

    # ------------------------------------------------------------ in the relay's thread

    def rule(self, name: str | None, direction: Direction) -> Rule:
        """What holds now for connections of that name."""
        return self._rules.get((name, direction)) or self._rules[None, direction]

    def meters(self, name: str | None, direction: Direction) -> list[Meter]:
        """All that count the bytes of a connection of that name."""
        names = dict.fromkeys((None, name))
        return [self._relay.meter, *(self._meter(it, direction) for it in names)]

    def act(self, action: Action) -> None:
        """Runs a trigger's action."""
        try:
            action()
        except BaseException as failure:
            self._relay.fail(failure)

    def dispose(self) -> list[asyncio.Task[None]]:
        """Closes everything; the tasks to wait for."""
        self._shut()
        self._port.release()
        tasks = [connection.task for connection in self._connections.values()]
        self._end(None, None, reset=False)
        return tasks

    def _close(self) -> None:
        self._closed = True
        self._end(None, None, reset=True)
        self._shut()
        self._port.release()
        self._forget()

    def _forget(self) -> None:
        """A link that is closed is kept until its last connection has ended."""
        if self._closed and not self._connections:
            self._relay.forget(self)

    def _meter(self, name: str | None, direction: Direction) -> Meter:
        """Counts the bytes of that name; of all for None."""
        return self._meters.setdefault((name, direction), Meter())

    def _set(self, ways: tuple[Direction, ...], name: str | None, changes: dict[str, Any]) -> None:
        for way in ways:
            self._rules[name, way] = Rule(self.rule(name, way).faults.changed(changes))
        self.changed.ring()

    def _end(self, name: str | None, limit: int | None, *, reset: bool) -> int:
        chosen = [it for it in self._connections.values() if name in (None, it.name) and not it.ending][:limit]
        for connection in chosen:
            connection.end(reset=reset)
        return len(chosen)

    def _listen(self) -> None:
        listener = self._port.listen()
        self._relay.loop.add_reader(listener, self._accept, listener)

    def _shut(self) -> None:
        if self._port.listener is not None:
            self._relay.loop.remove_reader(self._port.listener)
            self._port.shut()

    def _accept(self, listener: socket.socket) -> None:
        try:
            dialler, _ = listener.accept()
        except OSError as failure:
            if not isinstance(failure, BlockingIOError | ConnectionError):
                self._relay.loop.remove_reader(listener)
                self._relay.loop.call_later(_NO_DESCRIPTORS_S, self._accept_again, listener)
            return
        dialler.setblocking(False)
        number = next(self._numbers)
        self._accepted += 1
        connection = Connection(self, dialler, f"{self._seed}/{number}", self._relay.loop)
        self._connections[number] = connection
        connection.task.add_done_callback(partial(self._served, number))

    def _accept_again(self, listener: socket.socket) -> None:
        if self._port.listener is listener:
            self._relay.loop.add_reader(listener, self._accept, listener)

    def _served(self, number: int, task: asyncio.Task[None]) -> None:
        del self._connections[number]
        failure = None if task.cancelled() else task.exception()
        if failure is not None:
            self._relay.fail(failure)
        self._forget()


class _Port:
    """A port that stays ours while nobody listens on it: a second socket, bound and silent, keeps it."""

    def __init__(self, where: HostPort) -> None:
        """Raises OSError."""
        self._family = socket.AF_INET6 if addresses.is_ipv6(where.host) else socket.AF_INET
        self._keeper = self._bound(where)
        self.address = HostPort(where.host, int(self._keeper.getsockname()[1]))
        self.listener: socket.socket | None = None

    def listen(self) -> socket.socket:
        """Raises OSError."""
        if self.listener is None:
            self.listener = self._bound(self.address)
            self.listener.listen(BACKLOG)
        return self.listener

    def shut(self) -> None:
        """Nobody listens any more; connections that were not accepted are reset."""
        if self.listener is not None:
            self.listener.close()
            self.listener = None

    def release(self) -> None:
        """Gives the port up."""
        self.shut()
        self._keeper.close()

    def _bound(self, where: HostPort) -> socket.socket:
        made = socket.socket(self._family)
        try:
            made.setblocking(False)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            made.bind((where.host, where.port))
        except OSError:
            made.close()
            raise
        return made


def _is_free(where: HostPort) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((where.host, where.port))
        except OSError:
            return False
    return True
