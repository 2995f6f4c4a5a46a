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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pccl.errors import Status
from pccl.messages import (
    MAX_MEMBERS,
    PROTOCOL_VERSION,
    STATE_MESSAGES,
    Census,
    CensusUpdate,
    ExpelledNotice,
    FreezeEpoch,
    HasStarted,
    Heartbeat,
    HeartbeatReply,
    Hello,
    Leave,
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
    Suspect,
    View,
    Vote,
    VoteResult,
    Welcome,
    WhoAreYou,
    clip,
)
from pccl.protocol import journal
from pccl.protocol.roster import LEGAL, Gathering, Group, Peer, Phase, cause_of
from pccl.protocol.suspicion import Accusation, LinkFaults, Suspicions
from pccl.protocol.topology import ring_order
from pccl.protocol.types import (
    CALL_NAMES,
    Admission,
    Answer,
    Append,
    Ballot,
    Change,
    Drop,
    Event,
    GroupView,
    Limits,
    MasterOutput,
    Memory,
    Notify,
    Past,
    PeerId,
    Record,
    Send,
    Settings,
    SyncFactory,
    SyncStep,
    VoteKind,
)
from pccl.protocol.verdict import verdict
from pccl.protocol.votes import Open, VoteBox

TICKS_PER_LIMIT = 20


@dataclass(slots=True)
class Resolution:
    """A complete vote of the run that changes `groups`: all of them are gathered before any of them changes."""

    kind: VoteKind
    groups: list[int]
    admitting: list[PeerId]


class MasterProtocol:
    """See the module. All `now` are integer milliseconds of one monotonic clock; events may not go back in time."""

    def __init__(
        self, *, draw: Callable[[], int], sync: SyncFactory, limits: Limits | None = None, past: Past | None = None
    ) -> None:
        """`draw()` gives a random integer of 64 bits (secrets.randbits in the shell, seeded in tests). `past` is what
        journal.replay returned."""
        self._draw = draw
        self._sync_factory = sync
        self._limits = limits or Limits()
        self._past = past or Past()
        self._peers: dict[PeerId, Peer] = {}
        self._pending: dict[PeerId, Peer] = {}
        self._groups: dict[int, Group] = {}
        self._accepted = 0
        self._votes = VoteBox()
        self._suspicions = Suspicions(self._limits)
        self._links = LinkFaults(self._limits)
        self._resolution: Resolution | None = None
        self._out: list[MasterOutput] = []
        self._dirty = False
        self._tick_ms = max(1, self._limits.heartbeat_limit_ms // TICKS_PER_LIMIT)
        self._last_tick = 0
        self._sweep_at: int | None = None
        self._sweep_since = 0
        self._handlers: dict[type, Callable[[Peer, Any, int], None]] = {
            Register: self._register,
            Heartbeat: self._heartbeat,
            Vote: self._vote,
            Suspect: self._suspect,
            Report: self._report,
            Stalled: self._stalled,
            Started: self._started,
            ProbeReply: self._probe_reply,
            Leave: self._leave,
            **dict.fromkeys(STATE_MESSAGES, self._state_message),
        }

    # ------------------------------------------------------------------------------------------ events

    def start(self, now: int) -> list[MasterOutput]:
        """Call once, first. Appends the settings of a fresh run, or begins to wait for the peers of `past`."""
        self._last_tick = now
        if not self._past.run_secret:
            secret = self._draw().to_bytes(8, "little") + self._draw().to_bytes(8, "little")
            self._commit(Settings(secret))
        for peer, admission in self._past.admissions.items():
            self._peers[peer] = Peer(
                peer,
                admission.secret,
                admission.group,
                Phase.ACCEPTED,
                heard=now,
                known=False,
                returning=True,
                member=admission.member,
                answered=self._past.answers.get(peer),
            )
        for number, view in self._past.views.items():
            self._groups[number] = Group(view, list(view.members))
        self._accepted = len(self._peers)
        if self._accepted:
            self._notify(Event.MASTER, f"resumed with {self._accepted} peers in {len(self._groups)} groups")
        return self._settle(now)

    def received(self, peer: PeerId, message: Message, now: int) -> list[MasterOutput]:
        entry = self._peers.get(peer)
        if isinstance(message, Hello):
            self._hello(peer, entry, message, now)
        elif isinstance(message, OtherVersion):
            text = f"the master speaks protocol version {PROTOCOL_VERSION}, this peer version {message.version}"
            self._refuse(peer, Status.VERSION, text, now)
        elif entry is None:
            # Perhaps queued in its socket since before a restart: a Hello tells whether it was ever one of us.
            self._send(peer, WhoAreYou())
        elif not isinstance(message, LEGAL[entry.phase]):
            self._fault(peer, f"{type(message).__name__} from a peer that is {entry.phase.value}", now)
        elif not entry.known and not isinstance(message, Leave):
            entry.heard = now
            self._send(peer, WhoAreYou())
        else:
            entry.heard = now
            self._handlers[type(message)](entry, message, now)
        return self._settle(now)

    def malformed(self, peer: PeerId, text: str, now: int) -> list[MasterOutput]:
        """`decode` raised ProtocolError(text) for bytes from `peer`."""
        self._fault(peer, text, now)
        return self._settle(now)

    def disconnected(self, peer: PeerId, now: int) -> list[MasterOutput]:
        """A Send to `peer` failed: the router cannot reach it, or its queue is full."""
        entry = self._peers.get(peer)
        if entry is None or not entry.known:
            return []
        entry.known = False
        accusations = self._suspicions.accusations(peer)
        if accusations:
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
        if now >= self._last_tick + self._tick_ms:
            self._tick(now)
        if self._sweep_at is not None and now >= self._sweep_at:
            self._sweep_at = None
            for entry in self._peers.values():
                if entry.known and entry.heard <= self._sweep_since:
                    self._send(entry.id, Probe(0))
        for suspect, nonce in self._suspicions.due(now):
            self._send(suspect, Probe(nonce))
        return self._settle(now)

    def deadline(self) -> int | None:
        """When `timed_out` wants to be called next; earlier calls do no harm."""
        times = [self._last_tick + self._tick_ms, self._sweep_at, self._suspicions.deadline()]
        return min(time for time in times if time is not None)

    def explain(self) -> str:
        """What is waited for, and for whom, one line each; empty if nothing is."""
        lines: list[str] = []
        run = self._votes.run_votes()
        if run:
            voted = {vote.peer: True for vote in run}
            absent = [it.name for it in self._peers.values() if it.phase is Phase.ACCEPTED and it.id not in voted]
            lines.append(f"{CALL_NAMES[run[0].kind]}: waiting for {', '.join(absent) or 'the new views'}")
        for number, group in self._groups.items():
            lines += self._explain_group(number, group)
        lines += [f"probing {it.name}" for it in self._peers.values() if self._suspicions.suspected(it.id)]
        lines += [f"{it.name} has not come back" for it in self._peers.values() if it.returning]
        return "\n".join(lines)

    def snapshot(self) -> list[Record]:
        """Records that replay to the present state: the shell rewrites the journal with them (new file, fsync, rename)
        at start and when it has grown beyond a limit."""
        return journal.snapshot(self._past)

    @property
    def census(self) -> Census:
        sizes = [len(view.members) for view in self._past.views.values()]
        return Census(sum(sizes), len(sizes), max(sizes, default=0))

    @property
    def pending_count(self) -> int:
        """Peers that wait to be accepted."""
        return len(self._pending)

    # ------------------------------------------------------------------------------------------ peers' messages

    def _hello(self, peer: PeerId, entry: Peer | None, hello: Hello, now: int) -> None:
        if entry is None and hello.epoch:
            self._send(peer, ExpelledNotice("this peer is no member of the run (any more)"))
            self._out.append(Drop(peer))
            return
        if entry is None and len(self._peers) >= MAX_MEMBERS:
            self._refuse(peer, Status.INVALID, f"the run is full: it has {MAX_MEMBERS} peers", now)
            return
        if entry is None:
            entry = self._peers[peer] = Peer(peer, hello.secret, hello.group, Phase.GREETED, heard=now)
        elif entry.secret != hello.secret:
            self._send(peer, Refused(PROTOCOL_VERSION, Status.INVALID, f"peer id {peer.hex()} is taken"))
            return
        elif entry.group != hello.group:
            self._fault(peer, f"group {hello.group} instead of {entry.group}", now)
            return
        entry.heard, entry.known = now, True
        if entry.phase is Phase.ACCEPTED:
            self._hello_again(entry, hello, now)
        else:
            self._welcome(entry)

    def _hello_again(self, entry: Peer, hello: Hello, now: int) -> None:
        """A member renewed its connection: repeat what it may have missed."""
        group = self._groups[entry.group]
        rank = group.rank(entry.id)
        before = 0 if rank in group.view.admitted else group.view.previous
        if hello.epoch not in (group.epoch, before):
            self._fault(entry.id, f"epoch {hello.epoch} in its Hello, where {group.epoch} or {before} can be", now)
            return
        if entry.returning:
            entry.returning = False
            self._notify(Event.RETURNED, f"{entry.name} is back", entry.id)
        self._welcome(entry)
        if hello.epoch != group.epoch:
            self._send(entry.id, self._view_message(group.view))
        if group.gathering is not None and entry.id not in group.gathering.reports:
            self._send(entry.id, FreezeEpoch(group.epoch))
        if group.sync is not None:
            self._sync_step(group, group.sync.rejoined(entry.id, now))

    def _welcome(self, entry: Peer) -> None:
        limits = self._limits
        welcome = Welcome(
            PROTOCOL_VERSION, self._past.run_secret, limits.heartbeat_ms, limits.heartbeat_limit_ms, self.census
        )
        self._send(entry.id, welcome)

    def _register(self, entry: Peer, message: Register, now: int) -> None:
        member = Member(entry.id, message.address, message.port, message.host_id)
        if entry.phase is Phase.ACCEPTED:
            if member != entry.member:
                self._fault(entry.id, "another address than it was accepted with", now)
            return
        entry.member = member
        if entry.phase is Phase.GREETED:
            entry.phase = Phase.PENDING
            self._pending[entry.id] = entry
            self._notify(Event.REGISTERED, f"{entry.name} waits for acceptance into group {entry.group}", entry.id)
        self._dirty = True

    def _heartbeat(self, entry: Peer, message: Heartbeat, now: int) -> None:
        self._send(entry.id, HeartbeatReply())

    def _leave(self, entry: Peer, message: Leave, now: int) -> None:
        if entry.phase is Phase.ACCEPTED:
            self._lose(entry, Event.LEFT, f"left{': ' + message.text if message.text else ''}", now)
        else:
            self._forget(entry)

    def _vote(self, entry: Peer, message: Vote, now: int) -> None:
        group = self._groups[entry.group]
        if entry.answered is not None and message.call <= entry.answered.call:
            if message.call == entry.answered.call:
                self._send(entry.id, _result(entry.answered))
            return
        standing = self._votes.of(entry.id, entry.group)
        if standing is not None:
            if standing.call != message.call:
                self._fault(entry.id, f"vote {message.call} while its vote {standing.call} is open", now)
            else:
                self._ask_voter(entry.id, group)
            return
        vote = Open(entry.id, entry.group, message.call, VoteKind(message.kind), message.body)
        clash = self._votes.cast(vote)
        self._dirty = True
        if clash:
            self._fail_votes(vote, clash)
            return
        if vote.kind is not VoteKind.ARE_PEERS_PENDING:
            group.forget_stalls(entry.id)
        self._ask_voter(entry.id, group)

    def _ask_voter(self, voter: PeerId, group: Group) -> None:
        """Members wait in operations: has the voter started them?"""
        for staller, operation in group.stalls:
            if self._votes.of(staller, group.view.group) is None:
                self._send(voter, HasStarted(group.epoch, operation))

    def _suspect(self, entry: Peer, message: Suspect, now: int) -> None:
        group = self._groups[entry.group]
        if message.epoch > group.epoch:
            self._fault(entry.id, f"a suspicion in epoch {message.epoch}, where {group.epoch} is the newest", now)
            return
        self._accuse(entry, group, message, message.peer, now)

    def _report(self, entry: Peer, message: Report, now: int) -> None:
        group = self._groups[entry.group]
        if message.epoch > group.epoch:
            self._fault(entry.id, f"a report on epoch {message.epoch}, where {group.epoch} is the newest", now)
            return
        if message.epoch < group.epoch:
            return
        gathering = self._gather(group, now, reporter=entry.id)
        if entry.id in gathering.reports:
            return
        gathering.reports[entry.id] = message
        self._dirty = True
        if message.suspect:
            self._accuse(entry, group, message, message.suspect, now)

    def _stalled(self, entry: Peer, message: Stalled, now: int) -> None:
        group = self._groups[entry.group]
        if message.epoch != group.epoch:
            return
        voting = self._votes.of(entry.id, entry.group)
        if voting is not None and voting.kind is not VoteKind.ARE_PEERS_PENDING:
            return
        group.stall(entry.id, message.operation, message.waited_ms)
        for peer in group.members:
            if peer != entry.id and self._votes.of(peer, entry.group) is not None:
                self._send(peer, HasStarted(group.epoch, message.operation))

    def _started(self, entry: Peer, message: Started, now: int) -> None:
        """A voter's answer. If it has not started what another member waits in, neither can ever go on."""
        group = self._groups[entry.group]
        vote = self._votes.of(entry.id, entry.group)
        if message.answer != 0 or message.epoch != group.epoch or vote is None:
            return
        stuck = [
            peer
            for peer, operation in group.stalls
            if operation == message.operation and self._votes.of(peer, entry.group) is None
        ]
        if not stuck:
            return
        operation = message.operation
        text = (
            f"rank {group.rank(entry.id)} called {CALL_NAMES[vote.kind]} while rank {group.rank(stuck[0])} waits in "
            f"operation (tag {operation.tag}, sequence {operation.sequence}) that needs it"
        )
        self._fail_votes(vote, text)
        self._gather(group, now).cause = (Status.CALL_MISMATCH, text)

    def _state_message(self, entry: Peer, message: Message, now: int) -> None:
        group = self._groups[entry.group]
        if group.sync is not None:
            self._sync_step(group, group.sync.received(entry.id, message, now))

    # ------------------------------------------------------------------------------------------ failures

    def _accuse(self, accuser: Peer, group: Group, message: Suspect | Report, suspect: PeerId, now: int) -> None:
        """`accuser` cannot reach `suspect`. Only a probe tells whether the suspect or the link is dead."""
        entry = self._peers.get(suspect)
        if entry is None or entry.group != accuser.group or entry.phase is not Phase.ACCEPTED or entry is accuser:
            return
        text = f"rank {group.rank(accuser.id)} reports: {message.text}"
        accusation = Accusation(accuser.id, message.epoch, text, link=message.reason != Status.TIMEOUT)
        nonce = self._draw() | 1
        if not self._suspicions.accuse(suspect, accusation, nonce, now):
            return
        self._notify(Event.SUSPECTED, f"{entry.name}: {text}", suspect, message.epoch)
        if entry.known or entry.returning:
            self._send(suspect, Probe(nonce))
        else:
            self._lose(entry, Event.LOST, f"was lost: {text}", now)

    def _probe_reply(self, entry: Peer, message: ProbeReply, now: int) -> None:
        for accusation in self._suspicions.answered(entry.id, message.nonce):
            self._dirty = True
            group = self._groups[entry.group]
            accuser = self._peers.get(accusation.accuser)
            if accusation.link and accusation.epoch == group.epoch and accuser and entry.id in self._peers:
                self._link_broke(group, accuser, entry, accusation.text, now)

    def _link_broke(self, group: Group, one: Peer, other: Peer, text: str, now: int) -> None:
        """Both ends live. The members stay and the epoch is made anew; but a link that breaks again and again would
        stop the group for good, so the end with more broken links (else the higher rank) has to go."""
        ranks = sorted((group.rank(one.id), group.rank(other.id)))
        line = f"the link between rank {ranks[0]} and rank {ranks[1]} broke ({text})"
        self._gather(group, now).links.append(line)
        self._notify(Event.LINK, line, epoch=group.epoch)
        if self._links.note(one.id, other.id, now):
            worst = max((one, other), key=lambda it: (self._links.degree(it.id, now), group.rank(it.id)))
            self._lose(worst, Event.EXPELLED, f"was expelled: {line}, {self._limits.link_failures} times", now)

    def _lose(self, entry: Peer, event: Event, text: str, now: int) -> None:
        """An accepted peer is a member no more: the others go on without it."""
        group = self._groups[entry.group]
        rank = group.rank(entry.id)
        del self._peers[entry.id]
        self._accepted -= 1
        self._votes.drop(entry.id, entry.group)
        self._suspicions.drop(entry.id)
        self._links.drop(entry.id)
        group.members.remove(entry.id)
        group.forget_stalls(entry.id)
        self._dirty = True
        self._notify(event, f"{entry.name} (rank {rank} of group {entry.group}) {text}", entry.id, group.epoch)
        if event is not Event.LEFT:
            self._send(entry.id, ExpelledNotice(clip(f"rank {rank} {text}")))
        self._out.append(Drop(entry.id))
        if not group.members:
            self._end_group(entry.group)
            return
        gathering = self._gather(group, now)
        gathering.reports.pop(entry.id, None)
        gathering.lost.append(f"rank {rank} {text}")
        if group.sync is not None:
            self._sync_step(group, group.sync.member_lost(entry.id, now))

    def _fault(self, peer: PeerId, text: str, now: int) -> None:
        """A peer broke the protocol: it has to go, whatever it is."""
        entry = self._peers.get(peer)
        if entry is not None and entry.phase is Phase.ACCEPTED:
            self._lose(entry, Event.EXPELLED, f"was expelled: protocol error: {text}", now)
        else:
            self._refuse(peer, Status.PROTOCOL, f"protocol error: {text}", now)

    def _refuse(self, peer: PeerId, reason: Status, text: str, now: int) -> None:
        """Turns away a peer; one that is accepted already stays (its Hello came from somebody else)."""
        self._send(peer, Refused(PROTOCOL_VERSION, reason, clip(text)))
        self._notify(Event.REFUSED, f"peer {peer.hex()[:8]}: {text}", peer)
        entry = self._peers.get(peer)
        if entry is None or entry.phase is not Phase.ACCEPTED:
            self._out.append(Drop(peer))
            if entry is not None:
                self._forget(entry)

    def _forget(self, entry: Peer) -> None:
        """A peer that was never accepted goes: that is nobody else's business (G7)."""
        del self._peers[entry.id]
        self._pending.pop(entry.id, None)
        self._out.append(Drop(entry.id))

    def _tick(self, now: int) -> None:
        """Looks for silent peers and missing reports, TICKS_PER_LIMIT times per heartbeat limit."""
        slept = now - self._last_tick - self._tick_ms
        self._last_tick = now
        if slept > self._limits.heartbeat_ms:
            # It was the master that was stopped: what the peers sent meanwhile has still to be read.
            for entry in self._peers.values():
                entry.heard = now
            for group in self._groups.values():
                if group.gathering is not None:
                    group.gathering.since = now
            return
        limit = self._limits.heartbeat_limit_ms
        for entry in [it for it in self._peers.values() if now - it.heard >= limit]:
            if entry.phase is not Phase.ACCEPTED:
                self._forget(entry)
            elif entry.id in self._peers:
                self._lose(entry, Event.LOST, f"was lost: no sign of life for {now - entry.heard} ms", now)
        for group in list(self._groups.values()):
            gathering = group.gathering
            if gathering is not None and now - gathering.since >= self._limits.report_limit_ms:
                for peer in [it for it in group.members if it not in gathering.reports]:
                    text = f"was expelled: it did not report its operations within {self._limits.report_limit_ms} ms"
                    self._lose(self._peers[peer], Event.EXPELLED, text, now)

    # ------------------------------------------------------------------------------------------ consequences

    def _settle(self, now: int) -> list[MasterOutput]:
        """Draws all consequences of what has changed, and returns what is to be done."""
        while self._dirty:
            self._dirty = False
            if not self._accepted:
                self._resolution = None
            if not self._accepted and self._pending:
                self._change([], list(self._pending), [], now)
            elif self._resolution is not None:
                self._complete_resolution(self._resolution, now)
            elif self._accepted and self._votes.run_count() == self._accepted:
                self._resolve(now)
            for number in self._votes.voted_groups():
                group = self._groups[number]
                if group.sync is None and self._votes.group_count(number) == len(group.members):
                    self._begin_sync(number, group, now)
            busy = self._resolution.groups if self._resolution else []
            for number in [it for it, group in self._groups.items() if group.gathering and it not in busy]:
                if self._gathered(self._groups[number]):
                    self._change([number], [], [], now)
        out, self._out = self._out, []
        return out

    def _gather(self, group: Group, now: int, reporter: PeerId = b"") -> Gathering:
        """Stops the epoch of a group, if it is not stopping already. `reporter` has frozen it by itself."""
        if group.gathering is None:
            group.gathering = Gathering(now)
            self._dirty = True
            self._notify(Event.FROZEN, f"epoch {group.epoch} of group {group.view.group}", epoch=group.epoch)
            freeze = FreezeEpoch(group.epoch)
            for peer in group.members:
                if peer != reporter and self._peers[peer].known:
                    self._send(peer, freeze)
        return group.gathering

    def _gathered(self, group: Group) -> bool:
        gathering = group.gathering
        return (
            gathering is not None
            and len(gathering.reports) == len(group.members)
            and not self._suspicions.any_of(group.members)
        )

    def _resolve(self, now: int) -> None:
        """Every accepted peer has called the same joint call of the run."""
        kind = self._votes.run_votes()[0].kind
        groups: list[int] = []
        if kind is VoteKind.ARE_PEERS_PENDING:
            self._answer_run(bool(self._pending))
            return
        if kind is VoteKind.UPDATE_TOPOLOGY:
            wanted = {entry.group: True for entry in self._pending.values()}
            groups = [number for number in self._groups if number in wanted]
            if not self._pending:
                self._answer_run(False)
                return
        else:
            groups = [
                number
                for number, group in self._groups.items()
                if self._ring(group.view.members, now) != group.view.ring
            ]
            if not groups:
                self._answer_run(False)
                return
        admitting = list(self._pending) if kind is VoteKind.UPDATE_TOPOLOGY else []
        self._resolution = Resolution(kind, groups, admitting)
        for number in groups:
            gathering = self._gather(self._groups[number], now)
            gathering.cause = gathering.cause or (Status.PEER_LOST, f"{CALL_NAMES[kind]} made a new epoch")
        self._dirty = True

    def _complete_resolution(self, resolution: Resolution, now: int) -> None:
        """Changes all groups of a vote at once, as soon as the last of them is gathered."""
        groups = [number for number in resolution.groups if number in self._groups]
        if not all(self._gathered(self._groups[number]) for number in groups):
            return
        self._resolution = None
        admitting = [peer for peer in resolution.admitting if peer in self._pending]
        answers = [Answer(vote.peer, vote.call, flag=True) for vote in self._votes.run_votes()]
        self._change(groups, admitting, answers, now)

    def _answer_run(self, flag: bool) -> None:
        self._answer([Answer(vote.peer, vote.call, flag=flag) for vote in self._votes.run_votes()])

    def _fail_votes(self, vote: Open, text: str) -> None:
        stuck = self._votes.stuck_with(vote)
        self._answer([Answer(it.peer, it.call, Status.CALL_MISMATCH, clip(text)) for it in stuck])

    def _answer(self, answers: Sequence[Answer]) -> None:
        """Ends votes: first for good (journal), then for their callers."""
        answers = [answer for answer in answers if answer.peer in self._peers]
        if answers:
            self._commit(Change(answers=tuple(answers)))
            self._tell_answers(answers)

    def _tell_answers(self, answers: Sequence[Answer]) -> None:
        for answer in answers:
            entry = self._peers[answer.peer]
            entry.answered = answer
            self._votes.drop(answer.peer, entry.group)
            self._send(answer.peer, _result(answer))
        self._dirty = True
        outcome = "ok" if answers[0].status == Status.OK else answers[0].text
        self._notify(Event.VOTE, f"{len(answers)} callers answered: {outcome}")

    # ------------------------------------------------------------------------------------------ new views

    def _change(self, numbers: list[int], admitting: list[PeerId], answers: list[Answer], now: int) -> None:
        """The only way to a new epoch: the gathered groups `numbers`, and those of the newcomers, get new views."""
        newcomers: dict[int, list[Peer]] = {number: [] for number in numbers}
        for peer in admitting:
            newcomers.setdefault(self._pending[peer].group, []).append(self._pending[peer])
        admissions = [
            Admission(it.id, it.secret, it.group, it.member)
            for entries in newcomers.values()
            for it in entries
            if it.member is not None
        ]
        hosts = {it.id: it.member.host_id for it in admissions}
        views = [
            self._next_view(number, entries, self._past.epoch + 1 + index, hosts, now)
            for index, (number, entries) in enumerate(newcomers.items())
        ]
        answers = [answer for answer in answers if answer.peer in self._peers]
        before = self.census
        self._commit(Change(tuple(admissions), tuple(views), tuple(answers)))
        for admission in admissions:
            entry = self._pending.pop(admission.id)
            entry.phase = Phase.ACCEPTED
            self._accepted += 1
            self._notify(Event.ACCEPTED, f"{entry.name} into group {entry.group}", entry.id)
        for view in views:
            old = self._groups.get(view.group)
            self._groups[view.group] = Group(view, list(view.members), sync=old.sync if old else None)
            self._notify(Event.VIEW, f"group {view.group}: {len(view.members)} members; {view.text}", epoch=view.epoch)
            message = self._view_message(view)
            for peer in view.members:
                self._send(peer, message)
        if answers:
            self._tell_answers(answers)
        self._tell_census(before, list(newcomers))
        self._dirty = True

    def _next_view(
        self, number: int, newcomers: list[Peer], epoch: int, hosts: dict[PeerId, int], now: int
    ) -> GroupView:
        group = self._groups.get(number)
        survivors = group.members if group else []
        members = [*survivors, *(it.id for it in newcomers)]
        admitted = tuple(range(len(survivors), len(members)))
        ring = self._ring(members, now, hosts)
        if group is None or group.gathering is None:
            return GroupView(epoch, 0, number, tuple(members), ring, admitted, (), Status.OK, "the group begins")
        status, text = cause_of(group)
        decided = verdict([group.gathering.reports[peer].lines for peer in survivors])
        for name in decided.conflicts:
            line = f"tag {name.tag}, sequence {name.sequence} returned on one member without the data of another"
            self._notify(Event.CONFLICT, line, epoch=group.epoch)
        return GroupView(
            epoch, group.epoch, number, tuple(members), ring, admitted, decided.commits, status, clip(text)
        )

    def _ring(self, members: Sequence[PeerId], now: int, hosts: dict[PeerId, int] | None = None) -> tuple[int, ...]:
        """The ring for `members`; `hosts` has the host ids of those who are not accepted yet."""
        known = self._past.admissions
        ranks = {peer: rank for rank, peer in enumerate(members)}
        broken = [
            (ranks[one], ranks[other]) for one, other in self._links.broken(now) if one in ranks and other in ranks
        ]
        placed = [known[peer].member.host_id if peer in known else (hosts or {})[peer] for peer in members]
        return ring_order(placed, broken)

    def _end_group(self, number: int) -> None:
        """The last member is gone. What its shared state remembers stays, for whoever founds the group again."""
        view = self._groups.pop(number).view
        before = self.census
        ended = GroupView(self._past.epoch + 1, view.epoch, number, (), (), (), (), Status.OK, "the group has ended")
        self._commit(Change(views=(ended,)))
        self._tell_census(before, [number])

    def _view_message(self, view: GroupView) -> View:
        members = tuple(self._past.admissions[peer].member for peer in view.members)
        return View(
            view.epoch,
            view.previous,
            view.group,
            members,
            view.ring,
            view.admitted,
            view.commits,
            view.cause,
            view.text,
            self.census,
        )

    def _tell_census(self, before: Census, changed: Sequence[int]) -> None:
        """Other groups than the changed ones learn the new numbers; those have them in their views."""
        census = self.census
        if census == before:
            return
        update = CensusUpdate(census)
        for number, group in self._groups.items():
            if number not in changed:
                for peer in group.members:
                    self._send(peer, update)

    # ------------------------------------------------------------------------------------------ shared state

    def _begin_sync(self, number: int, group: Group, now: int) -> None:
        votes = sorted(self._votes.group_votes(number), key=lambda vote: group.rank(vote.peer))
        ballots = [Ballot(vote.peer, group.rank(vote.peer), vote.call, vote.body) for vote in votes]
        group.sync = self._sync_factory(self._draw(), number, ballots, self._past.memories.get(number, b""))
        self._sync_step(group, group.sync.begin(now))

    def _sync_step(self, group: Group, step: SyncStep) -> None:
        for send in step.sends:
            if send.peer in self._peers:
                self._out.append(send)
        if step.memory is not None:
            self._commit(Memory(group.view.group, step.memory))
        if step.answers is not None:
            group.sync = None
            self._answer(step.answers)

    # ------------------------------------------------------------------------------------------ small things

    def _commit(self, record: Record) -> None:
        self._out.append(Append(record))
        journal.apply(self._past, record)

    def _send(self, peer: PeerId, message: Message) -> None:
        self._out.append(Send(peer, message))

    def _notify(self, event: Event, text: str, peer: PeerId = b"", epoch: int = 0) -> None:
        self._out.append(Notify(event, text, peer, epoch))

    def _explain_group(self, number: int, group: Group) -> list[str]:
        lines: list[str] = []
        voted = {vote.peer: True for vote in self._votes.group_votes(number)}
        if group.sync is not None:
            lines.append(f"group {number}: {group.sync.explain()}")
        elif voted:
            absent = [f"rank {group.rank(peer)}" for peer in group.members if peer not in voted]
            lines.append(f"group {number}: sync_shared_state: waiting for {', '.join(absent)}")
        if group.gathering is not None:
            silent = [f"rank {group.rank(it)}" for it in group.members if it not in group.gathering.reports]
            lines.append(
                f"group {number}: epoch {group.epoch} is frozen; reports missing: {', '.join(silent) or 'none'}"
            )
        for (peer, operation), waited_ms in group.stalls.items():
            lines.append(
                f"group {number}: rank {group.rank(peer)} has waited {waited_ms} ms in operation "
                f"(tag {operation.tag}, sequence {operation.sequence})"
            )
        return lines


def _result(answer: Answer) -> VoteResult:
    return VoteResult(answer.call, answer.status, answer.text, answer.flag, answer.body)
