# SPDX-License-Identifier: MIT
"""The master's half of the control plane, as a pure state machine.

What for: it decides who is a member of which group in which epoch, completes votes, and gives the one verdict on each
operation that a failure left open. Must not know: sockets, files, clocks, tensors.

The one idea: there is a single way from an epoch to the next, whatever the reason. The group is *gathered* (every
member freezes and reports), and when all survivors have reported and no suspicion is open, one `Change` is journalled
and told. Hence:

- Nobody misses two views. Epoch N+1 of a group cannot be decided before each of its survivors has reported on N, so has
  installed N. A member that comes back is therefore at most one view behind, and the journal needs to keep only the
  newest view of each group, with the verdicts in it.
- A crash anywhere is harmless. Before the `Append` nothing was told: reports and votes are said again. After it,
  whoever did not hear it is told on its next Hello.
- A vote that changes several groups is one `Change` too: all of it happens, or none.

Events change the state first; `_settle` then draws every consequence, until none is left.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pccl.errors import Status
from pccl.messages import (
    ID_BYTES,
    MAX_MEMBERS,
    PROTOCOL_VERSION,
    STATE_MESSAGES,
    Census,
    Dial,
    ExpelledNotice,
    FreezeEpoch,
    Heartbeat,
    HeartbeatReply,
    Hello,
    Leave,
    Linked,
    Member,
    Message,
    OtherVersion,
    Probe,
    ProbeReply,
    Refused,
    Register,
    Report,
    Stalled,
    Started,
    StatusRequest,
    Suspect,
    Vote,
    Welcome,
    WhoAreYou,
    Withdraw,
    clip,
)
from pccl.protocol import journal
from pccl.protocol.epochs import Epochs
from pccl.protocol.founding import Founding
from pccl.protocol.joint import JointCalls
from pccl.protocol.lateness import Lateness
from pccl.protocol.links import Links, between, can_be_dialled
from pccl.protocol.roster import LEGAL, Group, Peer, Phase, Roster
from pccl.protocol.status import StatusDesk
from pccl.protocol.suspicion import Accusation, Suspicions
from pccl.protocol.topology import Shape
from pccl.protocol.types import (
    Event,
    Limits,
    MasterOutput,
    Past,
    PeerId,
    Record,
    Settings,
    SyncFactory,
)

TICKS_PER_LIMIT = 20


class MasterProtocol:
    """See the module. All `now` are integer milliseconds of one monotonic clock; events may not go back in time."""

    def __init__(
        self,
        *,
        draw: Callable[[], int],
        sync: SyncFactory,
        limits: Limits | None = None,
        past: Past | None = None,
        founders: int = 1,
    ) -> None:
        """`draw()` gives a random integer of 64 bits (secrets.randbits in the shell, seeded in tests). `past` is what
        journal.replay returned. A group without members begins with `founders` of them at least."""
        self._draw = draw
        self._limits = limits or Limits()
        self._roster = Roster(past or Past())
        self._suspicions = Suspicions(self._limits)
        self._links = Links(self._limits)
        self._epochs = Epochs(self._roster, self._suspicions, self._links)
        self._founding = Founding(self._roster, founders)
        self._joint = JointCalls(
            self._roster,
            self._epochs,
            self._founding,
            draw,
            sync,
            self._fault,
            probe_limit_ms=self._limits.heartbeat_ms,
        )
        self._lateness = Lateness()
        self._status = StatusDesk(
            self._roster, self._joint, self._suspicions, self._links, self._lateness, self._limits
        )
        self._tick_ms = max(1, self._limits.heartbeat_limit_ms // TICKS_PER_LIMIT)
        self._last_tick = 0
        self._cut_off = False
        self._excused_until = 0
        self._sweep_at: int | None = None
        self._sweep_since = 0
        self._handlers: dict[type, Callable[[Peer, Any, int], None]] = {
            Register: self._register,
            Heartbeat: self._heartbeat,
            Vote: self._joint.vote,
            Withdraw: self._withdraw,
            Suspect: self._suspect,
            Report: self._report,
            Linked: self._linked,
            Stalled: self._stalled,
            Started: self._joint.started,
            ProbeReply: self._probe_reply,
            Leave: self._leave,
            **dict.fromkeys(STATE_MESSAGES, self._joint.state_message),
        }

    # ------------------------------------------------------------------------------------------ events

    def start(self, now: int) -> list[MasterOutput]:
        """Call once, first. Appends the settings of a fresh run, or begins to wait for the peers of `past`."""
        self._last_tick = now
        self._status.start(now)
        if not self._roster.past.run_secret:
            secret = self._draw().to_bytes(8, "little") + self._draw().to_bytes(8, "little")
            self._roster.commit(Settings(secret))
        for peer, admission in self._roster.past.admissions.items():
            self._roster.peers[peer] = Peer(
                peer,
                admission.secret,
                admission.group,
                Phase.ACCEPTED,
                heard=now,
                known=False,
                returning=True,
                member=admission.member,
                answered=self._roster.past.answers.get(peer),
            )
        for number, view in self._roster.past.views.items():
            self._roster.groups[number] = Group(view, list(view.members))
            self._links.remember([(view.members[low], view.members[high]) for low, high in view.avoided], now)
        self._roster.accepted = len(self._roster.peers)
        if self._roster.accepted:
            self._roster.notify(
                Event.MASTER, f"resumed with {self._roster.accepted} peers in {len(self._roster.groups)} groups"
            )
        return self._settle(now)

    def received(self, peer: PeerId, message: Message, now: int) -> list[MasterOutput]:
        self._look_at_clock(now)
        entry = self._roster.peers.get(peer)
        if entry is not None and isinstance(message, OtherVersion | StatusRequest):
            # A peer says neither, so it is somebody else under its id whom the router hears now.
            entry.known, entry.usurped = False, True
        if isinstance(message, Hello):
            self._hello(peer, entry, message, now)
        elif isinstance(message, OtherVersion):
            text = f"the master speaks protocol version {PROTOCOL_VERSION}, this peer version {message.version}"
            self._refuse(peer, Status.VERSION, text, now)
        elif isinstance(message, StatusRequest):
            if entry is None and (answer := self._status.answer(now)) is not None:
                self._roster.send(peer, answer)
        elif entry is None:
            # Perhaps queued in its socket since before a restart: a Hello tells whether it was ever one of us.
            self._roster.send(peer, WhoAreYou())
        elif not isinstance(message, LEGAL[entry.phase]):
            self._out_of_place(entry, message, now)
        elif not entry.known and (entry.usurped or not isinstance(message, Leave)):
            if not entry.usurped:  # otherwise it may be anyone, which is no sign of life of the peer
                entry.heard = now
            self._roster.send(peer, WhoAreYou())
        else:
            entry.heard = now
            self._handlers[type(message)](entry, message, now)
        return self._settle(now)

    def malformed(self, peer: PeerId, text: str, now: int) -> list[MasterOutput]:
        """`decode` raised ProtocolError(text) for bytes from `peer`."""
        self._fault(peer, text, now)
        return self._settle(now)

    def damaged(self, peer: PeerId, now: int) -> list[MasterOutput]:
        """Something came from `peer` that the network spoilt. It has to say again whatever it waits to be answered."""
        entry = self._roster.peers.get(peer)
        if entry is not None:
            entry.heard = now
            self._roster.send(peer, WhoAreYou())
        return self._settle(now)

    def disconnected(self, peer: PeerId, now: int) -> list[MasterOutput]:
        """A Send to `peer` failed: the router cannot reach it, or its queue is full."""
        self._look_at_clock(now)
        entry = self._roster.peers.get(peer)
        if entry is None or not entry.known:
            return []
        entry.known = False
        self._joint.unreachable(peer)
        accusations = self._suspicions.accusations(peer)
        if accusations and now >= self._excused_until:
            self._lose(entry, Event.LOST, f"was lost: {accusations[0].text}", now)
        return self._settle(now)

    def connection_closed(self, now: int) -> list[MasterOutput]:
        """The socket monitor saw some connection close; zmq does not say whose. Who is silent for a heartbeat after it
        is probed, so that the router can say who is unreachable."""
        self._sweep_since = now
        if self._sweep_at is None:
            self._sweep_at = now + self._limits.heartbeat_ms
        return []

    def timed_out(self, now: int) -> list[MasterOutput]:
        self._look_at_clock(now)
        if now >= self._last_tick + self._tick_ms:
            self._tick(now)
        if self._sweep_at is not None and now >= self._sweep_at:
            self._sweep_at = None
            for entry in self._roster.peers.values():
                if entry.known and entry.heard <= self._sweep_since:
                    self._roster.send(entry.id, Probe(0))
        for suspect, nonce in self._suspicions.due(now):
            self._roster.send(suspect, Probe(nonce))
        for one, other in self._links.trials(now):
            self._dial(one, other)
            self._dial(other, one)
        if (until := self._joint.deadline()) is not None and now >= until:
            self._roster.dirty = True
        return self._settle(now)

    def deadline(self) -> int | None:
        """When `timed_out` wants to be called next; earlier calls do no harm."""
        tick = self._last_tick + self._tick_ms
        times = [
            tick,
            self._sweep_at,
            self._suspicions.deadline(),
            self._joint.deadline(),
            self._links.deadline(),
        ]
        return min(time for time in times if time is not None)

    def explain(self) -> str:
        """What is waited for, and for whom, one line each; empty if nothing is."""
        lines = [*self._joint.explain(), *self._founding.explain()]
        for number, group in self._roster.groups.items():
            if group.gathering is not None:
                ranks = [f"rank {group.rank(it)}" for it in group.members if it not in group.gathering.reports]
                missing = ", ".join(ranks) or "none"
                lines.append(f"group {number}: epoch {group.epoch} is frozen; reports missing: {missing}")
            for operation, waiting in group.stalls.items():
                name = f"operation ({operation})"
                for peer, stalled in waiting.items():
                    awaited = ", ".join(f"rank {rank}" for rank in stalled.ranks) or "others"
                    rank = group.rank(peer)
                    lines.append(
                        f"group {number}: rank {rank} has waited {stalled.waited_ms} ms in {name} for {awaited}"
                    )
        peers = self._roster.peers.values()
        lines += [f"probing {it.name}" for it in peers if self._suspicions.suspected(it.id)]
        lines += [f"{it.name} has not come back" for it in peers if it.returning]
        for number, group in self._roster.groups.items():
            avoided = ", ".join(f"{low}-{high}" for low, high in group.view.avoided)
            if avoided:
                lines.append(f"group {number}: no link between ranks {avoided}: {Shape(group.view.shape).name} instead")
        return "\n".join(lines)

    def snapshot(self) -> list[Record]:
        """Records that replay to the present state: the shell rewrites the journal with them (new file, fsync, rename)
        at start and when it has grown beyond a limit."""
        return journal.snapshot(self._roster.past)

    @property
    def census(self) -> Census:
        """Accepted peers, groups, size of the largest group."""
        return self._roster.census

    @property
    def pending_count(self) -> int:
        """Peers that wait to be accepted."""
        return len(self._roster.pending)

    # ------------------------------------------------------------------------------------------ peers' messages

    def _out_of_place(self, entry: Peer, message: Message, now: int) -> None:
        """Who speaks as a member, and has only greeted, was one before its first view: it renewed its connection, and
        was removed while that Hello was under way."""
        if entry.phase is Phase.GREETED and isinstance(message, LEGAL[Phase.ACCEPTED]):
            self._no_member(entry.id)
            self._forget(entry)
        else:
            self._fault(entry.id, f"{type(message).__name__} from a peer that is {entry.phase.value}", now)

    def _no_member(self, peer: PeerId) -> None:
        self._roster.send(peer, ExpelledNotice("this peer is no member of the run (any more)"))
        self._roster.drop(peer)

    def _hello(self, peer: PeerId, entry: Peer | None, hello: Hello, now: int) -> None:
        if entry is None and hello.epoch:
            self._no_member(peer)
            return
        if len(peer) != ID_BYTES:
            self._refuse(peer, Status.PROTOCOL, f"a peer id has {ID_BYTES} bytes, not {len(peer)}", now)
            return
        if entry is None and len(self._roster.peers) >= MAX_MEMBERS:
            self._refuse(peer, Status.INVALID, f"the run is full: it has {MAX_MEMBERS} peers", now)
            return
        if entry is None:
            entry = self._roster.peers[peer] = Peer(peer, hello.secret, hello.group, Phase.GREETED, heard=now)
        elif entry.secret != hello.secret:
            # The router hears that one now, whatever it says next under this id. The peer itself comes back.
            entry.known, entry.usurped = False, True
            self._roster.send(peer, Refused(PROTOCOL_VERSION, Status.INVALID, f"peer id {peer.hex()} is taken"))
            return
        elif entry.group != hello.group:
            self._fault(peer, f"group {hello.group} instead of {entry.group}", now)
            return
        entry.heard, entry.known, entry.usurped = now, True, False
        if entry.phase is Phase.ACCEPTED:
            self._hello_again(entry, hello, now)
        else:
            self._welcome(entry)

    def _hello_again(self, entry: Peer, hello: Hello, now: int) -> None:
        """A member renewed its connection: repeat what it may have missed."""
        group = self._roster.groups[entry.group]
        rank = group.rank(entry.id)
        before = 0 if rank in group.view.admitted else group.view.previous
        if hello.epoch not in (group.epoch, before):
            self._fault(entry.id, f"epoch {hello.epoch} in its Hello, where {group.epoch} or {before} can be", now)
            return
        if entry.returning:
            entry.returning = False
            self._roster.notify(Event.RETURNED, f"{entry.name} is back", entry.id)
        self._welcome(entry)
        if hello.epoch != group.epoch:
            self._roster.send(entry.id, self._epochs.view_message(group.view))
        if group.gathering is not None and entry.id not in group.gathering.reports:
            self._roster.send(entry.id, FreezeEpoch(group.epoch))
        self._joint.rejoined(entry, group, now)

    def _welcome(self, entry: Peer) -> None:
        limits = self._limits
        welcome = Welcome(
            PROTOCOL_VERSION,
            self._roster.past.run_secret,
            limits.heartbeat_ms,
            limits.heartbeat_limit_ms,
        )
        self._roster.send(entry.id, welcome)

    def _register(self, entry: Peer, message: Register, now: int) -> None:
        member = Member(entry.id, message.address, message.port, message.host_id, message.cores)
        if member.port == 0 or not can_be_dialled(member.address):
            self._fault(
                entry.id, f"{member.address!r} port {member.port} is no numeric address that can be dialled", now
            )
            return
        if entry.phase is Phase.ACCEPTED:
            if member != entry.member:
                self._fault(entry.id, "another address than it was accepted with", now)
            return
        entry.member, entry.place = member, message.place
        if entry.phase is Phase.GREETED:
            entry.phase = Phase.PENDING
            self._roster.pending[entry.id] = entry
            self._roster.notify(
                Event.REGISTERED, f"{entry.name} waits for acceptance into group {entry.group}", entry.id
            )
        self._roster.dirty = True

    def _stalled(self, entry: Peer, message: Stalled, now: int) -> None:
        group = self._roster.groups[entry.group]
        self._lateness.note(group, entry.id, message, now)
        if message.waited_ms:
            self._joint.stalled(entry, message, now)
        else:
            group.forget_stall(entry.id, message.operation)

    def _heartbeat(self, entry: Peer, message: Heartbeat, now: int) -> None:
        self._roster.send(entry.id, HeartbeatReply())

    def _leave(self, entry: Peer, message: Leave, now: int) -> None:
        if entry.phase is Phase.ACCEPTED:
            self._lose(entry, Event.LEFT, f"left{': ' + message.text if message.text else ''}", now)
        else:
            self._forget(entry)

    def _withdraw(self, entry: Peer, message: Withdraw, now: int) -> None:
        if entry.phase is Phase.ACCEPTED:
            self._joint.withdraw(entry, message, now)
        else:
            self._refuse(entry.id, Status.TIMEOUT, self._joint.not_admitted(entry, now), now)

    def _suspect(self, entry: Peer, message: Suspect, now: int) -> None:
        group = self._roster.groups[entry.group]
        if message.epoch > group.epoch:
            self._fault(entry.id, f"a suspicion in epoch {message.epoch}, where {group.epoch} is the newest", now)
            return
        if message.epoch < group.view.previous:
            return  # a peer is at most one view behind
        self._accuse(entry, group, message, message.peer, now)

    def _report(self, entry: Peer, message: Report, now: int) -> None:
        group = self._roster.groups[entry.group]
        if message.epoch > group.epoch:
            self._fault(entry.id, f"a report on epoch {message.epoch}, where {group.epoch} is the newest", now)
            return
        if message.epoch < group.epoch:
            return
        gathering = self._epochs.gather(group, now, reporter=entry.id)
        if entry.id in gathering.reports:
            return
        gathering.reports[entry.id] = message
        self._roster.dirty = True
        if message.suspect:
            self._accuse(entry, group, message, message.suspect, now)

    # ------------------------------------------------------------------------------------------ failures

    def _accuse(self, accuser: Peer, group: Group, message: Suspect | Report, suspect: PeerId, now: int) -> None:
        """`accuser` cannot reach `suspect`. Only a probe tells whether the suspect or the link is dead, unless the
        accuser's kernel has told it."""
        entry = self._roster.peers.get(suspect)
        if entry is None or entry.group != accuser.group or entry.phase is not Phase.ACCEPTED or entry is accuser:
            return
        text = f"rank {group.rank(accuser.id)} reports: {message.text}"
        if message.reason == Status.PEER_DIED and message.epoch == group.epoch:
            self._lose(entry, Event.LOST, f"was lost: {text}", now)
            return
        doubt = isinstance(message, Suspect) and message.reason == Status.TIMEOUT
        accusation = Accusation(accuser.id, message.epoch, text, message.reason == Status.PEER_LOST, doubt)
        nonce = self._draw() | 1
        if not self._suspicions.accuse(suspect, accusation, nonce, now):
            return
        self._roster.notify(Event.SUSPECTED, f"{entry.name}: {text}", suspect, message.epoch)
        if entry.known or entry.returning or now < self._excused_until:
            self._roster.send(suspect, Probe(nonce))
        else:
            self._lose(entry, Event.LOST, f"was lost: {text}", now)

    def _probe_reply(self, entry: Peer, message: ProbeReply, now: int) -> None:
        self._joint.probed(entry.id, message.nonce)
        for accusation in self._suspicions.answered(entry.id, message.nonce):
            self._roster.dirty = True
            group = self._roster.groups[entry.group]
            accuser = self._roster.peers.get(accusation.accuser)
            if accusation.epoch != group.epoch or accuser is None or entry.id not in self._roster.peers:
                continue
            if accusation.link:
                self._link_broke(group, accuser, entry, accusation.text, now)
            elif accusation.doubt and group.gathering is None:  # in a frozen epoch links break for other reasons
                self._links.doubted(accuser.id, entry.id, group.epoch, now)
                self._dial(entry.id, accuser.id)
            elif group.gathering is not None:
                call = self._joint.waits_in(entry, now)
                line = f"rank {group.rank(entry.id)} lives: it answers the master"
                group.gathering.alive.append(f"{line} and waits in {call}" if call else line)

    def _dial(self, one: PeerId, other: PeerId) -> None:
        """`one` makes the link to `other` from its side."""
        entry = self._roster.peers.get(one)
        if entry is not None and entry.known and entry.phase is Phase.ACCEPTED:
            self._roster.send(one, Dial(self._roster.groups[entry.group].epoch, other))

    def _linked(self, entry: Peer, message: Linked, now: int) -> None:
        self._links.stands(entry.id, message.peer)

    def _link_broke(self, group: Group, one: Peer, other: Peer, text: str, now: int) -> None:
        """Both ends live, so the members stay. Where operations may need the link, the epoch is made anew."""
        low, high = sorted((group.rank(one.id), group.rank(other.id)))
        needed = self._epochs.present(group).joins(low, high)
        self._links.failed(one.id, other.id, group.epoch, now, needed)
        if group.gathering is None and not needed:
            self._joint.links_changed(group, now)
            return
        line = f"the link between rank {low} and rank {high} broke ({text})"
        links = self._epochs.gather(group, now).links
        if (low, high) not in links:
            links[low, high] = line
            self._roster.notify(Event.LINK, line, epoch=group.epoch)

    def _expel_cut_off(self, group: Group, now: int) -> None:
        """Before a next view: nobody can work with members to whom no way leads. Through newcomers one does."""
        if self._epochs.got_something_done(group):
            self._links.worked(group.members, now)
        gone = self._links.cut_off([*group.members, *self._joint.entering(group.view.group)], now)
        ranks = {peer: group.rank(peer) for peer in group.members}
        links = between(self._links.avoided(group.members), gone, ranks)
        for peer in gone:
            text = f"was expelled: no way leads to it, the links between ranks {links} are dead"
            self._lose(self._roster.peers[peer], Event.EXPELLED, text, now)

    def _lose(self, entry: Peer, event: Event, text: str, now: int) -> None:
        """An accepted peer is a member no more: the others go on without it."""
        group = self._roster.groups[entry.group]
        rank = group.rank(entry.id)
        del self._roster.peers[entry.id]
        self._roster.accepted -= 1
        self._suspicions.drop(entry.id)
        self._links.drop(entry.id)
        self._lateness.drop(entry.id)
        group.members.remove(entry.id)
        group.forget_stalls(entry.id)
        self._roster.dirty = True
        self._roster.notify(event, f"{entry.name} (rank {rank} of group {entry.group}) {text}", entry.id, group.epoch)
        if event is not Event.LEFT:
            self._roster.send(entry.id, ExpelledNotice(clip(f"rank {rank} {text}")))
        self._roster.drop(entry.id)
        self._joint.member_lost(entry, group, now)
        if not group.members:
            self._epochs.end_group(entry.group)
            return
        gathering = self._epochs.gather(group, now)
        gathering.reports.pop(entry.id, None)
        about = entry.name
        if event is not Event.LEFT and entry.member is not None:
            about += f" at {entry.member.address}:{entry.member.port}, last heard {now - entry.heard} ms ago"
        gathering.lost.append(f"rank {rank} ({about}) {text}")

    def _fault(self, peer: PeerId, text: str, now: int) -> None:
        """A peer broke the protocol: it has to go, whatever it is."""
        entry = self._roster.peers.get(peer)
        if entry is not None and entry.phase is Phase.ACCEPTED:
            self._lose(entry, Event.EXPELLED, f"was expelled: protocol error: {text}", now)
        else:
            self._refuse(peer, Status.PROTOCOL, f"protocol error: {text}", now)

    def _refuse(self, peer: PeerId, reason: Status, text: str, now: int) -> None:
        """Turns away a peer; one that is accepted already stays (its Hello came from somebody else)."""
        self._roster.send(peer, Refused(PROTOCOL_VERSION, reason, clip(text)))
        self._roster.notify(Event.REFUSED, f"peer {peer.hex()[:8]}: {text}", peer)
        entry = self._roster.peers.get(peer)
        if entry is None or entry.phase is not Phase.ACCEPTED:
            self._roster.drop(peer)
            if entry is not None:
                self._forget(entry)

    def _forget(self, entry: Peer) -> None:
        """A peer that was never accepted goes: that is nobody else's business (G7)."""
        del self._roster.peers[entry.id]
        self._roster.pending.pop(entry.id, None)
        self._joint.unreachable(entry.id)
        self._roster.drop(entry.id)

    def _tick(self, now: int) -> None:
        """Looks for silent peers and missing reports, TICKS_PER_LIMIT times per heartbeat limit."""
        self._last_tick = now
        cut_off, limit = self._is_cut_off(now), self._limits.heartbeat_limit_ms
        for entry in [it for it in self._roster.peers.values() if now - it.heard >= limit]:
            if entry.phase is not Phase.ACCEPTED:
                self._forget(entry)
            elif entry.id in self._roster.peers and not cut_off:
                self._lose(entry, Event.LOST, f"was lost: no sign of life for {now - entry.heard} ms", now)
        for group in list(self._roster.groups.values()):
            gathering = group.gathering
            if gathering is not None and not cut_off and now - gathering.since >= self._limits.report_limit_ms:
                for peer in [it for it in group.members if it not in gathering.reports]:
                    text = f"was expelled: it did not report its operations within {self._limits.report_limit_ms} ms"
                    self._lose(self._roster.peers[peer], Event.EXPELLED, text, now)

    def _look_at_clock(self, now: int) -> None:
        """Before any event: a tick that is long overdue shows that it was the master that was stopped. What the peers
        sent meanwhile has still to be read."""
        if now - self._last_tick - self._tick_ms > self._limits.heartbeat_ms:
            self._last_tick = now
            self._forgive(now)

    def _is_cut_off(self, now: int) -> bool:
        """Whether nobody is heard, which says nothing about anybody: it is the master that is alone. Once the first is
        heard again, the others get as long as ever."""
        latest = max((entry.heard for entry in self._roster.peers.values()), default=now)
        was, self._cut_off = self._cut_off, now - latest >= self._limits.heartbeat_limit_ms // 2
        if was and not self._cut_off:
            self._forgive(now)
        return self._cut_off

    def _forgive(self, now: int) -> None:
        """All silence so far is nobody's fault but the master's. Nor is it a peer's fault if it is out of reach for a
        while: who heard nothing of the master has given its connection up, and dials afresh."""
        self._excused_until = now + self._limits.heartbeat_limit_ms
        for entry in self._roster.peers.values():
            entry.heard = now
        for group in self._roster.groups.values():
            if group.gathering is not None:
                group.gathering.since = now

    # ------------------------------------------------------------------------------------------ consequences

    def _settle(self, now: int) -> list[MasterOutput]:
        """Draws all consequences of what has changed, and returns what is to be done."""
        roster = self._roster
        while roster.dirty:
            roster.dirty = False
            for group in [it for it in roster.groups.values() if self._epochs.gathered(it)]:
                self._expel_cut_off(group, now)
            self._joint.settle(now)
            if not roster.accepted and (founders := self._founding.ready()):
                self._epochs.change([], founders, [], now)
            for number in [it for it, group in roster.groups.items() if group.gathering and not self._joint.holds(it)]:
                if self._epochs.gathered(roster.groups[number]):
                    self._epochs.change([number], [], [], now)
        return roster.take()
