# SPDX-License-Identifier: MIT
"""What the master knows of each peer and group beyond the journal: phases, connections, freezes in progress.

What for: plain data with its small invariants, so that master.py is about events only. Must not know: messages'
effects, votes, the order of outputs.

The one idea: the journal's `Past` says who is a member; the roster says how it is with each of them right now. All of
the roster can be lost in a crash without harm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from pccl.errors import Status
from pccl.messages import (
    NO_PLACE,
    STATE_MESSAGES,
    Census,
    Heartbeat,
    Hello,
    Leave,
    Linked,
    Member,
    Message,
    OperationName,
    ProbeReply,
    Register,
    Report,
    Stalled,
    Started,
    Suspect,
    Vote,
    Withdraw,
)
from pccl.protocol import journal
from pccl.protocol.types import (
    Answer,
    Append,
    Drop,
    Event,
    GroupSync,
    GroupView,
    MasterOutput,
    Notify,
    Past,
    PeerId,
    Record,
    Send,
    VoteKind,
)

MAX_STALLS = 8


class Phase(Enum):
    UNKNOWN = "unknown"
    GREETED = "greeted"
    PENDING = "pending"
    ACCEPTED = "accepted"


_BEFORE_ACCEPTANCE = (Hello, Register, Heartbeat, ProbeReply, Withdraw, Leave)

LEGAL: dict[Phase, tuple[type, ...]] = {
    Phase.UNKNOWN: (Hello,),
    Phase.GREETED: _BEFORE_ACCEPTANCE,
    Phase.PENDING: _BEFORE_ACCEPTANCE,
    Phase.ACCEPTED: (*_BEFORE_ACCEPTANCE, Vote, Suspect, Report, Linked, Stalled, Started, *STATE_MESSAGES),
}
"""Legal (phase, message) pairs. Any other is the peer's protocol error, and it is dropped."""


@dataclass(slots=True)
class Peer:
    """One peer as the master sees it. `known` is False until its Hello came over the present connection; `returning`:
    the master restarted and has not seen it since; `usurped`: another process came under its id since. `heard` is when
    it last spoke (ms). `place` is what it asked for among those admitted with it. `withdrew` says which joint call it
    gave up and when, until it makes the next one."""

    id: PeerId
    secret: bytes
    group: int
    phase: Phase
    heard: int
    known: bool = True
    returning: bool = False
    usurped: bool = False
    member: Member | None = None
    place: int = NO_PLACE
    answered: Answer | None = None
    withdrew: tuple[VoteKind, int] | None = None

    @property
    def name(self) -> str:
        return f"peer {self.id.hex()[:8]}"


@dataclass(slots=True)
class Gathering:
    """A frozen epoch whose survivors' reports are being collected. `cause` is the first known reason from outside the
    reports, `lost` says who went, `links` which links between living members broke, `alive` who was suspected of
    holding up an operation and answered."""

    since: int
    reports: dict[PeerId, Report] = field(default_factory=dict)
    cause: tuple[Status, str] | None = None
    lost: list[str] = field(default_factory=list)
    links: dict[tuple[int, int], str] = field(default_factory=dict)
    alive: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Group:
    """One group in its current epoch. `members` are the survivors in rank order: losses leave it at once, the view only
    with the next epoch. `sync_knows_links`: a running synchronisation keeps to the links of this epoch."""

    view: GroupView
    members: list[PeerId]
    gathering: Gathering | None = None
    sync: GroupSync | None = None
    sync_knows_links: bool = False
    stalls: dict[OperationName, dict[PeerId, Stalled]] = field(default_factory=dict)
    _ranks: dict[PeerId, int] = field(init=False)

    def __post_init__(self) -> None:
        self._ranks = {peer: rank for rank, peer in enumerate(self.view.members)}

    @property
    def epoch(self) -> int:
        return self.view.epoch

    def rank(self, peer: PeerId) -> int:
        """The rank in the current view, also of a member that was lost since."""
        return self._ranks[peer]

    def stall(self, peer: PeerId, stalled: Stalled) -> bool:
        """Remembers who waits in the newest few stalled operations. True unless only another peer's wait in the same
        operation is news."""
        waiting = self.stalls.get(stalled.operation)
        if waiting is None:
            waiting = self.stalls[stalled.operation] = {}
            if len(self.stalls) > MAX_STALLS:
                del self.stalls[next(iter(self.stalls))]
        again = not waiting or peer in waiting
        waiting[peer] = stalled
        return again

    def forget_stall(self, peer: PeerId, operation: OperationName) -> None:
        """The operation goes on there."""
        waiting = self.stalls.get(operation, {})
        if waiting.pop(peer, None) is not None and not waiting:
            del self.stalls[operation]

    def forget_stalls(self, peer: PeerId) -> None:
        """The peer waits in no operation any more."""
        for operation, waiting in list(self.stalls.items()):
            waiting.pop(peer, None)
            if not waiting:
                del self.stalls[operation]


def cause_of(group: Group) -> tuple[Status, str]:
    """Why the epoch of a gathered group ends, for the errors of its aborted operations. Losses first, since a retry
    helps; then what the master found out; then what the reports say."""
    gathering = group.gathering
    assert gathering is not None
    if gathering.lost:
        return Status.PEER_LOST, "; ".join(gathering.lost)
    if gathering.cause is not None and gathering.cause[0] is not Status.PEER_LOST:
        return gathering.cause
    for status in (Status.TIMEOUT, Status.MISMATCH):
        texts = [
            f"rank {group.rank(peer)}: {report.text}"
            for peer, report in gathering.reports.items()
            if report.reason == status
        ]
        if texts:
            return status, "; ".join([texts[0], *dict.fromkeys(gathering.alive)])
    if gathering.links:
        return Status.PEER_LOST, "; ".join(gathering.links.values())
    if gathering.cause is not None:
        return gathering.cause
    told = [(peer, it) for peer, it in gathering.reports.items() if it.reason not in (Status.OK, Status.ABORTED)]
    if told:
        return Status.PEER_LOST, f"rank {group.rank(told[0][0])}: {told[0][1].text}"
    return Status.PEER_LOST, "the epoch was frozen"


class Roster:
    """The state that the parts of the master share, and the list of outputs that grows while an event is worked on.
    `dirty`: something changed that may have consequences. `records` and `counts` of events are since the start."""

    def __init__(self, past: Past) -> None:
        self.past = past
        self.peers: dict[PeerId, Peer] = {}
        self.pending: dict[PeerId, Peer] = {}
        self.groups: dict[int, Group] = {}
        self.accepted = 0
        self.records = 0
        self.counts: dict[Event, int] = {}
        self.dirty = False
        self._out: list[MasterOutput] = []

    @property
    def census(self) -> Census:
        return self.census_with(())

    def census_with(self, views: Sequence[GroupView]) -> Census:
        """What it is once `views` are made."""
        sizes = {number: len(view.members) for number, view in self.past.views.items()}
        sizes.update({view.group: len(view.members) for view in views})
        counted = [size for size in sizes.values() if size]
        return Census(sum(counted), len(counted), max(counted, default=0))

    def commit(self, record: Record) -> None:
        """The only change of what outlives the master."""
        self._out.append(Append(record))
        self.records += 1
        journal.apply(self.past, record)

    def send(self, peer: PeerId, message: Message) -> None:
        self._out.append(Send(peer, message))

    def drop(self, peer: PeerId) -> None:
        self._out.append(Drop(peer))

    def notify(self, event: Event, text: str, peer: PeerId = b"", epoch: int = 0) -> None:
        self.counts[event] = self.counts.get(event, 0) + 1
        self._out.append(Notify(event, text, peer, epoch))

    def take(self) -> list[MasterOutput]:
        """The outputs so far; the list begins anew."""
        out, self._out = self._out, []
        return out
