# SPDX-License-Identifier: MIT
"""The shell of a simulated peer: its core, its engine, its program, and the socket to the master.

What for: it does what pccl/control.py, pccl/shared_state.py and the sockets do, with wires in place of connections.
Must not know: which faults strike, what is right.

The one idea: it decides as little as the real one. What it may suffer is a method here, and when it happens is the
world's business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pccl import messages
from pccl.errors import Status
from pccl.messages import StateAgreed
from pccl.protocol.state_peer import PeerStateSync, Transfer
from pccl.protocol.types import (
    CONNECT_CALL,
    Ask,
    DialPeer,
    Event,
    Freeze,
    Halt,
    Install,
    OpenDataPlane,
    PeerOutput,
    Reconnect,
    Reject,
    Resolve,
    Tell,
    VoteKind,
)
from tests.sim.content import Content
from tests.sim.dataplane import Group
from tests.sim.fetch import Fetching
from tests.sim.master import LIMITS
from tests.sim.network import Node, Wire
from tests.sim.operation import Key, Operation, PeerId
from tests.sim.program import Outcome, Program

if TYPE_CHECKING:
    from tests.sim.world import World

MASTER_TIMEOUT_MS = 5_000
JOINT_TIMEOUT_MS = 60_000


@dataclass(slots=True)
class Control:
    """The control connection of one peer: both wires, and who believes that it stands. `usurped`: the router takes
    another process for this one, and sends that one what is for this one."""

    up: Wire
    down: Wire
    generation: int
    stands: bool = True
    reachable: bool = True
    noticed: bool = False
    usurped: bool = False


class SimPeer(Node):
    """See the module."""

    def __init__(self, world: World, peer: PeerId, group: int, place: int) -> None:
        super().__init__(world.clock)
        self.world, self.id, self.group, self.place = world, peer, group, place
        self.core = world.kinds.peer(
            peer,
            world.clock.random.randbytes(16),
            group,
            sync=PeerStateSync(),
            master_timeout_ms=MASTER_TIMEOUT_MS,
            joint_timeout_ms=world.patience_ms(),
            limits=LIMITS,
            place=place,
        )
        self.engine = world.kinds.engine(
            self, peer, self._transmit, self._event, world.checkers, min_world=world.min_world
        )
        world.links.attach(peer, self, self.engine)
        self.program = Program(self, world.habits())
        self.control: Control | None = None
        self.accepted = False
        self.fetching: Fetching | None = None
        self._dialling = 0
        self._queued: list[bytes] = []
        self._timer: float | None = None
        self._kinds: dict[int, VoteKind] = {}

    def begin(self) -> None:
        self.perform(self.core.connect(self.clock.ms))
        self.dial()

    # ------------------------------------------------------------------------------------------ shell

    def perform(self, outputs: Sequence[PeerOutput]) -> None:
        """What the core answers to an output is performed after the rest of the list."""
        todo = list(outputs)
        while todo:
            todo.extend(self._perform_one(todo.pop(0)))
        deadline = self.core.deadline()
        if deadline is not None and (self._timer is None or deadline < self._timer):
            self._timer = float(deadline)
            self.clock.at(deadline, self.deliver, self._tick, self._timer)

    def _perform_one(self, output: PeerOutput) -> Sequence[PeerOutput]:
        if isinstance(output, Tell):
            self.tell(messages.encode(output.message))
        elif isinstance(output, OpenDataPlane):
            self.later(1.0, self._call, self.core.opened, "127.0.0.1", 1, 1 + self.id[0] % 2, self.id[1] % 4)
        elif isinstance(output, Install):
            self.world.checkers.one_membership_per_epoch(self.id, output.view)
            if self.world.lines is not None:
                self.world.trace("installs", f"{self.id.hex()[:8]} {output.view.epoch} commits {output.commits}")
            self.engine.install(output.view, output.commits)
        elif isinstance(output, Freeze):
            self.engine.freeze(output.epoch)
        elif isinstance(output, DialPeer):
            if output.epoch == self.engine.epoch and output.peer in self.engine.members:
                self.world.links.dial(self.id, output.peer, output.epoch)
        elif isinstance(output, Ask):
            answer = self.engine.has_started(output.epoch, output.operation)
            return self.core.started_answer(output.epoch, output.operation, answer, self.clock.ms)
        elif isinstance(output, Resolve):
            self._resolve(output)
        elif isinstance(output, Reject):
            self._reject(output)
        elif isinstance(output, Reconnect):
            self._redial()
        elif isinstance(output, Transfer):
            self.fetching = Fetching(self, output.plan)
        elif isinstance(output, Halt):
            self.world.trace("halt", f"{self.id.hex()[:8]}: {output.status.name} {output.text}")
            self.world.checkers.no_protocol_errors(Event.MASTER, output.text)
            self.engine.halt(output.status)
            self.later(5.0, self.world.crash, self, False)
        return ()

    def _resolve(self, output: Resolve) -> None:
        if output.call == CONNECT_CALL:
            self.accepted = True
            self.look_around()
            self.program.accepted()
            return
        kind = self._kinds.pop(output.call)
        self.fetching = None
        self.world.checkers.answer_was_journalled(self.id, output.call, kind, output.flag, output.body)
        self.look_around()
        self.program.resolved(output.flag, output.body)

    def _reject(self, output: Reject) -> None:
        if output.call == CONNECT_CALL:
            return
        self._kinds.pop(output.call, None)
        self.fetching = None
        if output.status is Status.TIMEOUT:
            self.world.checkers.timeout_was_journalled(self.id, output.call)
            self.mistaken()
        elif output.status is Status.STATE:
            self.world.judge_refusal(self, output.text)
        self.program.rejected(output.status, output.text)

    def be_patient(self) -> None:
        """Its next joint calls are not given up."""
        self.core._call.timeout_ms = JOINT_TIMEOUT_MS

    def interrupt(self) -> None:
        """Ctrl-C in the joint call that is open, if one is: the program makes another one at once."""
        call = self.program.call
        if self._kinds.pop(call, None) is not None:
            self.fetching = None
            self.mistaken()
            self._call(self.core.abandon, call)
            self.program.again()

    def leave(self) -> None:
        self._call(self.core.leave, "enough")

    def _call(self, method: Callable[..., Sequence[PeerOutput]], *arguments: Any) -> None:
        self.perform(method(*arguments, self.clock.ms))

    def _tick(self, timer: float) -> None:
        if timer == self._timer:
            self._timer = None
            self.perform(self.core.timed_out(self.clock.ms))

    # ------------------------------------------------------------------------------------------ the DEALER socket

    def dial(self) -> None:
        self._dialling += 1
        self.clock.after(self.clock.random.uniform(1, 40), self._dialled, self._dialling)

    def _dialled(self, attempt: int) -> None:
        if not self.alive or attempt != self._dialling:
            return
        if not self.world.master.alive or self.world.is_cut_off(self):
            self.dial()
            return
        again = self.control is not None
        self.deliver(self._connected, self.world.connect(self), again)

    def _connected(self, control: Control, again: bool) -> None:
        self.control = control
        queued, self._queued = self._queued, []
        for data in queued:
            self.tell(data)
        if again:
            self._call(self.core.reconnected)

    def cut_off(self, control: Control) -> None:
        """The socket notices that its connection is gone."""
        if self.control is control and not control.noticed:
            control.noticed = True
            self._call(self.core.disconnected)
            self.dial()

    def _redial(self) -> None:
        """Gives the connection up, with what waits for it. The core is told when a fresh one stands."""
        self._queued.clear()
        if self.control is not None:
            self.control.noticed = True
            self.world.break_control(self)
        self.dial()

    def tell(self, data: bytes) -> None:
        """Queues while nothing stands. What is told between the break and its discovery may be lost, or wait for the
        next connection."""
        control = self.control
        if control is None or control.noticed:
            self._queued.append(data)
        elif control.stands:
            control.up.send(self.world.master.heard, (self.id, data))
        elif self.clock.random.random() < 0.5:
            self._queued.append(data)

    def heard(self, item: tuple[int, bytes]) -> None:
        generation, data = item
        if self.control is not None and self.control.generation == generation and not self.control.noticed:
            self._call(self.core.received, messages.decode(data))

    # ------------------------------------------------------------------------------------------ data plane

    def _transmit(self, target: PeerId, frame: tuple[Any, ...]) -> None:
        self.world.links.transmit(self.id, target, frame)

    def _event(self, name: str, *arguments: Any) -> None:
        self.later(0.2, self._engine_event, name, arguments)

    def _engine_event(self, name: str, arguments: tuple[Any, ...]) -> None:
        if name == "frozen":
            epoch, suspect, reason, text = arguments
            if epoch == self.engine.epoch and self.engine.halted is None:
                self.world.faults.moment("froze")
                frozen = partial(self.core.engine_frozen, subgroups=self.engine.subgroups())
                self._call(frozen, epoch, suspect, reason, text, self.engine.report())
        elif name == "suspect":
            self._call(self.core.engine_suspect, *arguments)
        elif name == "linked":
            self._call(self.core.engine_linked, *arguments)
        else:
            *said, team = arguments
            self._call(partial(self.core.engine_stalled, members=team), *said)

    def fetched(self, sync: int, content: Content) -> None:
        """All that the program lacks is here; it takes its place when the call ends well."""
        self.program.fetched = (sync, content)

    def state_event(self, event: object) -> None:
        self._call(self.core.state_event, event)

    # ------------------------------------------------------------------------------------------ the program's host

    def look_around(self) -> None:
        """Reads what the user can read of the whole run."""
        census = self.core.census
        numbers = (census.peers, census.groups, census.largest_group)
        self.world.checkers.same_numbers(self.id, self.core.epoch, numbers)

    def vote(self, kind: VoteKind, call: int, body: bytes) -> None:
        self.look_around()
        self._kinds[call] = kind
        if kind is VoteKind.SYNC_SHARED_STATE:
            self.world.checkers.same_state(self.id, self.program.content)
        self._call(self.core.vote, kind, call, body, self.engine.pending)

    def start(self, operation: Operation) -> None:
        self.look_around()
        if self.world.lines is not None:
            what = "a receive from anybody" if operation.from_any else operation.key[1]
            self.world.trace("starts", f"{self.id.hex()[:8]} {what} of tag {operation.tag}")
        self.engine.start(operation)

    def pending(self) -> int:
        return self.engine.pending

    def present(self) -> Group:
        return self.engine.present

    def seen(self, tag: int, epoch: int) -> None:
        self.engine.seen(tag, epoch)

    def draw(self) -> float:
        return self.clock.random.random()

    def mistaken(self) -> None:
        """A wrong joint call of the run's scope may end the votes and operations of all groups. So may one that was
        given up, since its caller is out of step."""
        for group in range(self.world.groups):
            self.world.checkers.disturbed(group)

    def agreed(self, agreed: StateAgreed, content: Content) -> None:
        self.world.checkers.same_agreement(self.id, agreed, content)

    def finished(self, key: Key, epoch: int, members: tuple[PeerId, ...], step: list[Outcome]) -> None:
        if self.world.lines is not None:
            self.world.trace("finished", f"{self.id.hex()[:8]} {key[1]} in epoch {epoch}")
        self.world.checkers.same_outcome(self.id, key, epoch, members)
        self.world.checkers.whole_step(self.id, epoch, step)
        self.world.operations += 1

    def sent(self, epoch: int, tag: int, message: Key) -> None:
        self.world.checkers.sent(epoch, tag, message)

    def received(self, epoch: int, bound: int, tag: int, place: int, message: Key) -> None:
        if self.world.lines is not None:
            self.world.trace("received", f"{self.id.hex()[:8]} {message[1]} of {message[2].hex()[:8]} in epoch {epoch}")
        self.world.checkers.one_receive_per_send(self.id, epoch, bound, tag, place, message)

    def aborted(self, status: Status, epoch: int) -> None:
        if self.world.lines is not None:
            self.world.trace("aborted", f"{self.id.hex()[:8]} {status.name} in epoch {epoch}")
        # Without a master a joint call may wait for long, and so may an operation that needs its caller.
        if status is not Status.TIMEOUT or not self.world.master_fails:
            self.world.checkers.no_abort_without_cause(self.group, status, epoch)
        self.world.aborts += 1
