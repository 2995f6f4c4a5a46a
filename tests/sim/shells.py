# SPDX-License-Identifier: MIT
"""The shells of the simulated world: one around the master's core, one around the core of each peer.

What for: they do what pccl/master.py and pccl/control.py do, with wires in place of sockets and a disk of bytes. Must
not know: which faults strike, what is right.

The one idea: they decide as little as the real ones. What a shell may suffer (a crash between two outputs, a lost
message) is a method here, and when it happens is the world's business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pccl import messages
from pccl.errors import ProtocolError, Status
from pccl.messages import StateFailed, StateFetched, StateReceived
from pccl.protocol import journal
from pccl.protocol.master import MasterProtocol
from pccl.protocol.peer import PeerProtocol
from pccl.protocol.state_master import MasterSync
from pccl.protocol.state_peer import PeerStateSync, Transfer
from pccl.protocol.types import (
    CONNECT_CALL,
    Append,
    Ask,
    Event,
    Freeze,
    Halt,
    Install,
    Limits,
    MasterOutput,
    Notify,
    OpenDataPlane,
    PeerOutput,
    Reconnect,
    Reject,
    Resolve,
    Send,
    Tell,
    VoteKind,
)
from tests.sim.dataplane import Key, Operation, PeerId
from tests.sim.network import Node, Wire
from tests.sim.program import Program

if TYPE_CHECKING:
    from tests.sim.world import World

LIMITS = Limits(
    heartbeat_ms=150, heartbeat_limit_ms=600, probe_ms=20, report_limit_ms=1_200, link_failures=3, link_window_ms=4_000
)
MASTER_TIMEOUT_MS = 5_000
JOINT_TIMEOUT_MS = 60_000


@dataclass(slots=True)
class Control:
    """The control connection of one peer: both wires, and who believes that it stands."""

    up: Wire
    down: Wire
    generation: int
    stands: bool = True
    reachable: bool = True
    noticed: bool = False


class SimMaster(Node):
    """The shell of the master, with a journal that survives it."""

    def __init__(self, world: World) -> None:
        super().__init__(world.clock)
        self.world = world
        self.disk = bytearray()
        self.core: MasterProtocol | None = None
        self.crash_in: int | None = None
        self._encoded: tuple[object, bytes] = (None, b"")
        self._timer: float | None = None

    def start(self) -> None:
        self.alive = True
        past, valid = journal.replay(bytes(self.disk))
        del self.disk[valid:]
        if self.disk:
            rewritten = b"".join(journal.encode(record) for record in journal.snapshot(past))
            if journal.replay(rewritten) != (past, len(rewritten)):
                self.world.checkers.fail("a snapshot of the journal does not replay to the same state")
            self.disk[:] = rewritten
        self.core = self.world.master_class(
            draw=lambda: self.clock.random.getrandbits(64), sync=MasterSync, limits=LIMITS, past=past
        )
        self.perform(self.core.start(self.clock.ms))

    def crash(self) -> None:
        self.kill()
        self.core = None
        self.crash_in = None
        self._timer = None
        self.world.trace("master crashed")
        for peer in self.world.peers.values():
            self.world.break_control(peer)

    def perform(self, outputs: Sequence[MasterOutput]) -> None:
        """Like the real shell; but it may die before, in the middle of or after any output."""
        unreachable: list[PeerId] = []
        for output in outputs:
            if self.crash_in is not None:
                self.crash_in -= 1
                if self.crash_in <= 0:
                    self._die_in(output)
                    return
            if isinstance(output, Send):
                if not self._send(output):
                    unreachable.append(output.peer)
            elif isinstance(output, Append):
                self.disk += journal.encode(output.record)
                self.world.written(output.record)
            elif isinstance(output, Notify):
                self.world.trace(output.event.value, output.text)
                self.world.checkers.no_protocol_errors(output.event, output.text)
        core = self.core
        for peer in unreachable:
            if core is not None and core is self.core:
                self.perform(core.disconnected(peer, self.clock.ms))
        self._arm()

    def _die_in(self, output: MasterOutput) -> None:
        if isinstance(output, Append):
            frame = journal.encode(output.record)
            kept = self.clock.random.choice([0, len(frame), self.clock.random.randrange(len(frame))])
            self.disk += frame[:kept]
            if kept == len(frame):
                self.world.written(output.record)
        self.crash()
        self.world.restart_master()

    def _send(self, output: Send) -> bool:
        if self._encoded[0] is not output.message:
            self._encoded = (output.message, messages.encode(output.message))
        peer = self.world.peers.get(output.peer)
        if peer is None or peer.control is None or not peer.control.reachable:
            return False
        peer.control.down.send(peer.heard, (peer.control.generation, self._encoded[1]))
        return True

    def heard(self, item: tuple[PeerId, bytes]) -> None:
        peer, data = item
        if self.core is not None:
            try:
                outputs = self.core.received(peer, messages.decode(data), self.clock.ms)
            except ProtocolError as error:
                outputs = self.core.malformed(peer, str(error), self.clock.ms)
            self.perform(outputs)

    def closed(self, _: object) -> None:
        if self.core is not None:
            self.perform(self.core.connection_closed(self.clock.ms))

    def _arm(self) -> None:
        deadline = self.core.deadline() if self.core is not None else None
        if deadline is not None and (self._timer is None or deadline < self._timer):
            self._timer = float(deadline)
            self.clock.at(deadline, self.deliver, self._tick, self._timer)

    def _tick(self, timer: float) -> None:
        if self.core is not None and timer == self._timer:
            self._timer = None
            self.perform(self.core.timed_out(self.clock.ms))


class SimPeer(Node):
    """The shell of one peer: core, engine model, program."""

    def __init__(self, world: World, peer: PeerId, group: int) -> None:
        super().__init__(world.clock)
        self.world, self.id, self.group = world, peer, group
        secret = world.clock.random.randbytes(16)
        self.core = PeerProtocol(
            peer,
            secret,
            group,
            sync=PeerStateSync(),
            master_timeout_ms=MASTER_TIMEOUT_MS,
            joint_timeout_ms=world.patience_ms(),
            limits=LIMITS,
        )
        self.engine = world.engine_class(self, peer, self._transmit, self._event, world.checkers.fail)
        self.program = Program(self, world.mistake, world.pause_ms, world.groups == 1)
        self.control: Control | None = None
        self.accepted = False
        self._queued: list[bytes] = []
        self._timer: float | None = None
        self._kinds: dict[int, VoteKind] = {}

    def begin(self) -> None:
        self.perform(self.core.connect(self.clock.ms))
        self.world.dial(self)

    # ------------------------------------------------------------------------------------------ shell

    def perform(self, outputs: Sequence[PeerOutput]) -> None:
        for output in outputs:
            self._perform_one(output)
        deadline = self.core.deadline()
        if deadline is not None and (self._timer is None or deadline < self._timer):
            self._timer = float(deadline)
            self.clock.at(deadline, self.deliver, self._tick, self._timer)

    def _perform_one(self, output: PeerOutput) -> None:
        now = self.clock.ms
        if isinstance(output, Tell):
            self.tell(messages.encode(output.message))
        elif isinstance(output, OpenDataPlane):
            self.later(1.0, self._call, self.core.opened, "127.0.0.1", 1, 1 + self.id[0] % 2)
        elif isinstance(output, Install):
            self.world.checkers.one_membership_per_epoch(self.id, output.view)
            self.engine.install(output.view, output.commits)
        elif isinstance(output, Freeze):
            self.engine.freeze(output.epoch)
        elif isinstance(output, Ask):
            answer = self.engine.has_started(output.epoch, output.operation)
            self.perform(self.core.started_answer(output.epoch, output.operation, answer, now))
        elif isinstance(output, Resolve):
            self._resolve(output)
        elif isinstance(output, Reject):
            if output.call != CONNECT_CALL:
                self._reject(output)
        elif isinstance(output, Reconnect):
            self.world.break_control(self, at_once=True)
        elif isinstance(output, Transfer):
            self.later(2.0, self._fetch, output)
        elif isinstance(output, Halt):
            self.world.trace("halt", f"{self.id.hex()[:8]}: {output.status.name} {output.text}")
            self.world.checkers.no_protocol_errors(Event.MASTER, output.text)
            self.engine.halt(output.status)
            self.later(5.0, self.world.crash, self, False)

    def _resolve(self, output: Resolve) -> None:
        if output.call == CONNECT_CALL:
            self.accepted = True
            self.program.accepted()
            return
        kind = self._kinds.pop(output.call)
        self.world.checkers.answer_was_journalled(self.id, output.call, kind, output.flag, output.body)
        self.program.resolved(output.call, output.flag, output.body)

    def _reject(self, output: Reject) -> None:
        self._kinds.pop(output.call, None)
        if output.status is Status.TIMEOUT:
            self.world.checkers.timeout_was_journalled(self.id, output.call)
            self.mistaken()
        self.program.rejected(output.status, output.text)

    def be_patient(self) -> None:
        """Its next joint calls are not given up."""
        self.core._call.timeout_ms = JOINT_TIMEOUT_MS

    def interrupt(self) -> None:
        """Ctrl-C in the joint call that is open, if one is: the program makes another one at once."""
        call = self.program.call
        if self._kinds.pop(call, None) is not None:
            self.mistaken()
            self._call(self.core.abandon, call)
            self.program.again()

    def _call(self, method: Callable[..., Sequence[PeerOutput]], *arguments: Any) -> None:
        self.perform(method(*arguments, self.clock.ms))

    def _tick(self, timer: float) -> None:
        if timer == self._timer:
            self._timer = None
            self.perform(self.core.timed_out(self.clock.ms))

    def tell(self, data: bytes) -> None:
        """A DEALER socket: queues while nothing stands, loses what was sent into a connection that is gone."""
        if self.control is None or self.control.noticed:
            self._queued.append(data)
        elif self.control.stands:
            self.control.up.send(self.world.master.heard, (self.id, data))

    def connected(self, control: Control, again: bool) -> None:
        self.control = control
        queued, self._queued = self._queued, []
        for data in queued:
            self.tell(data)
        if again:
            self._call(self.core.reconnected)

    def cut_off(self, control: Control) -> None:
        if self.control is control and not control.noticed:
            control.noticed = True
            self._call(self.core.disconnected)
            self.world.dial(self)

    def heard(self, item: tuple[int, bytes]) -> None:
        generation, data = item
        if self.control is not None and self.control.generation == generation and not self.control.noticed:
            self._call(self.core.received, messages.decode(data))

    # ------------------------------------------------------------------------------------------ data plane

    def _transmit(self, target: PeerId, frame: tuple[Any, ...]) -> None:
        self.world.transmit(self, target, frame)

    def _event(self, name: str, *arguments: Any) -> None:
        self.later(0.2, self._engine_event, name, arguments)

    def _engine_event(self, name: str, arguments: tuple[Any, ...]) -> None:
        if name == "frozen":
            epoch, suspect, reason, text = arguments
            if epoch == self.engine.epoch and self.engine.halted is None:
                self._call(self.core.engine_frozen, epoch, suspect, reason, text, self.engine.report())
        elif name == "suspect":
            self._call(self.core.engine_suspect, *arguments)
        else:
            self._call(self.core.engine_stalled, *arguments)

    def _fetch(self, transfer: Transfer) -> None:
        """Fetches what the plan says from the first donor that lives."""
        plan = transfer.plan
        if not plan.fetch or plan.call not in self._kinds:
            return
        source = plan.fetch[0]
        donors = [plan.donors[place].peer for place in source.donors] or [it.peer for it in plan.donors]
        for donor in donors:
            peer = self.world.peers.get(donor)
            if peer is not None and peer.alive and peer.program.content.digest == source.digest:
                self.program.fetched = peer.program.content
                self._call(self.core.state_event, StateFetched(plan.sync, (StateReceived(donor, 16),)))
                return
        self._call(self.core.state_event, StateFailed(plan.sync, "all donors are gone"))

    # ------------------------------------------------------------------------------------------ the program's host

    def vote(self, kind: VoteKind, call: int, body: bytes) -> None:
        self._kinds[call] = kind
        if kind is VoteKind.SYNC_SHARED_STATE:
            self.world.checkers.same_state(self.id, self.program.content)
        self._call(self.core.vote, kind, call, body, self.engine.pending)

    def start(self, operation: Operation) -> None:
        self.engine.start(operation)

    def draw(self) -> float:
        return self.clock.random.random()

    def mistaken(self) -> None:
        """A wrong joint call of the run's scope may end the votes and operations of all groups. So may one that was
        given up, since its caller is out of step."""
        for group in range(self.world.groups):
            self.world.checkers.disturbed(group)

    def finished(self, key: Key, epoch: int, members: tuple[PeerId, ...]) -> None:
        self.world.checkers.same_outcome(self.id, key, epoch, members)
        self.world.operations += 1

    def aborted(self, key: Key, status: Status, epoch: int) -> None:
        # Without a master a joint call may wait for long, and so may an operation that needs its caller.
        if status is not Status.TIMEOUT or not self.world.master_fails:
            self.world.checkers.no_abort_without_cause(self.group, status, epoch)
        self.world.aborts += 1
