# SPDX-License-Identifier: MIT
"""What the simulated user does: an endless training loop with joint calls, collectives and retries.

    connect; loop: sync_shared_state, a few operations (each one, or the whole step, repeated until it succeeds),
    are_peers_pending, and update_topology where somebody is

In some steps members send to each other around their ranks, and receive by rank or from whoever sends. What one has got
tells the others nothing, so such a step ends with an operation of all in the same epoch, and is repeated as a whole by
everyone otherwise.

What for: it uses the guarantees as a user would (G4, G8), and its state depends on the outcome of every operation, so
that any disagreement shows in the next synchronisation. Must not know: messages, epochs to come, other peers.

The one idea: the operations of a step follow from the state itself, so members with equal states run equal programs.
The user looks at the results in the order of its calls, some time after they are there. When one failed, it calls that
again, and nothing new before it has looked at all others that were under way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from pccl import messages, scope
from pccl.errors import Status
from pccl.messages import MeasuredLink, MeasuredLinks, StateAgreed, StateOffer
from pccl.protocol.state_election import SharedStateSyncStrategy
from pccl.protocol.types import VoteKind
from tests.sim.content import FRESH, Content
from tests.sim.dataplane import Group
from tests.sim.operation import Key, Operation, PeerId

TAGS = 2
WINDOW = 3
RETRIABLE = (Status.PEER_LOST, Status.TIMEOUT)

Outcome = tuple[Status | None, int, tuple[PeerId, ...]]


class Host(Protocol):
    """What a program may do."""

    def vote(self, kind: VoteKind, call: int, body: bytes) -> None: ...
    def start(self, operation: Operation) -> None: ...
    def pending(self) -> int: ...
    def present(self) -> Group: ...
    def seen(self, tag: int, epoch: int) -> None: ...
    def later(self, delay: float, action: Callable[..., None], *arguments: Any) -> None: ...
    def draw(self) -> float: ...
    def mistaken(self) -> None: ...
    def finished(self, key: Key, epoch: int, members: tuple[PeerId, ...], step: list[Outcome]) -> None: ...
    def aborted(self, status: Status, epoch: int) -> None: ...
    def sent(self, epoch: int, tag: int, message: Key) -> None: ...
    def received(self, epoch: int, bound: int, tag: int, place: int, message: Key) -> None: ...
    def agreed(self, agreed: StateAgreed, content: Content) -> None: ...


@dataclass(frozen=True, slots=True)
class Habits:
    """What a program is like. `mistake` is the chance of a wrong joint call per step, and of a wrong collective, which
    is right when it is called again; `drift` that the state changes behind its back; `pause_ms` the mean time to think.
    With `optimize` some steps end with optimize_topology, which only a run of one group can agree on. `shy` ones begin
    with RECEIVE_ONLY."""

    mistake: float
    drift: float
    pause_ms: float
    optimize: bool
    shy: bool


@dataclass(slots=True)
class Call:
    """One call of the operation `index` of the step, oldest first in the program's list; `index` of the step's count
    is its commit."""

    index: int
    tag: int
    outcome: Outcome | None = None


class Program:
    """The loop of one peer. `steps`, `syncs` and `votes` count what went well."""

    def __init__(self, host: Host, habits: Habits) -> None:
        self.host, self.habits = host, habits
        self.content = FRESH
        self.fetched: tuple[int, Content] | None = None
        self.steps = self.syncs = self.votes = 0
        self.doing = "connect"
        self.call = 0
        shy = habits.shy
        self._strategy = SharedStateSyncStrategy.RECEIVE_ONLY if shy else SharedStateSyncStrategy.ENFORCE_POPULAR
        self._kind = VoteKind.SYNC_SHARED_STATE
        self._outcomes: dict[int, Outcome] = {}
        self._calls: deque[Call] = deque()
        self._count = self._next = self._unseen = 0
        self._deferred = False
        self._exchanges = self._called = 0
        self._from_any = self._in_teams = False
        self._group = Group(0, (), 0, False)
        self._looking = False
        self._repeat = self._realign = self._alone = False

    def behave(self) -> None:
        """No mistakes and no drift any more."""
        self.habits = Habits(0.0, 0.0, self.habits.pause_ms, self.habits.optimize, False)

    # ------------------------------------------------------------------------------------------ joint calls

    def accepted(self) -> None:
        self.sync()

    def sync(self) -> None:
        self._realign = False
        if self.content != FRESH and self.host.draw() < self.habits.drift:
            self.content = self.content.drifted(int(self.host.draw() * 3))
        self._vote(
            VoteKind.SYNC_SHARED_STATE, StateOffer(self.content.step, int(self._strategy), self.content.entries())
        )

    def _optimize(self) -> None:
        """What it saw of its links is drawn: no two members see the same."""
        group = self.host.present()
        others = [it for rank, it in enumerate(group.members) if rank != group.rank and self.host.draw() < 0.7]
        self._vote(VoteKind.OPTIMIZE_TOPOLOGY, MeasuredLinks(tuple(map(self._saw, others))))

    def _saw(self, other: PeerId) -> MeasuredLink:
        bytes_per_s = int(10 ** (4 + 6 * self.host.draw())) if self.host.draw() < 0.5 else 0
        return MeasuredLink(other, int(10 ** (3 + 6 * self.host.draw())), bytes_per_s)

    def _vote(self, kind: VoteKind, body: StateOffer | MeasuredLinks | None = None) -> None:
        self.call += 1
        self._kind = kind
        self.doing = kind.name
        self.fetched = None
        self.host.vote(kind, self.call, messages.encode(body) if body is not None else b"")

    def resolved(self, flag: bool, body: bytes) -> None:
        if self._kind is not VoteKind.SYNC_SHARED_STATE:
            self.votes += 1
        if self._kind is VoteKind.SYNC_SHARED_STATE and body:
            agreed = messages.decode(body)
            assert isinstance(agreed, StateAgreed)
            self._agreed(agreed)
        elif self._kind is VoteKind.ARE_PEERS_PENDING and flag:
            self.host.later(self._pause(), self._vote, VoteKind.UPDATE_TOPOLOGY)
        elif self._kind is VoteKind.OPTIMIZE_TOPOLOGY:
            self.host.later(self._pause(), self._vote, VoteKind.ARE_PEERS_PENDING)
        else:
            self.host.later(self._pause(), self.sync)

    def rejected(self, status: Status, text: str) -> None:
        if self._strategy is SharedStateSyncStrategy.RECEIVE_ONLY:
            self._strategy = SharedStateSyncStrategy.ENFORCE_POPULAR
        if self.content == FRESH and "SEND_ONLY would make that the group's state" in text:
            self._strategy = SharedStateSyncStrategy.SEND_ONLY
        self.host.later(self._pause(), self.again if status is Status.TIMEOUT else self.sync)

    def again(self) -> None:
        """After a joint call was given up: the same one, or back to where all programs begin."""
        if self._kind is VoteKind.SYNC_SHARED_STATE or self.host.draw() < 0.5:
            self.sync()
        else:
            self._vote(self._kind)

    def _agreed(self, agreed: StateAgreed) -> None:
        self._strategy = SharedStateSyncStrategy.ENFORCE_POPULAR
        self.syncs += 1
        # What was fetched for a synchronisation that a restarted master forgot is no part of this one.
        if self.fetched is not None and self.fetched[0] == agreed.sync:
            self.content = self.fetched[1]
        self._outcomes.clear()
        self.content = self.content.agreed(agreed.sync)
        self.host.agreed(agreed, self.content)
        self.host.later(self._pause(), self._begin_step)

    # ------------------------------------------------------------------------------------------ operations

    def _begin_step(self) -> None:
        if self.host.draw() < self.habits.mistake:
            self.host.mistaken()
            self._vote(VoteKind(1 + int(self.host.draw() * 3)))
            return
        self.doing = "operations"
        digest = self.content.digest
        self._count = 1 + digest[0] % 4
        self._deferred = digest[9] % 3 == 0
        self._exchanges = digest[10] % 4 if digest[11] % 3 == 0 else 0
        self._in_teams = self._exchanges > 0 and digest[13] % 2 == 0
        self._from_any = self._exchanges > 0 and not self._in_teams and digest[12] % 2 == 0
        self._next = 0
        self._go_on()

    def _go_on(self) -> None:
        """Keeps the window full, in program order; when all is looked at, the step is over, or begins again."""
        if not self._calls and self._realign:
            self._leave_step()
        elif not self._calls and self._repeat:
            self._repeat = False
            self._outcomes.clear()
            self._next = 0
        elif len(self._outcomes) == self._total:
            self._end_step()
        if self.doing == "operations" and not self._repeat and not self._realign:
            if self._next == 0 and not self._calls and self._exchanges:
                self._meet()
            # Who receives from anybody may get first what was sent last, so all must be sent.
            window = self._total if self._from_any else WINDOW
            while self._next < self._total and len(self._calls) < window and not self._unseen:
                if self._exchanges and self._next == self._count and not self._deferred and self._calls:
                    break  # it would say that what is under way has succeeded
                self._next += 1
                self._call_operation(self._next - 1)

    def _meet(self) -> None:
        """The step begins, or begins again, with whoever is there now: a send and a receive each time, or what some of
        them do among themselves."""
        self._group = self.host.present()
        alone = len(self._group.members) == 1 or not self._group.full
        self._count = 0 if alone else 2 * self._exchanges

    @property
    def _total(self) -> int:
        return self._count + (self._deferred or self._exchanges > 0)

    def _call_exchange(self, index: int) -> None:
        """Sends to one a few ranks on, or receives from one as many ranks before, of the members that the step began
        with. It may be from anybody: then what others send fits as well. Of two members there is but one to send, so
        each second receive may name it."""
        group, size = self._group, len(self._group.members)
        distance = 1 + index // 2 % (size - 1)
        source, target = group.rank, (group.rank + distance) % size
        if index % 2:
            source, target = (group.rank - distance) % size, group.rank
        call = Call(index, self.content.digest[5 + index // 2] % TAGS)
        self._calls.append(call)
        self._called += 1
        place, receives = self._called, index % 2 == 1
        from_any = receives and self._from_any and (size > 2 or index % 4 == 1)

        def done(key: Key, status: Status | None, epoch: int, members: tuple[PeerId, ...]) -> None:
            call.outcome = (status, epoch, members)
            if receives and status is None:
                self.host.received(epoch, group.epoch, call.tag, place, key)
            self._plan_look()

        key = () if from_any else (*self._key(index // 2), group.members[source], group.members[target])
        whose = 0 if from_any else scope.of_pair(source, target)
        if not receives:
            self.host.sent(group.epoch, call.tag, key)
        self.host.start(
            Operation(key, call.tag, 0, done, self._deferred, scope=whose, from_any=from_any, bound=group.epoch)
        )

    def _call_in_team(self, index: int) -> None:
        """By those of the members that the step began with whom the digest names, the last one first."""
        group, digest = self._group, self.content.digest
        size = len(group.members)
        team = tuple(rank for rank in reversed(range(size)) if digest[1 + index] >> rank % 7 & 1)
        if group.rank not in team:
            self._outcomes[index] = (None, group.epoch, group.members)
            return
        call = Call(index, digest[5 + index // 2] % TAGS)
        self._calls.append(call)

        def done(key: Key, status: Status | None, epoch: int, members: tuple[PeerId, ...]) -> None:
            call.outcome = (status, epoch, members)
            self._plan_look()

        key, kind = self._key(index), digest[9 + index] % 3
        whose = scope.OF_RANKS | hash(team) & (scope.OF_RANKS - 1)
        self.host.start(Operation(key, call.tag, kind, done, self._deferred, scope=whose, team=team, bound=group.epoch))

    def _call_operation(self, index: int) -> None:
        if self._exchanges and index < self._count:
            (self._call_in_team if self._in_teams else self._call_exchange)(index)
            return
        digest = self.content.digest
        commits = index == self._count
        call = Call(index, 0 if commits else digest[5 + index] % TAGS)
        kind = digest[1 + index] % 4
        self._calls.append(call)

        def done(key: Key, status: Status | None, epoch: int, members: tuple[PeerId, ...]) -> None:
            call.outcome = (status, epoch, members)
            self._plan_look()

        deferred = self._deferred and not commits
        kind = 0 if kind < 2 or commits else kind
        bound = self._group.epoch if self._exchanges else 0
        if (
            self.habits.mistake
            and not self._deferred
            and not self._exchanges
            and self.host.draw() < self.habits.mistake
        ):
            self.host.mistaken()
            kind += 1
        settles = commits and self._deferred
        self.host.start(
            Operation(self._key(index), call.tag, kind, done, deferred=deferred, commit=settles, bound=bound)
        )

    def _key(self, index: int) -> Key:
        """The same on all members: a step begins anew after each synchronisation."""
        return ((self.content.lineage, self.content.digest), index)

    def _plan_look(self) -> None:
        if not self._looking and self._calls and self._calls[0].outcome is not None:
            self._looking = True
            self.host.later(self._pause() / 20, self._look)

    def _look(self) -> None:
        """At the result of the oldest call."""
        self._looking = False
        call = self._calls.popleft()
        self._unseen = max(0, self._unseen - 1)
        assert call.outcome is not None
        status, epoch, members = call.outcome
        if status is None:
            self._outcomes[call.index] = call.outcome
            commits = call.index == self._count
            if commits or not (self._deferred or self._exchanges):
                step = list(self._outcomes.values()) if commits else []
                self.host.finished(self._key(call.index), epoch, members, step)
        else:
            self.host.seen(call.tag, epoch)
            self._unseen = len(self._calls)
            self.host.aborted(status, epoch)
            self._alone = status is Status.TOO_FEW_PEERS
            only_here = status is Status.TIMEOUT and epoch == self.host.present().epoch
            if status not in RETRIABLE or only_here:
                self._realign = True
            elif self._deferred or self._exchanges:
                self._repeat = True
            elif not self._realign:
                self._call_operation(call.index)
        self._go_on()
        self._plan_look()

    def _leave_step(self) -> None:
        """Something else than a loss: all programs meet again in the next synchronisation. What is left of a step of
        deferred operations must be settled first."""
        if self.host.pending():
            self._group = self.host.present()
            self._call_operation(self._count)
            return
        self.doing = "think"
        self._repeat = False
        self._outcomes.clear()
        if self._alone:
            self.host.later(self._pause(), self._vote, VoteKind.ARE_PEERS_PENDING)
        else:
            self.host.later(self._pause(), self.sync)

    def _end_step(self) -> None:
        self.doing = "think"
        outcomes = sorted(self._outcomes.items())
        self.content = self.content.grown([outcomes[-1][1]] if self._exchanges else outcomes)
        self._outcomes.clear()
        self.steps += 1
        optimize = self.habits.optimize and self.content.digest[0] % 8 == 0
        if self.host.draw() < self.habits.mistake / 2:
            self.host.mistaken()
            self.host.later(self._pause(), self.sync)
        elif optimize:
            self.host.later(self._pause(), self._optimize)
        else:
            self.host.later(self._pause(), self._vote, VoteKind.ARE_PEERS_PENDING)

    def _pause(self) -> float:
        return self.habits.pause_ms * self.host.draw() * 2
