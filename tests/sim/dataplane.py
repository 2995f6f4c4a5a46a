# SPDX-License-Identifier: MIT
"""A model of the data plane: operations with a data phase and a finish barrier, freeze, report, verdicts.

What for: the cores are tested against what an engine does through pccl.h, without C. Must not know: the control plane,
what an operation is good for.

The one idea: an operation is reduced to what the commit protocol sees of it. Its data phase ends when all needed
members' frames are here; then a dissemination barrier runs; whoever completes it returns success.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pccl.errors import Status
from pccl.messages import OperationName, ReportLine, View
from pccl.protocol.verdict import DATA_DONE, DATA_PHASE, NOT_STARTED, RETURNED

if TYPE_CHECKING:
    from tests.sim.network import Node

STALL_MS = 30.0
TIMEOUT_MS = 1_500.0

Key = tuple[Any, ...]
PeerId = bytes


@dataclass(slots=True)
class Operation:
    """What the user started. `key` says which of the program's operations it is; `done` is called once:
    (key, None, epoch, members) after success, (key, status, epoch, ()) otherwise."""

    key: Key
    tag: int
    kind: int
    done: Callable[[Key, Status | None, int, tuple[PeerId, ...]], None]
    sequence: int = -1
    state: int = NOT_STARTED
    round: int = 0
    heard: dict[PeerId, bool] = field(default_factory=dict)
    bars: dict[int, bool] = field(default_factory=dict)
    progress_at: float = 0.0


class Engine:
    """One peer's data plane. `transmit(target, frame)` gives a frame to the link; `event(name, *arguments)` queues an
    engine event for the shell; `violation(text)` reports what no correct system does."""

    def __init__(
        self,
        node: Node,
        peer: PeerId,
        transmit: Callable[[PeerId, tuple[Any, ...]], None],
        event: Callable[..., None],
        violation: Callable[[str], None],
    ) -> None:
        self.peer = peer
        self.epoch = 0
        self.members: tuple[PeerId, ...] = ()
        self.frozen = False
        self.halted: Status | None = None
        self._node, self._transmit, self._event, self._violation = node, transmit, event, violation
        self._operations: dict[tuple[int, int], Operation] = {}
        self._next: dict[int, int] = {}
        self._below: dict[int, int] = {}
        self._waiting: list[Operation] = []
        self._early: dict[int, list[tuple[PeerId, tuple[Any, ...]]]] = {}
        self._unread: dict[tuple[int, int], list[tuple[PeerId, tuple[Any, ...]]]] = {}
        self._broken: dict[PeerId, str] = {}

    # ------------------------------------------------------------------------------------------ user

    def start(self, operation: Operation) -> None:
        if self.halted is not None:
            self._node.later(0.1, operation.done, operation.key, self.halted, self.epoch, ())
        elif self.frozen and not any(it.tag == operation.tag and it.state < RETURNED for it in self._open()):
            self._waiting.append(operation)
        else:
            self._begin(operation)

    @property
    def pending(self) -> int:
        return len(self._open()) + len(self._waiting)

    def _open(self) -> list[Operation]:
        return [it for it in self._operations.values() if it.state < RETURNED]

    def _begin(self, operation: Operation) -> None:
        operation.sequence = self._next.get(operation.tag, 0)
        self._next[operation.tag] = operation.sequence + 1
        name = (operation.tag, operation.sequence)
        self._operations[name] = operation
        operation.heard.clear()
        operation.bars.clear()
        operation.round, operation.state = 0, NOT_STARTED
        if self.frozen:
            return
        operation.state = DATA_PHASE
        operation.progress_at = self._node.clock.now
        for member in self.members:
            if member != self.peer:
                self._transmit(member, ("data", self.epoch, name, operation.key))
        if self._broken:
            suspect = next(iter(self._broken))
            self.stop(suspect, Status.PEER_LOST, self._broken[suspect])
            return
        for source, frame in self._unread.pop(name, []):
            self._frame(source, frame)
        self._step(operation)
        self._node.later(STALL_MS, self._look, self.epoch, operation)

    # ------------------------------------------------------------------------------------------ progress

    def receive(self, source: PeerId, frame: tuple[Any, ...]) -> None:
        epoch = frame[1]
        if self.halted is not None or (epoch < self.epoch and not self._accepts_stale()):
            return
        if epoch > self.epoch:
            self._early.setdefault(epoch, []).append((source, frame))
        elif frame[0] == "abort":
            self.stop(b"", Status.ABORTED, "")
        elif not self.frozen:
            self._frame(source, frame)

    def _accepts_stale(self) -> bool:
        """Never (G9); a mutant in the tests does."""
        return False

    def _frame(self, source: PeerId, frame: tuple[Any, ...]) -> None:
        kind, epoch, name, key = frame[:4]
        if epoch != self.epoch:
            self._violation(f"a frame of epoch {epoch} got into epoch {self.epoch}")
            return
        operation = self._operations.get(name)
        if operation is None:
            self._unread.setdefault(name, []).append((source, frame))
            return
        if operation.key != key:
            self._violation(f"numbering: epoch {epoch} {name} is {key} on the sender, {operation.key} here")
            return
        operation.progress_at = self._node.clock.now
        if kind == "data":
            operation.heard[source] = True
        else:
            operation.bars[frame[4]] = True
        self._step(operation)

    def _needs(self, operation: Operation) -> Sequence[PeerId]:
        """Of whom the data phase needs data: of all, or of one root."""
        if operation.kind:
            return (self.members[operation.kind % len(self.members)],)
        return self.members

    def _step(self, operation: Operation) -> None:
        if self.frozen or operation.state in (NOT_STARTED, RETURNED):
            return
        if operation.state == DATA_PHASE and all(
            peer in operation.heard or peer == self.peer for peer in self._needs(operation)
        ):
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

    def _barrier_done(self, operation: Operation) -> bool:
        return 1 << operation.round >= len(self.members)

    def _bar(self, operation: Operation) -> None:
        size, rank = len(self.members), self.members.index(self.peer)
        if 1 << operation.round < size:
            name = (operation.tag, operation.sequence)
            target = self.members[(rank + (1 << operation.round)) % size]
            self._transmit(target, ("bar", self.epoch, name, operation.key, operation.round))

    def _succeed(self, operation: Operation) -> None:
        operation.state = RETURNED
        below = self._below.get(operation.tag, 0)
        while (it := self._operations.get((operation.tag, below))) is not None and it.state == RETURNED:
            below += 1
        self._below[operation.tag] = below
        self._node.later(0.1, operation.done, operation.key, None, self.epoch, self.members)

    def _look(self, epoch: int, operation: Operation) -> None:
        """A waiting operation is reported, and stopped when it has waited too long."""
        if epoch != self.epoch or self.frozen or operation.state == RETURNED or self.halted is not None:
            return
        waited = self._node.clock.now - operation.progress_at
        if waited >= TIMEOUT_MS:
            self.stop(b"", Status.TIMEOUT, f"tag {operation.tag} made no progress for {int(waited)} ms")
            return
        ranks = [rank for rank, peer in enumerate(self.members) if peer not in operation.heard and peer != self.peer]
        name = OperationName(operation.tag, operation.sequence)
        if waited >= STALL_MS:
            self._event("stalled", epoch, name, int(waited), ranks)
        self._node.later(STALL_MS * 4, self._look, epoch, operation)

    # ------------------------------------------------------------------------------------------ failure

    def link_broke(self, peer: PeerId, epoch: int, text: str) -> None:
        """The link to `peer` in `epoch` is gone."""
        if epoch != self.epoch or peer not in self.members or self.halted is not None or peer in self._broken:
            return
        self._broken[peer] = text
        if self._open() and not self.frozen:
            self.stop(peer, Status.PEER_LOST, text)
        else:
            self._event("suspect", epoch, peer, int(Status.PEER_LOST), text)

    def freeze(self, epoch: int) -> None:
        if epoch == self.epoch:
            self.stop(b"", Status.OK, "")

    def stop(self, suspect: PeerId, reason: Status, text: str) -> None:
        """Freezes the epoch, tells the members, queues the event."""
        if self.frozen or self.halted is not None:
            return
        self.frozen = True
        for member in self.members:
            if member != self.peer:
                self._transmit(member, ("abort", self.epoch))
        self._event("frozen", self.epoch, suspect, int(reason), text)

    def report(self) -> list[ReportLine]:
        lines: list[ReportLine] = []
        for tag, count in self._next.items():
            below = self._below.get(tag, 0)
            rest = [(seq, self._operations[tag, seq].state) for seq in range(below, count)]
            lines += [ReportLine(tag, below, seq, state) for seq, state in rest]
            if not rest:
                lines.append(ReportLine(tag, below, below, RETURNED))
        return lines

    def has_started(self, epoch: int, name: OperationName) -> int:
        if epoch != self.epoch:
            return -1
        return 1 if name.sequence < self._next.get(name.tag, 0) else 0

    def install(self, view: View, commits: Sequence[OperationName]) -> None:
        """Settles the epoch before and begins the new one."""
        committed = {(name.tag, name.sequence): True for name in commits}
        for name, operation in self._operations.items():
            if operation.state == RETURNED:
                continue
            if name in committed:
                if operation.state != DATA_DONE:
                    self._violation(f"epoch {self.epoch} {name} commits, but here it is in state {operation.state}")
                self._node.later(0.1, operation.done, operation.key, None, self.epoch, self.members)
            else:
                self._node.later(0.1, operation.done, operation.key, Status(view.cause), self.epoch, ())
        self._operations.clear()
        self._next.clear()
        self._below.clear()
        self._unread.clear()
        self._broken.clear()
        self.epoch, self.frozen = view.epoch, False
        self.members = tuple(member.id for member in view.members)
        waiting, self._waiting = self._waiting, []
        for operation in waiting:
            self.start(operation)
        early = [it for epoch, frames in self._early.items() if epoch == self.epoch for it in frames]
        self._early = {epoch: frames for epoch, frames in self._early.items() if epoch > self.epoch}
        for source, frame in early:
            self.receive(source, frame)

    def halt(self, status: Status) -> None:
        if self.halted is None:
            self.halted = status
            for operation in [*self._open(), *self._waiting]:
                self._node.later(0.1, operation.done, operation.key, status, self.epoch, ())
            self._operations.clear()
            self._waiting.clear()
