# SPDX-License-Identifier: MIT
"""The peer's half of the control plane, as a pure state machine.

What for: it turns what the master says, what the engine notices and what the user calls into outputs (types.py) that
the shell performs in order. Must not know: sockets, threads, clocks, the C library.

The one idea: everything that matters to the master and has no answer yet (the open vote or its withdrawal, the report
of a frozen epoch, suspicions, stalls) is kept here and said again after every Welcome. So a lost connection or a
restarted master needs no case of its own.

Life of the shell, in order:

1. `connect(now)`: Tell(Hello). The shell dials; messages told before the connection stands wait in the socket.
2. Welcome arrives: OpenDataPlane(run_secret). The shell creates the engine and calls `opened(...)`: Tell(Register).
3. Accepted: Install(view), then Resolve(CONNECT_CALL). A refusal is Reject(CONNECT_CALL, ...) and Halt.
4. Engine events: FROZEN -> `engine_frozen` (with pccl_engine_report), SUSPECT -> `engine_suspect`,
   STALLED -> `engine_stalled`, LINKED -> `engine_linked`. DONE is the shell's alone.
5. `vote(...)` per joint call; its end is Resolve or Reject with the same call number. `abandon(...)` if its caller is
   gone: then neither comes.
6. The socket's monitor: `disconnected`, `reconnected` (say the second and later connections). One timer: `deadline`.
7. `leave(...)`: Tell(Leave), Halt(CLOSED). The shell flushes the socket and closes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

from pccl.errors import Status
from pccl.messages import (
    MAX_REPORT_LINES,
    MAX_STALLED_RANKS,
    NO_PLACE,
    PROTOCOL_VERSION,
    STATE_MESSAGES,
    Census,
    Dial,
    ExpelledNotice,
    FreezeEpoch,
    HasStarted,
    Heartbeat,
    HeartbeatReply,
    Hello,
    Leave,
    Linked,
    Message,
    OperationName,
    Probe,
    ProbeReply,
    Refused,
    Register,
    Report,
    ReportLine,
    Stalled,
    Started,
    StatePlan,
    Subgroup,
    Suspect,
    View,
    Vote,
    VoteResult,
    Welcome,
    WhoAreYou,
    clip,
)
from pccl.protocol.open_call import OpenCall
from pccl.protocol.topology import is_arranged
from pccl.protocol.types import (
    CALL_NAMES,
    CONNECT_CALL,
    NO_CENSUS,
    Ask,
    DialPeer,
    Event,
    Freeze,
    Halt,
    Install,
    Limits,
    Notify,
    OpenDataPlane,
    PeerId,
    PeerOutput,
    PeerSync,
    Reconnect,
    Reject,
    Resolve,
    Tell,
    VoteKind,
)

MAX_STALLS = 8

_WEIGHT: dict[int, int] = {Status.PEER_LOST: 1, Status.PEER_DIED: 2}
"""Of a suspicion's reason; others weigh nothing. A link that was only doubted may break afterwards, and its other end
turn out to be dead."""


class Phase(Enum):
    NEW = "new"
    JOINING = "joining"
    MEMBER = "member"
    HALTED = "halted"


_ALWAYS = (Welcome, Refused, Probe, HeartbeatReply, ExpelledNotice, WhoAreYou)

LEGAL: dict[Phase, tuple[type, ...]] = {
    Phase.NEW: (),
    # Freeze and question may reach a newcomer whose first view was lost with a connection.
    Phase.JOINING: (*_ALWAYS, View, FreezeEpoch, HasStarted),
    Phase.MEMBER: (*_ALWAYS, View, FreezeEpoch, HasStarted, Dial, VoteResult, *STATE_MESSAGES),
    Phase.HALTED: (),
}
"""Legal (phase, message) pairs. Any other is the master's protocol error; a member then leaves."""

_ANSWERS_TO_HELLO = (Welcome, Refused, WhoAreYou)
"""Before one of these a newcomer may hear what is meant for a former life under its id, which is dead or about to be
refused: the router sends to whoever has connected last, and the master has not read that one's Hello yet."""


class PeerProtocol:
    """See the module. All `now` are integer milliseconds of one monotonic clock; events may not go back in time."""

    def __init__(
        self,
        peer: PeerId,
        secret: bytes,
        group: int,
        *,
        sync: PeerSync,
        master_timeout_ms: int = 60_000,
        joint_timeout_ms: int = 300_000,
        operation_timeout_ms: int = 300_000,
        limits: Limits | None = None,
        place: int = NO_PLACE,
    ) -> None:
        """`peer` and `secret` are 16 fresh random bytes each. `limits` count until Welcome brings the master's.
        `joint_timeout_ms` is the patience of joint calls, and of the wish to be admitted. `operation_timeout_ms` is
        the engine's, and here only to be compared with the master's limits. `place` orders those who are admitted
        together."""
        base = limits or Limits()
        self.peer = peer
        self.master = "the master"  # what texts call it; the shell knows where it is
        self.group = group
        self._secret = secret
        self._sync = sync
        self._master_timeout_ms = master_timeout_ms
        self._operation_timeout_ms = operation_timeout_ms
        self._heartbeat_ms = base.heartbeat_ms
        self._silence_ms = base.heartbeat_limit_ms
        self._phase = Phase.NEW
        self._view: View | None = None
        self._rank = -1
        self._census = NO_CENSUS
        self._place = place
        self._endpoint: Register | None = None
        self._run_secret = b""
        self._connected = False
        self._welcomed = False
        self._heard = 0
        self._redial_at = 0
        self._beat_at = 0
        self._timer_at = 0
        self._call = OpenCall(joint_timeout_ms)
        self._halted: Halt | None = None
        self._report: Report | None = None
        self._suspects: dict[PeerId, Suspect] = {}
        self._stalls: dict[OperationName, Stalled] = {}
        self._handlers: dict[type, Callable[[Any, int], list[PeerOutput]]] = {
            Welcome: self._on_welcome,
            Refused: self._on_refused,
            View: self._on_view,
            FreezeEpoch: self._on_freeze,
            Dial: self._on_dial,
            Probe: self._on_probe,
            HasStarted: self._on_has_started,
            VoteResult: self._on_vote_result,
            HeartbeatReply: self._on_heartbeat_reply,
            ExpelledNotice: self._on_expelled,
            WhoAreYou: self._on_who_are_you,
            **dict.fromkeys(STATE_MESSAGES, self._on_state_message),
        }

    # ------------------------------------------------------------------------------------------ what the shell may read

    @property
    def view(self) -> View | None:
        """The installed view, None before acceptance."""
        return self._view

    @property
    def rank(self) -> int:
        """This peer's rank in `view`; -1 before acceptance."""
        return self._rank

    @property
    def epoch(self) -> int:
        """The installed epoch; 0 before acceptance."""
        return self._view.epoch if self._view is not None else 0

    @property
    def census(self) -> Census:
        """The whole run as it was when the installed epoch was made or, if that came later, when the last joint call of
        this peer that ended well did; zeros before acceptance. So members that have made the same calls and are in the
        same epoch read the same, whatever happens in other groups meanwhile."""
        return self._census

    @property
    def halted(self) -> bool:
        return self._phase is Phase.HALTED

    # ------------------------------------------------------------------------------------------ the user's calls

    def connect(self, now: int) -> list[PeerOutput]:
        """Once, first. Ends with Resolve or Reject of CONNECT_CALL."""
        self._phase = Phase.JOINING
        self._connected = True
        self._heard = self._timer_at = now
        self._redial_at = now + self._mute_ms
        self._call.join(now)
        return [self._hello()]

    def opened(self, address: str, port: int, host_id: int, cores: int, now: int) -> list[PeerOutput]:
        """The data plane listens there. `address` is what other peers dial; `cores` is how many this one may use."""
        self._endpoint = Register(address, port, host_id, cores, self._place)
        return self._say(self._endpoint, self._call.unanswered) if self._phase is Phase.JOINING else []

    def vote(self, kind: VoteKind, call: int, body: bytes, pending: int, now: int) -> list[PeerOutput]:
        """A joint call. `call` > 0 rises with each vote. `pending` is pccl_engine_pending: nonzero rejects the call
        with PENDING_OPERATIONS at once, unless the kind is ARE_PEERS_PENDING. Another open call rejects it with
        INVALID, unless that one is abandoned. After the joint timeout it is withdrawn: rejected with TIMEOUT, or
        answered, if it was complete."""
        name = CALL_NAMES[kind]
        if self._halted is not None:  # the user may not have met the reason yet
            return [Reject(call, self._halted.status, f"{name}: {self._halted.text}")]
        if self._phase is not Phase.MEMBER:
            return [Reject(call, Status.CLOSED, f"{name}: the communicator is {self._phase.value}")]
        if pending and kind is not VoteKind.ARE_PEERS_PENDING:
            text = f"{name}: operations of this peer have not ended, or await a commit ({pending}): wait for them first"
            return [Reject(call, Status.PENDING_OPERATIONS, text)]
        vote = Vote(call, int(kind), body)
        rejection = self._call.open(vote, now)
        if rejection is not None:
            return [rejection]
        return self._tell_vote(now) if self._call.vote is vote else []

    def abandon(self, call: int, now: int) -> list[PeerOutput]:
        """The caller of vote `call` is gone (Ctrl-C): it is withdrawn, and its end is told to nobody. A next call may
        be made at once. Nothing happens if it has ended."""
        return self._call.abandon(call)

    def leave(self, text: str, now: int) -> list[PeerOutput]:
        """Ends all: open calls are rejected with CLOSED."""
        if self._phase in (Phase.NEW, Phase.HALTED):
            return self._halt(Status.CLOSED, text, now)
        return [Tell(Leave(clip(text))), *self._halt(Status.CLOSED, text, now)]

    # ------------------------------------------------------------------------------------------ the engine's events

    def engine_frozen(
        self,
        epoch: int,
        suspect: PeerId,
        reason: int,
        text: str,
        lines: Sequence[ReportLine],
        now: int,
        subgroups: Sequence[Subgroup] = (),
    ) -> list[PeerOutput]:
        """PCCL_EVENT_FROZEN with its report; `suspect` is NOBODY (not 16 zero bytes) where there is none."""
        if self._phase is not Phase.MEMBER or epoch != self.epoch or self._report is not None:
            return []
        if len(lines) > MAX_REPORT_LINES:
            return self.leave(f"the report of {len(lines)} lines is over the limit of {MAX_REPORT_LINES}", now)
        self._report = Report(epoch, suspect, reason, clip(text), tuple(lines), tuple(subgroups))
        return [Tell(self._report)]

    def engine_suspect(self, epoch: int, peer: PeerId, reason: int, text: str, now: int) -> list[PeerOutput]:
        """PCCL_EVENT_SUSPECT."""
        if self._phase is not Phase.MEMBER or epoch != self.epoch:
            return []
        told = self._suspects.get(peer)
        if told is not None and _WEIGHT.get(reason, 0) <= _WEIGHT.get(told.reason, 0):
            return []
        self._suspects[peer] = Suspect(epoch, peer, reason, clip(text))
        return [Tell(self._suspects[peer])]

    def engine_linked(self, epoch: int, peer: PeerId, now: int) -> list[PeerOutput]:
        """PCCL_EVENT_LINKED."""
        if self._phase is not Phase.MEMBER or epoch != self.epoch:
            return []
        told = self._suspects.get(peer)
        if told is not None and told.reason == Status.TIMEOUT:
            del self._suspects[peer]
        return [Tell(Linked(epoch, peer))]

    def engine_stalled(
        self,
        epoch: int,
        operation: OperationName,
        waited_ms: int,
        ranks: Sequence[int],
        now: int,
        absent: bool = False,
        members: Sequence[int] = (),
    ) -> list[PeerOutput]:
        """PCCL_EVENT_STALLED; `waited_ms` 0 takes back what was said of the operation. `members` are those of its
        subgroup."""
        if self._phase is not Phase.MEMBER or epoch != self.epoch:
            return []
        stalled = Stalled(epoch, operation, waited_ms, tuple(ranks[:MAX_STALLED_RANKS]), absent, tuple(members))
        self._stalls.pop(operation, None)
        if waited_ms:
            self._stalls[operation] = stalled
        if len(self._stalls) > MAX_STALLS:
            del self._stalls[next(iter(self._stalls))]
        return [Tell(stalled)]

    def started_answer(self, epoch: int, operation: OperationName, answer: int, now: int) -> list[PeerOutput]:
        """The result of pccl_engine_has_started for an Ask: 1, 0 or -1."""
        if self._phase is not Phase.MEMBER:
            return []
        return [Tell(Started(epoch, operation, answer if answer in (0, 1) else 2))]

    def install_failed(self, epoch: int, text: str, now: int) -> list[PeerOutput]:
        """pccl_engine_install refused a view: this peer cannot go on and leaves."""
        if self._phase is Phase.HALTED:
            return []
        text = f"epoch {epoch} cannot be installed: {text}"
        return [Tell(Leave(clip(text))), *self._halt(Status.SYSTEM, text, now)]

    def state_event(self, event: object, now: int) -> list[PeerOutput]:
        """Handed to the PeerSync."""
        return self._sync.event(event, now) if self._phase is Phase.MEMBER else []

    # ------------------------------------------------------------------------------------------ connection and clock

    def received(self, message: Message, now: int) -> list[PeerOutput]:
        if self._phase is Phase.HALTED:
            return []
        self._heard = now
        self._redial_at = now + self._mute_ms
        if self._is_for_a_former_life(message):
            return []
        if not isinstance(message, LEGAL[self._phase]):
            return self._master_fault(f"{type(message).__name__} for a peer that is {self._phase.value}", now)
        return self._handlers[type(message)](message, now)

    def _is_for_a_former_life(self, message: Message) -> bool:
        unheard = self._phase is Phase.JOINING and not self._run_secret  # no Welcome yet, on any connection
        return unheard and isinstance(message, LEGAL[Phase.MEMBER]) and not isinstance(message, _ANSWERS_TO_HELLO)

    def malformed(self, text: str, now: int) -> list[PeerOutput]:
        """`decode` refused what the master sent."""
        return [] if self._phase is Phase.HALTED else self._master_fault(text, now)

    def disconnected(self, now: int) -> list[PeerOutput]:
        """The control connection is gone; the socket dials again by itself."""
        if self._phase is Phase.HALTED or not self._connected:
            return []
        self._connected = self._welcomed = False
        return [Notify(Event.MASTER, "the control connection is gone", epoch=self.epoch)]

    def master_ended(self, now: int) -> list[PeerOutput]:
        """Nobody listens at the master's address, and nobody will: it has ended, and no other carries the run on."""
        if self._phase is Phase.HALTED:
            return []
        return self._halt(Status.MASTER_LOST, f"{self.master} has ended", now)

    def reconnected(self, now: int) -> list[PeerOutput]:
        """A control connection stands again, to the same master or to a restarted one."""
        if self._phase is Phase.HALTED:
            return []
        self._connected, self._welcomed = True, False
        self._redial_at = now + self._mute_ms
        return [self._hello()]

    def timed_out(self, now: int) -> list[PeerOutput]:
        if self._phase in (Phase.NEW, Phase.HALTED):
            return []
        slept = now - self._timer_at
        self._timer_at = now
        if slept > self._silence_ms:
            # It was this process that was stopped: what the master sent meanwhile has still to be read.
            self._heard = max(self._heard, now - self._silence_ms)
            self._redial_at = now + self._mute_ms
        if now - self._heard >= self._master_timeout_ms:
            text = f"{self.master} has been silent for {now - self._heard} ms (master_timeout)"
            return self._halt(Status.MASTER_LOST, text, now)
        out = self._call.timed_out(now)
        if self._connected and now >= self._redial_at:
            self._redial_at = now + self._mute_ms
            self._welcomed = False
            out.append(Reconnect())
        if self._welcomed and now >= self._beat_at:
            self._beat_at = now + self._heartbeat_ms
            out.append(Tell(Heartbeat(self.epoch)))
        return out

    def deadline(self) -> int | None:
        """When `timed_out` wants to be called next; earlier calls do no harm."""
        if self._phase in (Phase.NEW, Phase.HALTED):
            return None
        # The timer runs at least twice per silence, so that a longer pause shows that the process was stopped.
        times = [self._heard + self._master_timeout_ms, self._timer_at + self._silence_ms // 2]
        if self._connected:
            times.append(self._redial_at)
        if self._welcomed:
            times.append(self._beat_at)
        call = self._call.deadline()
        return min(times) if call is None else min(call, *times)

    def explain(self) -> str:
        """What this peer waits for, and for whom; empty if for nothing."""
        if self._phase is Phase.JOINING:
            if not self._welcomed:
                return "connect: waiting for the master"
            return "connect: waiting for all accepted peers to call update_topology"
        if self._phase is not Phase.MEMBER:
            return ""
        lines: list[str] = []
        if not self._welcomed:
            lines.append("waiting for the master to come back")
        lines += self._call.explain()
        if self._report is not None:
            lines.append(f"epoch {self.epoch} is frozen: waiting for the master's verdict")
        for operation, stalled in self._stalls.items():
            lines.append(
                f"operation ({operation}) waited {stalled.waited_ms} ms for "
                f"rank {', '.join(map(str, stalled.ranks))}{', not started there' if stalled.absent else ''}"
            )
        return "\n".join(lines)

    # ------------------------------------------------------------------------------------------ the master's messages

    def _on_welcome(self, message: Welcome, now: int) -> list[PeerOutput]:
        """The master knows this connection. Now say again whatever has no answer yet."""
        if message.version != PROTOCOL_VERSION:
            return self._master_fault(f"Welcome of protocol version {message.version}", now)
        if self._run_secret not in (b"", message.run_secret):
            text = "another run is at the master's address: it was started without the journal of this one"
            return self._halt(Status.MASTER_LOST, text, now)
        if not self._run_secret and (broken := self._broken_rule(message.heartbeat_limit_ms)):
            return [Tell(Leave(clip(broken))), *self._halt(Status.INVALID, broken, now)]
        self._heartbeat_ms = message.heartbeat_ms
        self._silence_ms = message.heartbeat_limit_ms
        self._redial_at = now + self._mute_ms
        self._welcomed = True
        self._beat_at = now + self._heartbeat_ms
        if self._endpoint is None:
            opening, self._run_secret = bool(self._run_secret), message.run_secret
            return [] if opening else [OpenDataPlane(message.run_secret)]
        self._call.said_again(now)
        # Suspicions first: the report may be the last one that is waited for.
        out = self._say(
            self._endpoint,
            *self._suspects.values(),
            self._report,
            self._call.unanswered,
            *self._stalls.values(),
        )
        return out + (self._sync.reregistered(now) if self._phase is Phase.MEMBER else [])

    def _broken_rule(self, limit_ms: int) -> str:
        """Which of this peer's timeouts contradicts the master's heartbeat limit, and why; empty if none does."""
        for name, mine_ms, reason in (
            ("operation_timeout", self._operation_timeout_ms, "operations would give up on a peer before it is lost"),
            ("master_timeout", self._master_timeout_ms, "a master that is a heartbeat late would be taken for lost"),
        ):
            if mine_ms < limit_ms:
                return (
                    f"{name} ({mine_ms / 1000:g} s) must not be shorter than the heartbeat_timeout of the master "
                    f"({limit_ms / 1000:g} s): {reason}"
                )
        return ""

    def _on_refused(self, message: Refused, now: int) -> list[PeerOutput]:
        try:
            reason = Status(message.reason)
        except ValueError:
            reason = Status.PROTOCOL
        if message.version != PROTOCOL_VERSION:
            reason = Status.VERSION
        return self._halt(reason, f"the master refused this peer: {message.text}", now)

    def _on_view(self, view: View, now: int) -> list[PeerOutput]:
        if view.epoch <= self.epoch:
            return []
        rank = next((rank for rank, member in enumerate(view.members) if member.id == self.peer), -1)
        if rank < 0 or not is_arranged(view.shape, view.ring, view.parents, len(view.members)):
            text = f"the view of epoch {view.epoch} has no place for this peer, or no ring, or no tree"
            return self._master_fault(text, now)
        first = self._view is None
        if first != (rank in view.admitted) or (not first and view.previous != self.epoch):
            return self._master_fault(f"epoch {view.epoch} follows {view.previous}, here is {self.epoch}", now)
        self._view, self._rank, self._census = view, rank, view.census
        self._phase = Phase.MEMBER
        self._report = None
        self._suspects.clear()
        self._stalls.clear()
        out: list[PeerOutput] = [Install(view, rank, () if first else view.commits)]
        if first:
            self._call.answered()
            out.append(Resolve(CONNECT_CALL, epoch=self.epoch))
        return out + self._sync.view(view, now)

    def _on_freeze(self, message: FreezeEpoch, now: int) -> list[PeerOutput]:
        if message.epoch != self.epoch:
            return []  # it overtook a view that was lost with a connection; both come again after the next Hello
        return [Freeze(self.epoch)] if self._report is None else [Tell(self._report)]

    def _on_dial(self, message: Dial, now: int) -> list[PeerOutput]:
        return [DialPeer(message.epoch, message.peer)] if message.epoch == self.epoch else []

    def _on_probe(self, message: Probe, now: int) -> list[PeerOutput]:
        return [Tell(ProbeReply(message.nonce))]

    def _on_has_started(self, message: HasStarted, now: int) -> list[PeerOutput]:
        if message.epoch != self.epoch:
            return [Tell(Started(message.epoch, message.operation, 2))]
        return [Ask(message.epoch, message.operation)]

    def _on_vote_result(self, message: VoteResult, now: int) -> list[PeerOutput]:
        vote = self._call.vote
        if vote is None or vote.call != message.call:
            return []
        if message.epoch > self.epoch:  # the view that came before it was lost with a connection: both come again
            return self._greet_again()
        if message.status == Status.OK and message.epoch == self.epoch and not self._call.abandoned:
            self._census = message.census  # of an older epoch, the view has newer numbers
        out = self._sync.ended(message.status, now) if vote.kind == VoteKind.SYNC_SHARED_STATE else []
        if not self._call.abandoned:
            out.append(_end_of_call(message))
        self._call.answered()
        return out + self._tell_vote(now)

    def _on_heartbeat_reply(self, message: HeartbeatReply, now: int) -> list[PeerOutput]:
        return []

    def _on_expelled(self, message: ExpelledNotice, now: int) -> list[PeerOutput]:
        if self._phase is Phase.JOINING:  # it was meant for an earlier life under this id, or for a view that was lost
            return self._greet_again()
        return self._halt(Status.EXPELLED, f"this peer was removed from the run: {message.text}", now)

    def _on_who_are_you(self, message: WhoAreYou, now: int) -> list[PeerOutput]:
        return self._greet_again()

    def _on_state_message(self, message: Message, now: int) -> list[PeerOutput]:
        if isinstance(message, StatePlan):
            vote = self._call.vote
            if vote is None or vote.kind != VoteKind.SYNC_SHARED_STATE or not self._call.under_way(message.call):
                return []
        return self._sync.received(message, now)

    # ------------------------------------------------------------------------------------------ ends

    def _tell_vote(self, now: int) -> list[PeerOutput]:
        """A vote has become the open one."""
        vote = self._call.vote
        out = self._say(vote)
        if vote is not None and vote.kind == VoteKind.SYNC_SHARED_STATE:
            out += self._sync.voted(vote.call, vote.body, now)
        return out

    def _say(self, *messages: Message | None) -> list[PeerOutput]:
        return [Tell(it) for it in messages if it is not None]

    @property
    def _mute_ms(self) -> int:
        """How long a connection that stands may bring nothing before it is dialled afresh. It may be mute for good, as
        when another process came under this id. So early that the master hears of it before it takes us for lost."""
        return self._silence_ms // 2

    def _greet_again(self) -> list[PeerOutput]:
        self._welcomed = False
        return [self._hello()]

    def _hello(self) -> Tell:
        return Tell(Hello(PROTOCOL_VERSION, self._secret, self.group, self.epoch))

    def _master_fault(self, text: str, now: int) -> list[PeerOutput]:
        text = f"the master broke the protocol: {text}"
        return [Tell(Leave(clip(text))), *self._halt(Status.PROTOCOL, text, now)]

    def _halt(self, status: Status, text: str, now: int) -> list[PeerOutput]:
        """Nothing more comes from this peer: the engine ends its operations, open calls fail."""
        if self._phase is Phase.HALTED:
            return []
        vote = self._call.vote
        self._phase = Phase.HALTED
        self._halted = Halt(status, text)
        out: list[PeerOutput] = [self._halted]
        if vote is not None and vote.kind == VoteKind.SYNC_SHARED_STATE:
            out += self._sync.ended(int(status), now)
        return out + self._call.end(status, text)


def _end_of_call(message: VoteResult) -> Resolve | Reject:
    if message.status == Status.OK:
        return Resolve(message.call, message.flag, message.body, message.epoch)
    try:
        return Reject(message.call, Status(message.status), message.text)
    except ValueError:
        return Reject(message.call, Status.PROTOCOL, f"status {message.status}: {message.text}")
