# SPDX-License-Identifier: MIT
"""The shell of the simulated master: its core, its disk, and the router in front of it.

What for: it does what pccl/master.py does, with wires in place of sockets and bytes in place of a file. Must not know:
which faults strike, what is right.

The one idea: it decides as little as the real one. It may die between any two outputs, and in the middle of any append.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pccl import messages
from pccl.errors import ProtocolError
from pccl.messages import Message, Probe, ProbeReply, StatePlan, WhoAreYou
from pccl.protocol import journal
from pccl.protocol.master import MasterProtocol
from pccl.protocol.types import Append, Event, Limits, MasterOutput, Notify, PeerId, Record, Send
from tests.sim.network import Node

if TYPE_CHECKING:
    from tests.sim.world import World

LIMITS = Limits(
    heartbeat_ms=150,
    heartbeat_limit_ms=600,
    probe_ms=20,
    report_limit_ms=1_200,
    link_failures=3,
    link_window_ms=4_000,
    link_retry_ms=300,
)

BEFORE, TORN, AFTER = "before", "torn", "after"
"""Where in an append the master dies: nothing is written; a piece; all, but nobody hears of it."""

REMOVALS = (Event.LEFT, Event.LOST, Event.EXPELLED)


class Disk:
    """What survives the master. `append` returns when the record would be on the platters."""

    def __init__(self) -> None:
        self.data = bytearray()

    def append(self, record: Record) -> None:
        self.data += journal.encode(record)

    def tear(self, record: Record, share: float) -> None:
        """The machine dies in the middle of it."""
        frame = journal.encode(record)
        self.data += frame[: int(len(frame) * share)]

    def crashed(self) -> None:
        """The process that wrote is gone."""


class SimMaster(Node):
    """See the module. `writes` counts appends over all its `lives`."""

    def __init__(self, world: World) -> None:
        super().__init__(world.clock)
        self.world = world
        self.disk = world.kinds.disk()
        self.core: MasterProtocol | None = None
        self.crash_in: int | None = None
        self.crash_at_write: Callable[[int], str | None] = lambda number: None
        self.writes = self.lives = 0
        self.sent = 0
        self.full: dict[PeerId, bool] = {}
        self._encoded: tuple[object, bytes] = (None, b"")
        self._timer: float | None = None

    def start(self) -> None:
        self.alive = True
        self.lives += 1
        past, valid = journal.replay(bytes(self.disk.data))
        self.world.checkers.journal_survives(past)
        del self.disk.data[valid:]
        if self.disk.data:
            rewritten = b"".join(journal.encode(record) for record in journal.snapshot(past))
            if journal.replay(rewritten) != (past, len(rewritten)):
                self.world.checkers.fail("a snapshot of the journal does not replay to the same state")
            self.disk.data[:] = rewritten
        self.core = self.world.kinds.master(
            draw=lambda: self.clock.random.getrandbits(64),
            sync=self.world.kinds.sync,
            limits=LIMITS,
            past=past,
            founders=self.world.founders,
        )
        self.perform(self.core.start(self.clock.ms))

    def crash(self) -> None:
        self.kill()
        self.disk.crashed()
        self.core = None
        self.crash_in = None
        self._timer = None
        self.world.trace("master crashed")
        for peer in self.world.peers.values():
            self.world.break_control(peer)

    def perform(self, outputs: Sequence[MasterOutput]) -> None:
        """Like the real shell; but it may die before, in the middle of or after any output."""
        unreachable: list[PeerId] = []
        self._watch_plans(outputs)
        for output in outputs:
            if self._dies(output):
                self.crash()
                self.world.restart_master()
                return
            if isinstance(output, Send):
                if not self._send(output):
                    unreachable.append(output.peer)
            elif isinstance(output, Append):
                self.disk.append(output.record)
                self.world.written(output.record)
            elif isinstance(output, Notify):
                self._notified(output)
        core = self.core
        for peer in unreachable:
            if core is not None and core is self.core:
                self.perform(core.disconnected(peer, self.clock.ms))
        self._arm()

    def _dies(self, output: MasterOutput) -> bool:
        how = None
        if isinstance(output, Append):
            self.writes += 1
            how = self.crash_at_write(self.writes)
        if self.crash_in is not None:
            self.crash_in -= 1
            if self.crash_in <= 0 and how is None:
                how = self.clock.random.choice([BEFORE, TORN, AFTER])
        if how is None:
            return False
        if isinstance(output, Append) and how == TORN:
            self.disk.tear(output.record, self.clock.random.random())
        elif isinstance(output, Append) and how == AFTER:
            self.disk.append(output.record)
            self.world.written(output.record)
        return True

    def _notified(self, output: Notify) -> None:
        self.world.trace(output.event.value, output.text)
        self.world.checkers.no_protocol_errors(output.event, output.text)
        if output.event is Event.SUSPECTED:
            self.world.checkers.suspected(output.peer)
        if output.event in REMOVALS:
            self.world.checkers.removed(output.peer)
        if output.event in (Event.LOST, Event.EXPELLED):
            self.world.judge_loss(output)
        self.world.faults.moment(output.event.value)

    def _watch_plans(self, outputs: Sequence[MasterOutput]) -> None:
        """The plans of a synchronisation that begins come all together."""
        voters: dict[int, list[PeerId]] = {}
        for it in outputs:
            if isinstance(it, Send) and isinstance(it.message, StatePlan):
                voters.setdefault(it.message.sync, []).append(it.peer)
        for sync, peers in voters.items():
            self.world.checkers.sync_began(sync, peers)

    def _send(self, output: Send) -> bool:
        if self._encoded[0] is not output.message:
            self._encoded = (output.message, messages.encode(output.message))
        peer = self.world.peers.get(output.peer)
        if output.peer in self.full or peer is None or peer.control is None or not peer.control.reachable:
            return False
        self.sent += 1
        if isinstance(output.message, Probe):
            self.world.checkers.asked(output.peer, output.message.nonce)
        if not peer.control.usurped:
            peer.control.down.send(peer.heard, (peer.control.generation, self._encoded[1]))
        return True

    def heard(self, item: tuple[PeerId, bytes]) -> None:
        peer, data = item
        if self.core is not None:
            try:
                message = messages.decode(data)
            except ProtocolError as error:
                outputs = self.core.malformed(peer, str(error), self.clock.ms)
            else:
                outputs = self._received(self.core, peer, message)
                if not any(isinstance(it, Send) and isinstance(it.message, WhoAreYou) for it in outputs):
                    self.world.checkers.said(peer, message, self.world.dead)
            self.perform(outputs)

    def _received(self, core: MasterProtocol, peer: PeerId, message: Message) -> list[MasterOutput]:
        """What the core makes of it; whom its answer clears is looked at."""
        doubted = isinstance(message, ProbeReply) and self._doubts(core, peer)
        outputs = core.received(peer, message, self.clock.ms)
        # Who has accused somebody and is removed takes the accusation along: then it was not the answer that cleared.
        removed = any(isinstance(it, Notify) and it.event in REMOVALS for it in outputs)
        if isinstance(message, ProbeReply) and doubted and not removed and not self._doubts(core, peer):
            self.world.checkers.cleared(peer, message.nonce)
        return outputs

    def _doubts(self, core: MasterProtocol, peer: PeerId) -> bool:
        return f"probing peer {peer.hex()[:8]}" in core.explain().splitlines()

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
