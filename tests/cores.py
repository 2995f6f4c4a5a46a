# SPDX-License-Identifier: MIT
"""A master and some peers on one bench: the real cores, with messages that move only when told.

What for: unit tests and golden traces of the control plane. Must not know: what is expected.

The one idea: every output of a core becomes one readable line, and everything is decided by the order of calls: no time
passes and nothing is delivered by itself. Peers have one-letter names; their ids are that letter 16 times.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

from pccl import messages
from pccl.errors import Status
from pccl.messages import (
    NO_PLACE,
    NO_PRICES,
    PROTOCOL_VERSION,
    Hello,
    Leave,
    Message,
    OperationName,
    ReportLine,
    StateEntry,
    StateFetched,
    StateOffer,
    StateReceived,
    StatusAnswer,
)
from pccl.protocol import journal
from pccl.protocol.master import MasterProtocol
from pccl.protocol.peer import PeerProtocol
from pccl.protocol.state_master import MasterSync
from pccl.protocol.state_peer import PeerStateSync, Transfer
from pccl.protocol.types import (
    Append,
    Ask,
    Change,
    Drop,
    Freeze,
    Install,
    Limits,
    MasterOutput,
    Notify,
    OpenDataPlane,
    PeerId,
    PeerOutput,
    Record,
    Reject,
    Resolve,
    Send,
    Tell,
    VoteKind,
)


def identity(name: str) -> PeerId:
    return name.encode() * 16


class BenchPeer:
    """One peer's core and what its engine would say."""

    def __init__(self, name: str, group: int, host: int, cores: int, place: int = NO_PLACE) -> None:
        self.name, self.host, self.cores = name, host, cores
        self.core = PeerProtocol(identity(name), identity(name.upper()), group, sync=PeerStateSync(), place=place)
        self.lines: tuple[ReportLine, ...] = ()
        self.started = 1
        self.outputs: list[PeerOutput] = []
        self.made = 0
        self.reachable = True
        self.deaf = False

    def ends(self) -> list[Resolve | Reject]:
        """How calls ended, oldest first."""
        return [it for it in self.outputs if isinstance(it, Resolve | Reject)]

    def end(self) -> Resolve | Reject | None:
        """How the newest joint call ended; None while it is open."""
        return next((it for it in self.ends() if it.call == self.made > 0), None)

    def installs(self) -> list[Install]:
        return [it for it in self.outputs if isinstance(it, Install)]


class Bench:
    """See the module. `lines` is the story so far; `records` the journal."""

    def __init__(self, limits: Limits | None = None, founders: int = 1) -> None:
        self.limits = limits or Limits()
        self.founders = founders
        self.now = 0
        self.lines: list[str] = []
        self.records: list[Record] = []
        self.disk = b""
        self.peers: dict[PeerId, BenchPeer] = {}
        self.draws = itertools.count(1)
        self.to_master: list[tuple[PeerId, bytes]] = []
        self.to_peers: list[tuple[PeerId, bytes]] = []
        self.master: MasterProtocol | None = None
        self.start_master()

    # ------------------------------------------------------------------------------------------ the world's events

    def start_master(self) -> None:
        past, valid = journal.replay(self.disk)
        assert valid == len(self.disk)
        self.master = MasterProtocol(
            draw=lambda: next(self.draws), sync=MasterSync, limits=self.limits, past=past, founders=self.founders
        )
        self.do(self.master.start(self.now))

    def stop_master(self) -> None:
        """kill -9: what was under way is gone, every connection breaks."""
        self.master = None
        self.to_master.clear()
        self.to_peers.clear()
        for peer in self.peers.values():
            self.perform(peer, peer.core.disconnected(self.now))

    def reconnect(self, name: str) -> None:
        peer = self.peer(name)
        peer.reachable, peer.deaf = True, False
        self.perform(peer, peer.core.reconnected(self.now))

    def peer(self, name: str) -> BenchPeer:
        return self.peers[identity(name)]

    def join(self, name: str, group: int = 0, host: int = 1, cores: int = 4, place: int = NO_PLACE) -> BenchPeer:
        """A new process says Hello. The rest follows with `run`."""
        peer = self.peers[identity(name)] = BenchPeer(name, group, host, cores, place)
        self.perform(peer, peer.core.connect(self.now))
        return peer

    def together(self, *names: str) -> None:
        """Peers of group 0 that are accepted, in one epoch."""
        for name in names:
            self.join(name)
            self.run()
        if len(names) > 1:
            self.vote(names[0], VoteKind.UPDATE_TOPOLOGY)
            self.run()

    def kill(self, name: str) -> None:
        """SIGKILL: its messages under way are lost, the router cannot reach it."""
        peer = self.peer(name)
        peer.reachable, peer.deaf = False, True
        self.to_master = [it for it in self.to_master if it[0] != identity(name)]

    def vote(self, name: str, kind: VoteKind, body: bytes = b"", pending: int = 0) -> int:
        peer = self.peer(name)
        peer.made += 1
        self.perform(peer, peer.core.vote(kind, peer.made, body, pending, self.now))
        return peer.made

    def abandon(self, name: str, call: int | None = None) -> None:
        """Ctrl-C in the newest joint call of `name`, or in an earlier one."""
        peer = self.peer(name)
        self.perform(peer, peer.core.abandon(peer.made if call is None else call, self.now))

    def frozen(self, name: str, suspect: str = "", reason: Status = Status.PEER_LOST, text: str = "reset") -> None:
        """The engine of `name` has frozen its epoch."""
        peer = self.peer(name)
        lines = peer.lines
        other = identity(suspect) if suspect else b""
        self.perform(peer, peer.core.engine_frozen(peer.core.epoch, other, int(reason), text, lines, self.now))

    def died(self, name: str, other: str) -> None:
        """`other` has ended, and the kernel of `name` says so while the router still takes its connection for sound."""
        self.peer(other).deaf = True
        self.frozen(name, other, Status.PEER_DIED, "its process has ended")

    def suspect(self, name: str, other: str, text: str = "reset", reason: Status = Status.PEER_LOST) -> None:
        peer = self.peer(name)
        self.perform(peer, peer.core.engine_suspect(peer.core.epoch, identity(other), int(reason), text, self.now))

    def doubt(self, name: str, other: str) -> None:
        """The engine of `name` cannot dial `other`."""
        self.suspect(name, other, "connection refused", Status.TIMEOUT)

    def linked(self, name: str, other: str) -> None:
        """A link that was doubted or asked for stands, as the engine of `name` sees it."""
        peer = self.peer(name)
        self.perform(peer, peer.core.engine_linked(peer.core.epoch, identity(other), self.now))

    def clone(self, name: str) -> None:
        """Another process comes under the id of `name`, and says farewell at once. What the router sends to that id
        goes to it, until the peer itself dials afresh."""
        peer = self.peer(name)
        peer.deaf = True
        self.say(name, Hello(PROTOCOL_VERSION, b"clone of " + peer.core.peer[:7], peer.core.group, peer.core.epoch))
        self.say(name, Leave(""))
        self.run()

    def stalled(
        self,
        name: str,
        tag: int = 1,
        sequence: int = 0,
        waited_ms: int = 100,
        ranks: tuple[int, ...] = (0,),
        absent: bool = False,
        scope: int = 0,
        subgroup: tuple[int, ...] = (),
    ) -> None:
        peer = self.peer(name)
        operation = OperationName(tag, sequence, scope)
        outputs = peer.core.engine_stalled(peer.core.epoch, operation, waited_ms, ranks, self.now, absent, subgroup)
        self.perform(peer, outputs)

    def wait(self, milliseconds: int, step: int = 10, beat: bool = True) -> None:
        """Time passes; heartbeats and probes move (with `beat`), dead peers stay silent."""
        end = self.now + milliseconds
        while self.now < end:
            self.now = min(end, self.now + step)
            for peer in self.peers.values():
                deadline = peer.core.deadline()
                if beat and not peer.deaf and deadline is not None and deadline <= self.now:
                    self.perform(peer, peer.core.timed_out(self.now))
            if self.master is not None and (self.master.deadline() or 0) <= self.now:
                self.do(self.master.timed_out(self.now))
            self.run()

    # ------------------------------------------------------------------------------------------ delivery

    def run(self) -> None:
        """Delivers everything under way, until nothing is."""
        while self.to_master or self.to_peers:
            self.peers_hear()
            self.master_hears()

    def master_hears(self) -> None:
        """Delivers what is under way to the master."""
        while self.to_master:
            peer, data = self.to_master.pop(0)
            if self.master is not None:
                self.do(self.master.received(peer, messages.decode(data), self.now))

    def damaged(self, name: str) -> None:
        """What a peer has under way to the master arrives, but damaged."""
        peer = self.peer(name)
        self.to_master = [it for it in self.to_master if it[0] != peer.core.peer]
        if self.master is not None:
            self.do(self.master.damaged(peer.core.peer, self.now))

    def peers_hear(self) -> None:
        """Delivers what is under way to peers."""
        while self.to_peers:
            target, data = self.to_peers.pop(0)
            peer = self.peers[target]
            if not peer.deaf:
                self.perform(peer, peer.core.received(messages.decode(data), self.now))

    def say(self, name: str, message: Message) -> list[MasterOutput]:
        """A message that no core made. Returns the master's outputs, performed."""
        assert self.master is not None
        self.note(f"{name} > {describe(message)}")
        outputs = self.master.received(identity(name), message, self.now)
        self.do(outputs)
        return outputs

    def do(self, outputs: Sequence[MasterOutput]) -> None:
        unreachable: list[PeerId] = []
        for output in outputs:
            if isinstance(output, Send):
                self._send(output, unreachable)
            elif isinstance(output, Append):
                self.records.append(output.record)
                self.disk += journal.encode(output.record)
                self.note(f"journal {describe(output.record)}")
            elif isinstance(output, Notify):
                self.note(f"log {output.event.value}: {output.text}")
            elif isinstance(output, Drop):
                self.note(f"drop {title(output.peer)}")
        for peer in unreachable:
            if self.master is not None:
                self.do(self.master.disconnected(peer, self.now))

    def _send(self, output: Send, unreachable: list[PeerId]) -> None:
        peer = self.peers.get(output.peer)
        if peer is None:
            self.note(f"{title(output.peer)} < {describe(output.message)}")
            return
        if not peer.reachable:
            self.note(f"{title(output.peer)} ! {describe(output.message)}")
            unreachable.append(output.peer)
            return
        self.note(f"{title(output.peer)} < {describe(output.message)}")
        self.to_peers.append((output.peer, messages.encode(output.message)))

    def perform(self, peer: BenchPeer, outputs: Sequence[PeerOutput]) -> None:
        for output in outputs:
            peer.outputs.append(output)
            if isinstance(output, Tell):
                self.note(f"{peer.name} > {describe(output.message)}")
                if peer.reachable:
                    self.to_master.append((peer.core.peer, messages.encode(output.message)))
            elif isinstance(output, OpenDataPlane):
                self.perform(peer, peer.core.opened("10.0.0.1", 1000 + ord(peer.name), peer.host, peer.cores, self.now))
            elif isinstance(output, Freeze):
                self.note(f"{peer.name} freezes epoch {output.epoch}")
                self.perform(peer, peer.core.engine_frozen(output.epoch, b"", 0, "", peer.lines, self.now))
            elif isinstance(output, Ask):
                self.perform(peer, peer.core.started_answer(output.epoch, output.operation, peer.started, self.now))
            elif isinstance(output, Transfer):
                self._transfer(peer, output)
            elif not isinstance(output, Notify):
                self.note(f"{peer.name} {describe(output)}")

    def _transfer(self, peer: BenchPeer, transfer: Transfer) -> None:
        """A fetch that succeeds at once, from the first donor."""
        if transfer.plan.fetch:
            received = (StateReceived(transfer.plan.donors[0].peer, 16),)
            report = StateFetched(transfer.plan.sync, received, round=transfer.plan.round)
            self.perform(peer, peer.core.state_event(report, self.now))

    def note(self, line: str) -> None:
        self.lines.append(line)


def offer(revision: int, content: str) -> bytes:
    """The body of a SYNC vote for one small tensor."""
    entry = StateEntry("w", "float32", (4,), content.encode() * 16)
    return messages.encode(StateOffer(revision, 0, (entry,)))


def body_for(kind: VoteKind) -> bytes:
    """The body of a vote that may be of any kind."""
    return offer(1, "x") if kind is VoteKind.SYNC_SHARED_STATE else b""


# ---------------------------------------------------------------------------------------------- lines


def title(peer: PeerId) -> str:
    """The name behind an id of the bench."""
    return peer[:1].decode()


QUIET = ("census", "run_secret", "secret", "version", "host_id", "cores", "place", "heartbeat_ms", "heartbeat_limit_ms")
"""Fields that say nothing in a story."""


def describe(what: Any) -> str:
    """One line for an output, a message or a record: its class and the fields that are not empty."""
    if isinstance(what, Change):
        return _describe_change(what)
    if isinstance(what, Install):
        commits = "".join(f", commits ({it.tag}, {it.sequence})" for it in what.commits)
        return f"installs epoch {what.view.epoch} as rank {what.rank}{commits}"
    if isinstance(what, StatusAnswer):
        return "StatusAnswer"
    shown: list[str] = []
    for field in dataclasses.fields(what):
        value = getattr(what, field.name)
        if field.name == "members":
            shown.append("members " + " ".join(title(it.id) for it in value))
        elif field.name in ("cause", "reason", "status"):
            shown += [f"{field.name} {STATUS_NAMES.get(value, value)}"] if value else []
        elif field.name == "kind":
            shown.append(VoteKind(value).name)
        elif field.name not in QUIET and value not in (b"", "", (), None, False, NO_PRICES):
            shown.append(f"{field.name} {_value(value)}")
    return " ".join([type(what).__name__, *shown])


def _value(value: Any) -> str:
    if isinstance(value, bytes):
        known = len(value) == 16 and value == value[:1] * 16 and value[:1].isalpha()
        return title(value) if known else f"{len(value)} bytes"
    if isinstance(value, OperationName):
        return f"({value.tag}, {value.sequence})"
    if isinstance(value, ReportLine):
        return f"(tag {value.tag}: below {value.returned_below}, {value.sequence} is {STATES[value.state]})"
    if isinstance(value, tuple):
        return "[" + " ".join(_value(it) for it in value) + "]"
    if dataclasses.is_dataclass(value):
        return "(" + describe(value) + ")"
    return repr(value) if isinstance(value, str) else str(value)


STATUS_NAMES = {int(status): status.name for status in Status}
STATES = ("not started", "in data phase", "data done", "returned")


def _describe_change(change: Change) -> str:
    parts: list[str] = []
    if change.admissions:
        parts.append("admits " + " ".join(title(it.id) for it in change.admissions))
    for view in change.views:
        members = " ".join(title(it) for it in view.members) or "nobody"
        commits = "".join(f", commits ({it.tag}, {it.sequence})" for it in view.commits)
        avoided = ", avoids " + _value(view.avoided) if view.avoided else ""
        parts.append(f"group {view.group} epoch {view.epoch}: {members}{commits}{avoided}")
    if change.answers:
        parts.append("answers " + " ".join(title(it.peer) for it in change.answers))
    parts += [f"group {it.group} remembers {_value(it.body)}" for it in change.memories]
    return "Change " + "; ".join(parts)
