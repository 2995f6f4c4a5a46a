# SPDX-License-Identifier: MIT
"""A peer's control plane as a running thing: a thread with a loop around `PeerProtocol`, its socket and the engine.

It decides nothing: messages, engine events, the clock and the user's joint calls go into the core, and what comes out
is performed in order. It owns the engine's making (once the master has given the run's secret) but not its end.

No collective passes through here while all is well. The thread sleeps except for one heartbeat a second.

Log records go to the logger `pccl.control`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import queue
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvloop

from pccl import messages, reach, scope, system
from pccl._native import Engine, EngineOptions, Event, constants
from pccl.addresses import HostPort
from pccl.errors import Closed, PCCLError, ProtocolError, Status, error_for
from pccl.handle import Flights
from pccl.lanes import Lanes
from pccl.messages import Census, Subgroup, View
from pccl.protocol.peer import PeerProtocol
from pccl.protocol.state_peer import PeerStateSync
from pccl.protocol.types import (
    CONNECT_CALL,
    NOBODY,
    Ask,
    DialPeer,
    Freeze,
    Halt,
    Install,
    Notify,
    OpenDataPlane,
    PeerOutput,
    Reconnect,
    Reject,
    Resolve,
    StateOutput,
    Tell,
    VoteKind,
)
from pccl.sockets import DESCRIPTORS, DealerLink
from pccl.thread import Worker
from pccl.trace.dump import Tracer
from pccl.trace.record import Event as RecordedEvent
from pccl.trace.record import Header, Link, Operation, Trace, TraceMember

logger = logging.getLogger("pccl.control")

LEAVE_MS = 200
"""How long the farewell may take to leave for a master that is connected."""

WARN_MS = 2_000
"""An operation that has waited so long is worth a line in the log; the next lines come after three times as long."""

_STOP_S = 1.0
_LOOK_S = 0.02
_SIGNAL_S = 0.2
_FORKED = "unusable in a forked child"


@dataclass(frozen=True)
class Paths:
    """Which ways links may take besides TCP, as pccl_options has it; `device` is empty where any will do."""

    shared_memory: int
    rdma: int
    device: str


@dataclass(frozen=True, slots=True)
class ControlOptions:
    """What a peer is told at its start; times in milliseconds."""

    master: HostPort
    group: int
    advertise: HostPort | None
    interface: str | None
    stripes: int
    min_world_size: int
    checksum: int
    paths: Paths
    connect_timeout_ms: int
    link_timeout_ms: int
    operation_timeout_ms: int
    master_timeout_ms: int
    joint_timeout_ms: int
    trace_folder: Path | None = None
    place: int = messages.NO_PLACE
    master_returns: bool = True


class Call:
    """A joint call as the thread that made it sees it: a stream of outputs that ends with a Resolve or a Reject."""

    def __init__(self) -> None:
        self._outputs: queue.SimpleQueue[PeerOutput | PCCLError] = queue.SimpleQueue()

    def put(self, output: PeerOutput | PCCLError) -> None:
        """For the control thread."""
        self._outputs.put(output)

    def next(self) -> PeerOutput:
        """The next output; blocks until there is one (Ctrl-C works). Raises what the call failed with."""
        output = self._take()
        if isinstance(output, Reject):
            raise error_for(output.status, output.text)
        if isinstance(output, PCCLError):
            raise output
        return output

    def _take(self) -> PeerOutput | PCCLError:
        """A signal that arrives just before the thread falls asleep does not wake it, so it never sleeps for long."""
        while True:
            try:
                return self._outputs.get(timeout=_SIGNAL_S)
            except queue.Empty:
                pass

    def result(self) -> Resolve:
        """How the call ended. Raises what it failed with."""
        while True:
            output = self.next()
            if isinstance(output, Resolve):
                return output


class Control:
    """The control plane of one peer, from `start` to `stop`. Public methods may be called from any thread."""

    def __init__(self, options: ControlOptions, flights: Flights, lanes: Lanes) -> None:
        """Raises OSError when the process has hardly any descriptors left."""
        self._options = options
        self._flights = flights
        self._lanes = lanes
        # A router takes ids that begin with a zero byte for its own.
        self.peer = bytes([secrets.randbelow(255) + 1]) + secrets.token_bytes(15)
        self._protocol = PeerProtocol(
            self.peer,
            secrets.token_bytes(16),
            options.group,
            sync=PeerStateSync(),
            master_timeout_ms=options.master_timeout_ms,
            joint_timeout_ms=options.joint_timeout_ms,
            operation_timeout_ms=options.operation_timeout_ms,
            place=options.place,
        )
        self.engine: Engine | None = None
        self._settled = threading.Event()
        self.installed: Install | None = None
        """The view and our rank in it: one object, since other threads read it while it changes."""
        self._host_id, self._cores = system.host_id(), system.usable_cores()
        self._master: HostPort | None = None
        self._listen_address = ""
        self._link: DealerLink | None = None
        self._met_master = False
        self._looking: asyncio.Task[None] | None = None  # a loop keeps no reference to its tasks
        self._timer: asyncio.TimerHandle | None = None
        # Re-entrant: the garbage collector may end a call in any thread, also in one that holds it.
        self._lock = threading.RLock()
        self._ended: str | None = None
        self._calls: dict[int, Call] = {}
        self._numbers = itertools.count(CONNECT_CALL + 1)
        system.require_descriptors(DESCRIPTORS)
        self.tracer = Tracer(self.trace, options.trace_folder)
        self._loop = uvloop.new_event_loop()
        self._thread = Worker("pccl-control", self._work)

    @property
    def view(self) -> View | None:
        """The latest one."""
        return None if self.installed is None else self.installed.view

    @property
    def rank(self) -> int:
        """Ours in the latest view; -1 before the first."""
        return -1 if self.installed is None else self.installed.rank

    def settled(self) -> None:
        """Returns when the engine has the view that callers read a little earlier."""
        self._settled.wait()

    @property
    def census(self) -> Census:
        """The latest word on the whole run."""
        return self._protocol.census

    def start(self) -> Call:
        """Starts the thread; the call resolves once this peer is accepted and the engine has its view. Raises
        Closed when `end` came before."""
        with self._lock:
            self._check_running()
            call = self._calls[CONNECT_CALL] = Call()
            self._thread.start()
        return call

    @contextmanager
    def vote(self, kind: VoteKind, body: bytes = b"") -> Iterator[Call]:
        """Makes a joint call, for the `with` block that waits for its end. Whatever leaves the block before that, be it
        Ctrl-C, lets the master withdraw the vote, without waiting for it. Raises Closed."""
        number = next(self._numbers)
        try:
            with self._lock:
                self._check_running()
                call = self._calls[number] = Call()
                self._loop.call_soon_threadsafe(self._vote, kind, number, body)
            yield call
        except BaseException:
            self._abandon(number)
            raise

    def state_event(self, event: object) -> None:
        """Passes an event of a shared-state transfer to the core. Raises Closed."""
        with self._lock:
            self._check_running()
            self._loop.call_soon_threadsafe(lambda: self._perform(self._protocol.state_event(event, _now())))

    def explain(self) -> str:
        """What this peer waits for, and for whom; empty if for nothing. Raises Closed."""
        answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        with self._lock:
            self._check_running()
            self._loop.call_soon_threadsafe(lambda: answers.put(self._protocol.explain()))
        while True:
            try:
                return answers.get(timeout=_SIGNAL_S)
            except queue.Empty:  # closed meanwhile? Then the loop answers no more
                self._check_running()

    def failed(self, failure: PCCLError) -> None:
        """The user is about to see `failure`: leaves a flight record, where that was asked for."""
        self.tracer.failed(failure, 0 if self.view is None else self.view.epoch)

    def trace(self, reason: str, text: str = "") -> Trace:
        """What the flight recorder remembers now. Raises Closed."""
        view, now = self.view, (time.time_ns(), time.monotonic_ns())
        records = [] if self.engine is None else self.engine.trace()
        members = () if view is None else tuple(TraceMember(it.id.hex(), it.address, it.port) for it in view.members)
        header = Header(
            peer=self.peer.hex(),
            group=self._options.group,
            rank=self.rank,
            epoch=0 if view is None else view.epoch,
            host=os.uname().nodename,
            pid=os.getpid(),
            reason=reason,
            text=text,
            wall_ns=now[0],
            monotonic_ns=now[1],
            members=members,
        )
        return Trace(
            header,
            tuple(it for it in records if isinstance(it, Operation)),
            tuple(it for it in records if isinstance(it, RecordedEvent)),
            tuple(it for it in records if isinstance(it, Link)),
        )

    def end(self) -> None:
        """Says farewell to the master, ends all operations, frees the engine. Idempotent; bounded by a few seconds."""
        if self._ended == _FORKED:
            return
        if threading.current_thread() is self._thread:  # the garbage collector chose this thread
            threading.Thread(target=self.end, name="pccl-end", daemon=True).start()
            return
        with self._lock:
            started = not self._thread.prevent()
            if not started:
                self._ended = "closed"
                self._loop.close()
            elif self._ended is None:
                self._loop.call_soon_threadsafe(self._leave, "closed")
        if started:
            self._thread.wait(_STOP_S)
        self.tracer.close()
        if self.engine is not None:
            with contextlib.suppress(Closed):  # another thread may be ending it too
                self.engine.halt(Status.CLOSED, "the communicator was closed")
            self._flights.poll()
            self.engine.close()
        self._flights.land()

    def forked(self) -> None:
        """To be called in a forked child: gives up all that was inherited and tells nobody anything."""
        self._lock = threading.RLock()
        self._ended = _FORKED
        self._calls.clear()
        if self._master is not None:
            system.close_connections_to(self._master.host, self._master.port)
        if self.engine is not None:
            self.engine.forked()

    def _abandon(self, number: int) -> None:
        """The caller is gone. Nothing happens if its call has ended."""
        with self._lock:
            if self._calls.pop(number, None) is not None and self._ended is None:
                self._loop.call_soon_threadsafe(lambda: self._perform(self._protocol.abandon(number, _now())))

    def _check_running(self) -> None:
        if self._ended is not None:
            raise Closed(f"the communicator is {self._ended}")

    # ------------------------------------------------------------ the thread's frame

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.set_exception_handler(self._fail)
        joining = self._loop.create_task(self._join())
        joining.add_done_callback(self._joined)
        try:
            self._loop.run_forever()
        finally:
            for task in [joining, *([] if self._looking is None else [self._looking])]:
                task.cancel()
                while not task.done():  # a stop that was asked for twice ends this run too
                    with contextlib.suppress(asyncio.CancelledError, Exception):
                        self._loop.run_until_complete(task)
            if self.engine is not None:
                self._loop.remove_reader(self.engine.event_fd)
            if self._link is not None:
                self._link.close(LEAVE_MS)
            with self._lock:  # from here on nobody hands the loop any more work
                self._ended = self._ended or "closed"
                calls = list(self._calls.values())
                self._calls.clear()
            self._loop.close()
            for call in calls:
                call.put(Closed(f"the communicator is {self._ended}"))

    def _joined(self, joining: asyncio.Task[None]) -> None:
        if not joining.cancelled() and joining.exception() is not None:
            self._fail(self._loop, {"exception": joining.exception()})

    def _fail(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        """A callback raised: nothing that follows would be safe."""
        failure = context.get("exception") or context.get("message")
        logger.critical("the control plane stops: %r", failure)
        text = f"the control plane failed: {failure!r}"
        if self.engine is not None:
            self.engine.halt(Status.SYSTEM, text)
        self._end_calls(error_for(Status.SYSTEM, text))
        loop.stop()

    def _end_calls(self, failure: PCCLError) -> None:
        with self._lock:
            calls = list(self._calls.values())
            self._calls.clear()
        for call in calls:
            call.put(failure)

    async def _join(self) -> None:
        """Finds the master and starts the core."""
        options = self._options
        try:
            self._master, local = await reach.master(options.master, options.connect_timeout_ms / 1000)
            self._listen_address = reach.listen_address(local, options.advertise, options.interface)
        except PCCLError as failure:
            self._end_calls(failure)
            return
        self._protocol.master = f"the master at {self._master}"
        logger.info("master at %s, data plane on %s", self._master, self._listen_address)
        self._link = DealerLink(
            self._loop,
            self.peer,
            self._master,
            on_message=self._received,
            on_connected=self._connected,
            on_disconnected=self._disconnected,
        )
        self._perform(self._protocol.connect(_now()))

    def _leave(self, text: str) -> None:
        if self._link is not None:
            self._perform(self._protocol.leave(text, _now()))
        self._loop.stop()

    # ------------------------------------------------------------ what goes into the core

    def _vote(self, kind: VoteKind, number: int, body: bytes) -> None:
        pending = self._lanes.pending() + (0 if self.engine is None else self.engine.pending())
        self._perform(self._protocol.vote(kind, number, body, pending, _now()))

    def _connected(self) -> None:
        if self._met_master:
            self._perform(self._protocol.reconnected(_now()))
        self._met_master = True

    def _disconnected(self) -> None:
        self._perform(self._protocol.disconnected(_now()))
        if not self._options.master_returns and (self._looking is None or self._looking.done()):
            self._looking = self._loop.create_task(self._look_for_master())

    async def _look_for_master(self) -> None:
        """Where no other master can follow, one at whose address nobody listens is lost for good. A process that ends
        may close its connections a moment before that."""
        assert self._master is not None
        assert self._link is not None
        while not self._link.connected:
            if await reach.nobody_listens(self._master):
                self._perform(self._protocol.master_ended(_now()))
                return
            await asyncio.sleep(_LOOK_S)

    def _received(self, data: bytes) -> None:
        try:
            message = messages.decode(data)
        except ProtocolError as error:
            self._perform(self._protocol.malformed(str(error), _now()))
        else:
            self._perform(self._protocol.received(message, _now()))

    def _timed_out(self) -> None:
        self._timer = None
        self._perform(self._protocol.timed_out(_now()))

    def _engine_events(self) -> None:
        assert self.engine is not None
        while tokens := self.engine.ended():
            self._flights.ended(tokens)
        while (event := self.engine.next_event()) is not None:
            if event.kind == constants.PCCL_EVENT_FROZEN:
                self._perform(self._frozen(event))
            elif event.kind == constants.PCCL_EVENT_LINKED:
                self._perform(self._protocol.engine_linked(event.epoch, event.peer, _now()))
            elif event.kind == constants.PCCL_EVENT_SUSPECT:
                suspect = event.peer
                self._perform(self._protocol.engine_suspect(event.epoch, suspect, event.reason, event.text, _now()))
            elif event.kind == constants.PCCL_EVENT_STALLED:
                name = messages.OperationName(event.tag, event.sequence, event.scope)
                logger.log(logging.WARNING if event.waited_ms >= WARN_MS else logging.DEBUG, "%s", event.text)
                members = self.engine.scope_ranks(event.scope) if scope.is_subgroup(event.scope) else ()
                stalled = self._protocol.engine_stalled(
                    event.epoch, name, event.waited_ms, event.ranks, _now(), event.absent, members
                )
                self._perform(stalled)
            elif event.kind == constants.PCCL_EVENT_REFUSED:
                logger.warning("refused %d connections that are not of this run", event.token)
            elif event.kind == constants.PCCL_EVENT_UNSHARED:
                logger.warning("peers on this host are reached through TCP, not shared memory: %s", event.text)
            elif event.kind == constants.PCCL_EVENT_DETOUR:
                logger.info("links go over TCP, not RDMA: %s", event.text)

    def _frozen(self, event: Event) -> list[PeerOutput]:
        assert self.engine is not None
        try:
            lines = self.engine.report(event.epoch)
        except PCCLError:  # a later view has ended that epoch meanwhile
            return []
        suspect = event.peer if any(event.peer) else NOBODY
        done = {it.scope for it in lines if it.state == constants.PCCL_DATA_DONE and scope.is_subgroup(it.scope)}
        subgroups = [Subgroup(it, self.engine.scope_ranks(it)) for it in sorted(done)]
        return self._protocol.engine_frozen(event.epoch, suspect, event.reason, event.text, lines, _now(), subgroups)

    # ------------------------------------------------------------ what comes out of it

    def _perform(self, outputs: list[PeerOutput]) -> None:
        todo = list(outputs)
        while todo:
            todo.extend(self._perform_one(todo.pop(0)))
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = self._protocol.deadline()
        if deadline is not None:
            self._timer = self._loop.call_later(max(0, deadline - _now()) / 1000, self._timed_out)

    def _perform_one(self, output: PeerOutput) -> list[PeerOutput]:
        """Performs one output; returns what the core answers to that."""
        assert self._link is not None
        if isinstance(output, Tell):
            self._link.send(messages.encode(output.message))
        elif isinstance(output, Install):
            return self._install(output)
        elif isinstance(output, Resolve | Reject):
            with self._lock:
                call = self._calls.pop(output.call, None)
            if call is not None:
                call.put(output)
        elif isinstance(output, StateOutput):
            self._pass_on(output)
        elif isinstance(output, OpenDataPlane):
            return self._open_data_plane(output)
        elif isinstance(output, Reconnect):
            self._link.redial()
        elif isinstance(output, Notify):
            logger.info("%s", output.text)
        else:
            return self._drive_engine(output)
        return []

    def _drive_engine(self, output: Freeze | DialPeer | Halt | Ask) -> list[PeerOutput]:
        engine = self.engine
        if engine is None:  # halted before the data plane was opened
            return []
        if isinstance(output, Freeze):
            engine.freeze(output.epoch)
        elif isinstance(output, DialPeer):
            engine.dial(output.epoch, output.peer)
        elif isinstance(output, Halt):
            engine.halt(output.status, output.text)
        else:
            started = engine.has_started(output.epoch, output.operation)
            return self._protocol.started_answer(output.epoch, output.operation, started, _now())
        return []

    def _open_data_plane(self, output: OpenDataPlane) -> list[PeerOutput]:
        options = self._options
        advertise = options.advertise
        try:
            self.engine = Engine(
                EngineOptions(
                    peer=self.peer,
                    run_secret=output.run_secret,
                    listen_address=self._listen_address,
                    listen_port=advertise.port if advertise is not None else 0,
                    host_id=self._host_id,
                    stripes=options.stripes,
                    min_world_size=options.min_world_size,
                    connect_timeout_ms=options.link_timeout_ms,
                    operation_timeout_ms=options.operation_timeout_ms,
                    checksum=options.checksum,
                    shared_memory=options.paths.shared_memory,
                    rdma=options.paths.rdma,
                    rdma_device=options.paths.device,
                )
            )
        except PCCLError as failure:
            self._end_calls(failure)
            return []
        self._loop.add_reader(self.engine.event_fd, self._engine_events)
        address = advertise.host if advertise is not None else self._listen_address
        return self._protocol.opened(address, self.engine.port, self._host_id, self._cores, _now())

    def _install(self, output: Install) -> list[PeerOutput]:
        assert self.engine is not None
        view = output.view
        # Published first: a caller whose operation the view ends must not read the one before.
        self._settled.clear()
        self.installed = output
        try:
            self.engine.install(
                view.epoch,
                output.rank,
                view.members,
                view.ring,
                output.commits,
                view.cause,
                view.text,
                view.shape,
                view.parents,
                view.prices,
            )
        except PCCLError as failure:
            return self._protocol.install_failed(view.epoch, str(failure), _now())
        finally:
            self._settled.set()
        return []

    def _pass_on(self, output: StateOutput) -> None:
        """To the thread that synchronises shared state; the core has one open vote at most."""
        with self._lock:
            calls = list(self._calls.values())
        for call in calls:
            call.put(output)


def _now() -> int:
    return time.monotonic_ns() // 1_000_000
