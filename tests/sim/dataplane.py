# SPDX-License-Identifier: MIT
"""A model of the data plane: operations with a data phase and a finish barrier, freeze, report, verdicts.

What for: the cores are tested against what an engine does through pccl.h, without C. Must not know: the control plane,
what an operation is good for.

The one idea: an operation is reduced to what the commit protocol sees of it. Its data phase ends when all needed
members' frames are here; then a dissemination barrier runs; whoever completes it returns success. A deferred operation
returns after its data phase, and the commit of its step is an operation that has only the barrier. A send and its
receive are one operation of two members: one frame goes there, and the barrier is one word in return. One of a subgroup
is as one of the group, among its members. A receive of any
source is nameless until a frame has come that it may take (matching.py).

Where the view's shape leaves links out, frames of members that are not joined are passed on by those between them, each
frame once, and the barrier is a word of each member to all. Sends and subgroups are for views of all links here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pccl import scope
from pccl.errors import Status
from pccl.messages import OperationName, ReportLine, Subgroup, View
from pccl.protocol.topology import Arrangement, Shape
from pccl.protocol.verdict import DATA_DONE, DATA_PHASE, NOT_STARTED, RETURNED
from tests.sim.matching import Matching
from tests.sim.operation import Name, Operation, PeerId

if TYPE_CHECKING:
    from tests.sim.network import Node

STALL_MS = 30.0
TIMEOUT_MS = 1_500.0
PATIENCE = 10
"""A member whose frames come, but none of this operation, renews the patience so many times. Frames are data here: what
members ask each other about waits, and answer, renews nothing."""


class Group(NamedTuple):
    """A group in one epoch. `full`: any two of it may exchange something."""

    epoch: int
    members: tuple[PeerId, ...]
    rank: int
    full: bool


class Witness(Protocol):
    """Who judges what an engine does."""

    def fail(self, text: str) -> None: ...
    def settled(self, peer: PeerId, epoch: int, name: Name, success: bool, kind: int) -> None: ...


class Engine:
    """One peer's data plane. `transmit(target, frame)` gives a frame to the link; `event(name, *arguments)` queues an
    engine event for the shell. In a group smaller than `min_world` nothing runs."""

    def __init__(
        self,
        node: Node,
        peer: PeerId,
        transmit: Callable[[PeerId, tuple[Any, ...]], None],
        event: Callable[..., None],
        witness: Witness,
        min_world: int = 1,
    ) -> None:
        self.peer = peer
        self.epoch = 0
        self.members: tuple[PeerId, ...] = ()
        self.joined: tuple[PeerId, ...] = ()
        self.frozen = False
        self.halted: Status | None = None
        self._node, self._transmit, self._event, self._witness = node, transmit, event, witness
        self._min_world = min_world
        self._operations: dict[Name, Operation] = {}
        self._next: dict[tuple[int, int], int] = {}
        self._below: dict[tuple[int, int], int] = {}
        self._waiting: list[Operation] = []
        self._early: dict[int, list[tuple[PeerId, tuple[Any, ...]]]] = {}
        self._unread: dict[Name, list[tuple[PeerId, tuple[Any, ...]]]] = {}
        self._matching = Matching()
        self._heard_at: dict[PeerId, float] = {}
        self._doubts: dict[PeerId, bool] = {}
        self._unseen: dict[tuple[int, bool, int], bool] = {}
        self._step_open = self._step_broken = False
        self._deferred = 0
        self._full = True
        self._passed_on: dict[tuple[Any, ...], bool] = {}

    # ------------------------------------------------------------------------------------------ user

    def start(self, operation: Operation) -> None:
        if self.halted is not None:
            self._end(operation, self.halted)
        elif self.frozen:
            behind = self._behind(operation)
            if behind:  # a failure that is looked at before the next epoch must not let this call pass
                self._lose(operation, Status.PEER_LOST, max(behind))
                return
            operation.fated = any(it.tag == operation.tag for it in self._open())
            self._waiting.append(operation)
        else:
            self._launch(operation)

    def seen(self, tag: int, epoch: int) -> None:
        """The user has looked at a failure of `tag` that the end of `epoch` brought: it knows where it stands, and may
        call again."""
        steps = any(it == tag and stepwise and lost <= epoch for it, stepwise, lost in self._unseen)
        self._unseen = {it: True for it in self._unseen if it[2] > epoch or (it[0] != tag and not (steps and it[1]))}

    @property
    def present(self) -> Group:
        return Group(self.epoch, self.members, self.members.index(self.peer), self._full)

    @property
    def pending(self) -> int:
        return len(self._open()) + len(self._waiting) + self._step_open

    def _open(self) -> list[Operation]:
        return [it for it in self._operations.values() if it.state < RETURNED] + self._matching.waiting

    def _launch(self, operation: Operation) -> None:
        if self._refuse(operation):
            return
        operation.settles = self._deferred
        if operation.deferred:
            self._step_open = True
            self._deferred += 1
        if self._delays(operation):
            self._matching.waiting.append(operation)
            self._node.later(TIMEOUT_MS, self._give_up, operation)
            self._match(operation.tag)
        else:
            self._begin(operation)

    def _delays(self, operation: Operation) -> bool:
        """Whether it must wait for a send before it has a name."""
        return self._matching.delays(operation, self.members.index(self.peer))

    def _match(self, tag: int) -> None:
        """What may begin of the receives that wait, begins."""
        while not self.frozen and (found := self._matching.take(tag, self._next)) is not None:
            operation, operation.scope = found
            self._begin(operation)

    def _give_up(self, operation: Operation) -> None:
        """Nothing has come for it. Nobody counts on what has no name, so it ends alone."""
        if operation in self._matching.waiting and not self.frozen:
            self._matching.waiting.remove(operation)
            self._end(operation, Status.TIMEOUT)
            self._match(operation.tag)

    def _begin(self, operation: Operation) -> None:
        tag = self._tag(operation)
        operation.sequence = self._next.get(tag, 0)
        self._next[tag] = operation.sequence + 1
        name = (*tag, operation.sequence)
        self._operations[name] = operation
        operation.state = DATA_PHASE
        operation.progress_at = self._node.clock.now
        if operation.paired:
            if self._is_source(operation):
                self._transmit(self._other(operation), ("data", self.epoch, name, operation.key, self.peer, 0))
        elif operation.team:
            for member in self._among(operation):
                if member != self.peer:
                    self._transmit(member, ("data", self.epoch, name, operation.key, self.peer, operation.kind))
        elif not operation.commit:
            self._tell_members("data", self.epoch, name, operation.key, self.peer, operation.kind)
        for source, frame in self._unread.pop(name, []):
            self._frame(source, frame)
        self._step(operation)
        self._node.later(STALL_MS, self._look, self.epoch, operation)

    def _tag(self, operation: Operation) -> tuple[int, int]:
        """Under what it is numbered."""
        return (operation.scope, operation.tag)

    def _name(self, operation: Operation) -> Name:
        return (*self._tag(operation), operation.sequence)

    def _among(self, operation: Operation) -> tuple[PeerId, ...]:
        """Who makes it, if it is no send."""
        return tuple(self.members[rank] for rank in operation.team) or self.members

    def _is_source(self, operation: Operation) -> bool:
        two = scope.pair(operation.scope)
        return two is not None and self.members[two[0]] == self.peer

    def _other(self, operation: Operation) -> PeerId:
        """The one that it is shared with."""
        two = scope.pair(operation.scope)
        assert two is not None
        return self.members[two[1 if self._is_source(operation) else 0]]

    def _behind(self, operation: Operation) -> list[int]:
        """The epochs whose failures it stands behind, and which its user has not looked at."""
        if self._forgets_unseen():
            return []
        return [it[2] for it in self._unseen if it[0] == operation.tag or (it[1] and operation.stepwise)]

    def _refuse(self, operation: Operation) -> bool:
        """Whether it ends before anything is sent for it."""
        behind = self._behind(operation)
        if len(self.members) < self._min_world:
            if operation.stepwise:
                self._step_open = self._step_broken = False
            self._end(operation, Status.TOO_FEW_PEERS)
        elif operation.bound not in (0, self.epoch):
            self._lose(operation, Status.PEER_LOST, self.epoch - 1)
        elif behind:
            self._lose(operation, Status.PEER_LOST, max(behind))
        elif operation.stepwise and self._step_broken:
            self._lose(operation, Status.PEER_LOST, self.epoch - 1)  # the end of this one is another failure
        else:
            return False
        return True

    def _forgets_unseen(self) -> bool:
        """Never; a mutant in the tests does."""
        return False

    def _lose(self, operation: Operation, status: Status, epoch: int) -> None:
        """The end of `epoch` made it fail: later calls of its tag wait until the user knows. It tells of a broken step,
        too."""
        if operation.stepwise and self._step_broken:
            self._step_broken = self._step_open = False
        self._unseen[operation.tag, operation.stepwise, epoch] = True
        self._node.later(0.1, operation.done, operation.key, status, epoch, ())

    def _end(self, operation: Operation, status: Status | None) -> None:
        members = self.members if status is None else ()
        self._node.later(0.1, operation.done, operation.key, status, self.epoch, members)

    # ------------------------------------------------------------------------------------------ progress

    def receive(self, source: PeerId, frame: tuple[Any, ...]) -> None:
        epoch = frame[1]
        self._heard_at[source] = self._node.clock.now
        if self.halted is not None or (epoch < self.epoch and not self._accepts_stale()):
            return
        if epoch > self.epoch:
            self._early.setdefault(epoch, []).append((source, frame))
        elif frame[0] == "abort":
            self.stop(frame[2], Status.ABORTED, "another member stopped")
        elif not self.frozen and self._is_news(source, frame):
            self._frame(source, frame)

    def _is_news(self, source: PeerId, frame: tuple[Any, ...]) -> bool:
        """Whether a frame comes for the first time; if others hear it only through us, they do."""
        if self._full:
            return True
        news = frame not in self._passed_on
        self._passed_on[frame] = True
        for member in self.joined if news else ():
            if member != source:
                self._transmit(member, frame)
        return news

    def _accepts_stale(self) -> bool:
        """Never (G9); a mutant in the tests does."""
        return False

    def _frame(self, source: PeerId, frame: tuple[Any, ...]) -> None:
        what, epoch, name, key, word, kind = frame
        if epoch != self.epoch:
            self._witness.fail(f"a frame of epoch {epoch} got into epoch {self.epoch}")
            return
        operation = self._operations.get(name)
        if operation is None:
            self._unread.setdefault(name, []).append((source, frame))
            if scope.pair(name[0]):
                self._matching.arrived(name)
                self._match(name[1])
            return
        if operation.from_any and what == "data":
            operation.key = key
        if operation.key != key:
            self._witness.fail(f"numbering: epoch {epoch} {name} is {key} on the sender, {operation.key} here")
            return
        if operation.kind != kind:  # a real engine fails this one operation; here the whole epoch is repeated
            self.stop(b"", Status.ABORTED, "members called different things")
            return
        operation.progress_at = self._node.clock.now
        if what == "data":
            operation.heard[word] = True
        else:
            operation.bars[word] = True
        self._step(operation)

    def _needs(self, operation: Operation) -> Sequence[PeerId]:
        """Of whom the data phase needs data: of all, or of one root."""
        if operation.commit or self._is_source(operation):
            return ()
        if operation.paired:
            return (self._other(operation),)
        among = self._among(operation)
        return (among[operation.kind % len(among)],) if operation.kind else among

    def _step(self, operation: Operation) -> None:
        if self.frozen or operation.state in (NOT_STARTED, RETURNED):
            return
        if operation.state == DATA_PHASE and self._data_is_here(operation):
            if operation.deferred:
                self._succeed(operation)
                self._step_commits()
                return
            operation.state = DATA_DONE
            self._bar(operation)
        while operation.state == DATA_DONE:
            if self._barrier_done(operation):
                self._succeed(operation)
            elif operation.round in operation.bars:
                operation.round += 1
                self._bar(operation)
            else:
                return

    def _data_is_here(self, operation: Operation) -> bool:
        if operation.commit:
            return not any(it.deferred and it.settles < operation.settles for it in self._open())
        return all(peer in operation.heard or peer == self.peer for peer in self._needs(operation))

    def _step_commits(self) -> None:
        for operation in self._open():
            if operation.commit:
                self._step(operation)

    def _barrier_done(self, operation: Operation) -> bool:
        if operation.paired:
            return not self._is_source(operation) or self._other(operation) in operation.bars
        if not self._full:
            return all(peer in operation.bars or peer == self.peer for peer in self.members)
        return 1 << operation.round >= len(self._among(operation))

    def _bar(self, operation: Operation) -> None:
        among, name = self._among(operation), self._name(operation)
        if operation.paired:
            if not self._is_source(operation):
                self._transmit(self._other(operation), ("bar", self.epoch, name, operation.key, self.peer, 0))
        elif not self._full:
            self._tell_members("bar", self.epoch, name, operation.key, self.peer, operation.kind)
        elif 1 << operation.round < len(among):
            target = among[(among.index(self.peer) + (1 << operation.round)) % len(among)]
            self._transmit(target, ("bar", self.epoch, name, operation.key, operation.round, operation.kind))

    def _succeed(self, operation: Operation) -> None:
        operation.state = RETURNED
        self._step_settled(operation)
        if not operation.deferred:
            self._witness.settled(self.peer, self.epoch, self._name(operation), True, operation.kind)
        tag = self._tag(operation)
        below = self._below.get(tag, 0)
        while (it := self._operations.get((*tag, below))) is not None and it.state == RETURNED:
            below += 1
        self._below[tag] = below
        self._end(operation, None)

    def _step_settled(self, operation: Operation) -> None:
        if operation.commit and operation.settles == self._deferred:
            self._step_open = False

    def _look(self, epoch: int, operation: Operation) -> None:
        """A waiting operation is reported, and stopped when it has waited too long."""
        if epoch != self.epoch or self.frozen or operation.state == RETURNED or self.halted is not None:
            return
        now = self._node.clock.now
        members = (self._other(operation),) if operation.paired else self._among(operation)
        waits = [peer for peer in members if peer not in operation.heard and peer != self.peer]
        news = max([operation.progress_at, *(self._heard_at.get(peer, 0.0) for peer in waits)])
        if now - news >= TIMEOUT_MS or now - operation.progress_at >= PATIENCE * TIMEOUT_MS:
            text = f"tag {operation.tag} made no progress"
            self.stop(waits[0] if waits else b"", Status.TIMEOUT, text)
            return
        waited = now - operation.progress_at
        if waited >= STALL_MS:
            ranks = [self.members.index(peer) for peer in waits]
            name = OperationName(operation.tag, operation.sequence, operation.scope)
            self._event("stalled", epoch, name, int(waited), ranks, operation.team)
        self._node.later(STALL_MS * 4, self._look, epoch, operation)

    # ------------------------------------------------------------------------------------------ failure

    def link_broke(self, peer: PeerId, text: str, died: bool = False) -> None:
        """The link to `peer` is gone. What is sent to it from now on goes over a fresh one. Behind the failure that
        stopped the epoch it is no more than a doubt: the next epoch makes the link anew. `died`: it is certain that the
        process of `peer` has ended."""
        if peer not in self.members or self.halted is not None:
            return
        status = Status.PEER_DIED if died else Status.PEER_LOST
        if self.frozen:
            self._doubt(peer, Status.PEER_DIED if died else Status.ABORTED, text)
        elif self._open() and peer in self.joined:
            self._doubts[peer] = True
            self.stop(peer, status, text)
        else:
            self._event("suspect", self.epoch, peer, int(status), text)

    def link_doubted(self, peer: PeerId, text: str) -> None:
        """A member cannot be dialled: told once per epoch, and nothing stops for it."""
        if peer in self.members and self.halted is None:
            self._doubt(peer, Status.TIMEOUT, text)

    def _doubt(self, peer: PeerId, reason: Status, text: str) -> None:
        if peer not in self._doubts:
            self._doubts[peer] = True
            self._event("suspect", self.epoch, peer, int(reason), text)

    def link_stands(self, peer: PeerId, epoch: int) -> None:
        """The link to `peer`, which somebody asked for in `epoch` or which was doubted, is there."""
        if peer in self.members and self.halted is None and epoch == self.epoch:
            self._event("linked", self.epoch, peer)

    def freeze(self, epoch: int) -> None:
        if epoch == self.epoch:
            self.stop(b"", Status.OK, "")

    def stop(self, suspect: PeerId, reason: Status, text: str) -> None:
        """Freezes the epoch, tells the members, queues the event."""
        if self.frozen or self.halted is not None:
            return
        self.frozen = True
        self._tell_members("abort", self.epoch, suspect)
        self._event("frozen", self.epoch, suspect, int(reason), text)

    def _tell_members(self, *frame: Any) -> None:
        self._passed_on[frame] = True
        for member in self.joined:
            self._transmit(member, frame)

    def report(self) -> list[ReportLine]:
        lines: list[ReportLine] = []
        for (whose, tag), count in self._next.items():
            below = self._below.get((whose, tag), 0)
            rest = [(seq, self._operations[whose, tag, seq]) for seq in range(below, count)]
            lines += [ReportLine(tag, below, seq, it.state, it.kind, whose) for seq, it in rest]
            if not rest:
                lines.append(ReportLine(tag, below, below, NOT_STARTED, scope=whose))
        return lines

    def subgroups(self) -> list[Subgroup]:
        """Those of the report."""
        done = {it.scope: it.team for it in self._operations.values() if it.team and it.state == DATA_DONE}
        return [Subgroup(whose, team) for whose, team in done.items()]

    def has_started(self, epoch: int, name: OperationName) -> int:
        if epoch != self.epoch:
            return -1
        return 1 if name.sequence < self._next.get((name.scope, name.tag), 0) else 0

    # ------------------------------------------------------------------------------------------ the next epoch

    def install(self, view: View, commits: Sequence[OperationName]) -> None:
        """Settles the epoch before and begins the new one."""
        committed = {(name.scope, name.tag, name.sequence): True for name in commits}
        left = [member.id for member in view.members]
        self._settle(committed, Status(view.cause or Status.PEER_LOST), left)
        for table in (self._operations, self._next, self._below, self._unread, self._doubts, self._passed_on):
            table.clear()
        self._matching = Matching()
        self.epoch, self.frozen = view.epoch, False
        self.members = tuple(member.id for member in view.members)
        arranged, own = Arrangement(Shape(view.shape), view.ring, view.parents), self.members.index(self.peer)
        self.joined = tuple(peer for rank, peer in enumerate(self.members) if rank != own and arranged.joins(own, rank))
        self._full = arranged.shape is Shape.FULL
        waiting, self._waiting = self._waiting, []
        early = [it for epoch, frames in self._early.items() if epoch == self.epoch for it in frames]
        self._early = {epoch: frames for epoch, frames in self._early.items() if epoch > self.epoch}
        if any(frame[0] == "abort" for _, frame in early):
            self.stop(b"", Status.ABORTED, "another member stopped this epoch before it began here")
        for operation in waiting:
            self.start(operation)
        for source, frame in early:
            self.receive(source, frame)

    def _settle(self, committed: dict[Name, bool], cause: Status, left: Sequence[PeerId]) -> None:
        told = False
        for name, operation in self._operations.items():
            if operation.state == RETURNED:
                continue
            success = name in committed
            if success and operation.state != DATA_DONE:
                self._witness.fail(f"epoch {self.epoch} {name} commits, but here it is in state {operation.state}")
            in_vain = self._is_source(operation) and self._other(operation) not in left
            if success or not in_vain:  # else the one that may have got it is gone
                self._witness.settled(self.peer, self.epoch, name, success, operation.kind)
            told = told or (operation.stepwise and not success)
            if success:
                self._step_settled(operation)
                self._end(operation, None)
            else:
                self._lose(operation, cause, self.epoch)
        fated = [it for it in self._waiting if it.fated]
        self._waiting = [it for it in self._waiting if not it.fated]
        for operation in [*self._matching.waiting, *fated]:
            told = told or operation.stepwise
            self._lose(operation, cause, self.epoch)
        if self._step_open:
            self._step_broken = not told
        if told:
            self._step_open = False

    def halt(self, status: Status) -> None:
        if self.halted is None:
            self.halted = status
            for operation in [*self._open(), *self._waiting]:
                self._end(operation, status)
            self._operations.clear()
            self._waiting.clear()
            self._matching = Matching()
            self._step_open = self._step_broken = False
