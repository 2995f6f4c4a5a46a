# SPDX-License-Identifier: MIT
"""Words that the cores and their shells share: identifiers, vote kinds, outputs, and the seam to the shared state.

What for: the shells (pccl/master.py, pccl/communicator.py) and the simulator perform these outputs; they decide
nothing. Must not know: how the cores come to them.

The one idea: a core is a function from events to lists of outputs. Outputs are performed in order, each one completely
before the next: an `Append` is on disk (fsync) before any later `Send` of the same list leaves the process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Protocol, TypeAlias

from pccl.errors import Status
from pccl.messages import NO_PRICES, Census, Member, Message, OperationName, Prices, ReportLine, View

PeerId: TypeAlias = bytes
"""16 random bytes, fresh per process start, also the zmq routing id."""

NOBODY: PeerId = b""
NO_CENSUS = Census(0, 0, 0)


class VoteKind(IntEnum):
    """The joint calls. SYNC spans the group, the others all accepted peers of the run."""

    UPDATE_TOPOLOGY = 1
    ARE_PEERS_PENDING = 2
    OPTIMIZE_TOPOLOGY = 3
    SYNC_SHARED_STATE = 4


CALL_NAMES: dict[VoteKind, str] = {
    VoteKind.UPDATE_TOPOLOGY: "update_topology",
    VoteKind.ARE_PEERS_PENDING: "are_peers_pending",
    VoteKind.OPTIMIZE_TOPOLOGY: "optimize_topology",
    VoteKind.SYNC_SHARED_STATE: "sync_shared_state",
}


@dataclass(frozen=True, slots=True)
class Limits:
    """The master's patience, in milliseconds.

    `heartbeat_ms`: how often peers say that they live; also how long a newcomer may take to answer before admission.
    `heartbeat_limit_ms`: a silent peer is lost. `probe_ms`: a suspect is probed again. `report_limit_ms`: a member that
    has not reported its frozen operations has to go. `link_failures` (a count) in a row, each within `link_window_ms`
    of the one before: a link is given up, and with it whoever has no other way to the rest; one that can be dialled,
    not before no operation got done for `link_patience_ms`. `link_retry_ms`: how long an avoided link is left alone
    before it is dialled for a trial; it doubles.
    """

    heartbeat_ms: int = 1_000
    heartbeat_limit_ms: int = 5_000
    probe_ms: int = 20
    report_limit_ms: int = 10_000
    link_failures: int = 3
    link_window_ms: int = 60_000
    link_patience_ms: int = 60_000
    link_retry_ms: int = 30_000

    def __post_init__(self) -> None:
        if not 0 < self.heartbeat_ms < self.heartbeat_limit_ms:
            raise ValueError("heartbeat_ms must be positive and smaller than heartbeat_limit_ms")
        if min(self.probe_ms, self.link_failures, self.link_patience_ms, self.link_retry_ms) < 1:
            raise ValueError("probe_ms, link_failures, link_patience_ms and link_retry_ms must be positive")
        if self.report_limit_ms < self.heartbeat_limit_ms:
            raise ValueError("report_limit_ms must be at least heartbeat_limit_ms")


class Event(str, Enum):
    """What a Notify is about: for logs, callbacks and golden traces."""

    REGISTERED = "registered"
    ACCEPTED = "accepted"
    RETURNED = "returned"
    LEFT = "left"
    LOST = "lost"
    EXPELLED = "expelled"
    REFUSED = "refused"
    SUSPECTED = "suspected"
    LINK = "link"
    FROZEN = "frozen"
    VIEW = "view"
    VOTE = "vote"
    MASTER = "master"


@dataclass(frozen=True, slots=True)
class Notify:
    """Something worth a log line. Performing it may be skipped."""

    event: Event
    text: str
    peer: PeerId = NOBODY
    epoch: int = 0


# ---------------------------------------------------------------------------------------------- journal records


@dataclass(frozen=True, slots=True)
class Answer:
    """How a vote ends for one peer. The master journals it before it tells. `epoch` of its group and `census` are those
    of that moment."""

    peer: PeerId
    call: int
    status: int = Status.OK
    text: str = ""
    flag: bool = False
    body: bytes = b""
    epoch: int = 0
    census: Census = NO_CENSUS


@dataclass(frozen=True, slots=True)
class Admission:
    """A peer that a record makes a member: what the master must know of it after a restart."""

    id: PeerId
    secret: bytes
    group: int
    member: Member


@dataclass(frozen=True, slots=True)
class Settings:
    """The first record: the run's secret."""

    run_secret: bytes


@dataclass(frozen=True, slots=True)
class GroupView:
    """One group's new epoch. `members` empty: the group has ended. `shape` and `parents` as in topology.Arrangement;
    `avoided` are the pairs of ranks whose links are not to be used, `prices` what the others cost. `census` counts the
    run when the epoch was made."""

    epoch: int
    previous: int
    group: int
    members: tuple[PeerId, ...]
    ring: tuple[int, ...]
    admitted: tuple[int, ...]
    commits: tuple[OperationName, ...]
    cause: int
    text: str
    shape: int = 0
    parents: tuple[int, ...] = ()
    avoided: tuple[tuple[int, int], ...] = ()
    prices: Prices = NO_PRICES
    census: Census = NO_CENSUS


@dataclass(frozen=True, slots=True)
class Memory:
    """What the shared state of `group` remembers between synchronisations."""

    group: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Change:
    """One atomic step of the run: newcomers, new views (of one or several groups), answers of a vote, and what their
    groups remember of it. The journal holds all of it or nothing."""

    admissions: tuple[Admission, ...] = ()
    views: tuple[GroupView, ...] = ()
    answers: tuple[Answer, ...] = ()
    memories: tuple[Memory, ...] = ()


Record = Settings | Change


@dataclass(slots=True)
class Past:
    """What a replayed journal says: the state from which a restarted master goes on."""

    run_secret: bytes = b""
    epoch: int = 0
    admissions: dict[PeerId, Admission] = field(default_factory=dict)
    views: dict[int, GroupView] = field(default_factory=dict)
    answers: dict[PeerId, Answer] = field(default_factory=dict)
    memories: dict[int, bytes] = field(default_factory=dict)


# ---------------------------------------------------------------------------------------------- master's outputs


@dataclass(frozen=True, slots=True)
class Send:
    """Send `message` to `peer`. If the router cannot reach it, call `disconnected(peer, now)` after the list is done.
    The same message object is often sent to many peers in a row: encode it once."""

    peer: PeerId
    message: Message


@dataclass(frozen=True, slots=True)
class Append:
    """Append `record` (pccl.protocol.journal) to the journal and fsync before the next output. If that fails, the
    master must stop (crash): what it would say next is not safe to say."""

    record: Record


@dataclass(frozen=True, slots=True)
class Drop:
    """Forget what the transport holds for `peer`. Later messages of it still reach `received`."""

    peer: PeerId


MasterOutput = Send | Append | Drop | Notify


# ---------------------------------------------------------------------------------------------- peer's outputs


@dataclass(frozen=True, slots=True)
class Tell:
    """Send `message` to the master. Without a connection it may be lost: what matters is repeated after Welcome."""

    message: Message


@dataclass(frozen=True, slots=True)
class OpenDataPlane:
    """First Welcome: create the engine with `run_secret`, then call `opened(address, port, host_id, cores, now)`."""

    run_secret: bytes


@dataclass(frozen=True, slots=True)
class Install:
    """pccl_engine_install. `view.members`, `view.ring`, `view.shape`, `view.parents`, `view.cause`, `view.text`, and
    `rank` and `commits` from here (a member that is new in this view gets no commits). If it fails, call
    `install_failed`."""

    view: View
    rank: int
    commits: tuple[OperationName, ...]


@dataclass(frozen=True, slots=True)
class Freeze:
    """pccl_engine_freeze(epoch). PCCL_EVENT_FROZEN follows; the shell then calls `engine_frozen` with the report."""

    epoch: int


@dataclass(frozen=True, slots=True)
class DialPeer:
    """pccl_engine_dial(epoch, peer). Once the link stands, PCCL_EVENT_LINKED follows: call `engine_linked`."""

    epoch: int
    peer: PeerId


@dataclass(frozen=True, slots=True)
class Halt:
    """pccl_engine_halt(status, text). The core is finished: no further output but Reject comes from it."""

    status: Status
    text: str


@dataclass(frozen=True, slots=True)
class Ask:
    """pccl_engine_has_started(epoch, operation): call `started_answer(epoch, operation, answer)`, answer 1, 0 or -1."""

    epoch: int
    operation: OperationName


@dataclass(frozen=True, slots=True)
class Resolve:
    """Call `call` ended well. `flag`: are_peers_pending's answer, else whether the topology changed. `body`:
    sync_shared_state's answer. `epoch`: what the answer is true for. For connect (call 0): accepted, its view is
    installed."""

    call: int
    flag: bool = False
    body: bytes = b""
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Reject:
    """Call `call` failed: raise `pccl.errors.error_for(status, text)` in it."""

    call: int
    status: Status
    text: str


@dataclass(frozen=True, slots=True)
class Reconnect:
    """Nothing came from the master for the heartbeat limit: close the control connection and dial it afresh, then call
    `reconnected` once it stands."""


@dataclass(frozen=True, slots=True)
class StateOutput:
    """Base of the outputs that the shared state's peer half gives to the shell (its module subclasses it)."""


CONNECT_CALL = 0

PeerOutput = (
    Tell
    | OpenDataPlane
    | Install
    | Freeze
    | DialPeer
    | Halt
    | Ask
    | Resolve
    | Reject
    | Reconnect
    | Notify
    | StateOutput
)


# ---------------------------------------------------------------------------------------------- shared state seam


@dataclass(frozen=True, slots=True)
class Ballot:
    """One open vote of one peer, as the shared state gets it. `rank` is the voter's rank at completion; `unreachable`
    are peers to which it has no link that stands."""

    peer: PeerId
    rank: int
    call: int
    body: bytes
    unreachable: tuple[PeerId, ...] = ()


@dataclass(frozen=True, slots=True)
class SyncStep:
    """What a GroupSync wants: messages to members, then, at the end, exactly once, an answer for every survivor and the
    group's new `memory` (None keeps the old one). Answers of peers that are gone meanwhile are dropped."""

    sends: Sequence[Send] = ()
    answers: Sequence[Answer] | None = None
    memory: bytes | None = None


class GroupSync(Protocol):
    """One sync_shared_state of one group on the master, from the moment its vote is complete until the answers.

    The master creates it with a SyncFactory, calls `begin` once, then `received` for each message of a class in
    `pccl.messages.STATE_MESSAGES` from a member, `member_lost` when one is gone (votes stay with the others), `links`
    when others are `unreachable` than the ballots said, `abandoned` when a member lives but does no more of it, and
    `rejoined` when a member's control connection was renewed: repeat to it what it may have missed.
    A master that restarts knows nothing of a running sync: peers repeat their votes and a new GroupSync starts.
    """

    def begin(self, now: int) -> SyncStep: ...
    def received(self, peer: PeerId, message: Message, now: int) -> SyncStep: ...
    def member_lost(self, peer: PeerId, now: int) -> SyncStep: ...
    def links(self, unreachable: Mapping[PeerId, Sequence[PeerId]], now: int) -> SyncStep: ...
    def abandoned(self, peer: PeerId, now: int) -> SyncStep: ...
    def rejoined(self, peer: PeerId, now: int) -> SyncStep: ...
    def explain(self) -> str: ...


SyncFactory: TypeAlias = Callable[[int, int, Sequence[Ballot], bytes], GroupSync]
"""(sync_id, group, ballots in rank order, memory). `sync_id` is random, unique in the run: the data plane's
pccl_state_serve uses it. `memory` is the last SyncStep.memory of this group (b"": never), kept in the journal and also
after all members of the group are lost."""


class PeerSync(Protocol):
    """The peer's half. PeerProtocol calls `voted` when it sends a SYNC vote, `received` for messages of
    STATE_MESSAGES, `event` for what the shell reports with `PeerProtocol.state_event`, `reregistered` after a renewed
    control connection, and `ended` when the vote has its answer or the peer halts (stop serving, drop what was
    fetched). `view` comes after each installed view."""

    def voted(self, call: int, body: bytes, now: int) -> list[PeerOutput]: ...
    def received(self, message: Message, now: int) -> list[PeerOutput]: ...
    def event(self, event: object, now: int) -> list[PeerOutput]: ...
    def view(self, view: View, now: int) -> list[PeerOutput]: ...
    def reregistered(self, now: int) -> list[PeerOutput]: ...
    def ended(self, status: int, now: int) -> list[PeerOutput]: ...


__all__ = [
    "CALL_NAMES",
    "CONNECT_CALL",
    "NOBODY",
    "NO_CENSUS",
    "Admission",
    "Answer",
    "Append",
    "Ask",
    "Ballot",
    "Census",
    "Change",
    "DialPeer",
    "Drop",
    "Event",
    "Freeze",
    "GroupSync",
    "GroupView",
    "Halt",
    "Install",
    "Limits",
    "MasterOutput",
    "Member",
    "Memory",
    "Notify",
    "OpenDataPlane",
    "OperationName",
    "Past",
    "PeerId",
    "PeerOutput",
    "PeerSync",
    "Reconnect",
    "Record",
    "Reject",
    "ReportLine",
    "Resolve",
    "Send",
    "Settings",
    "StateOutput",
    "SyncFactory",
    "SyncStep",
    "Tell",
    "VoteKind",
]
