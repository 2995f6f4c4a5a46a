# SPDX-License-Identifier: MIT
"""The joint calls: votes of the run and of groups, from the first voice to the answers.

What for: it completes votes, finds those that can never be completed, and resolves the complete ones. Must not know:
how peers come and go, how epochs are made.

The one idea: an answer is journalled for every voter before any of them hears it, and kept until the voter's next call.
So a vote that is said again, to this master or to a restarted one, gets the answer it got before. A withdrawal is no
more than another way to ask for that answer: it makes one, where the vote is not complete.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pccl import scope
from pccl.errors import ProtocolError, Status
from pccl.messages import (
    HasStarted,
    MeasuredLink,
    MeasuredLinks,
    Message,
    OperationName,
    Probe,
    Stalled,
    Started,
    StatusCall,
    Vote,
    VoteResult,
    Withdraw,
    clip,
    decode,
)
from pccl.protocol import absence
from pccl.protocol.epochs import Epochs, Figures
from pccl.protocol.founding import Founding
from pccl.protocol.roster import Group, Peer, Roster
from pccl.protocol.types import (
    CALL_NAMES,
    CONNECT_CALL,
    NOBODY,
    Answer,
    Ballot,
    Change,
    Event,
    Memory,
    PeerId,
    SyncFactory,
    SyncStep,
    VoteKind,
)
from pccl.protocol.votes import Open, VoteBox


@dataclass(slots=True)
class Resolution:
    """A complete vote of the run that changes something. First the newcomers must show that they live (`nonces` are the
    probes without an answer, `until` is when they must be here), then all `groups` are gathered, and only then any of
    them changes."""

    kind: VoteKind
    admitting: list[PeerId]
    nonces: dict[PeerId, int]
    until: int
    groups: list[int] | None = None


class JointCalls:
    """The part of the master that owns votes. `fault(peer, text, now)` removes a peer that breaks the protocol."""

    def __init__(
        self,
        roster: Roster,
        epochs: Epochs,
        founding: Founding,
        draw: Callable[[], int],
        sync: SyncFactory,
        fault: Callable[[PeerId, str, int], None],
        probe_limit_ms: int,
    ) -> None:
        self._roster, self._epochs, self._founding = roster, epochs, founding
        self._probe_limit_ms = probe_limit_ms
        self._draw, self._sync_factory, self._fault = draw, sync, fault
        self._votes = VoteBox()
        self._resolution: Resolution | None = None

    # ------------------------------------------------------------------------------------------ events

    def member_lost(self, entry: Peer, group: Group, now: int) -> None:
        """Nobody waits for its voice any more; a running synchronisation goes on without it."""
        self._votes.drop(entry.id, entry.group)
        if group.members and group.sync is not None:
            self._sync_step(group, group.sync.member_lost(entry.id, now))

    def rejoined(self, entry: Peer, group: Group, now: int) -> None:
        """A member renewed its connection."""
        if group.sync is not None:
            self._sync_step(group, group.sync.rejoined(entry.id, now))

    def links_changed(self, group: Group, now: int) -> None:
        """Other links are avoided than before: a running synchronisation does without them, too."""
        if group.sync is not None:
            group.sync_knows_links = True
            self._sync_step(group, group.sync.links(self._epochs.apart(group), now))

    def settle(self, now: int) -> None:
        """Completes what can be completed."""
        if not self._roster.accepted:
            self._resolution = None
        elif self._resolution is not None:
            self._advance(self._resolution, now)
        elif self._votes.run_count() == self._roster.accepted:
            self._resolve(now)
        for number in self._votes.voted_groups():
            group = self._roster.groups[number]
            if group.sync is None and self._votes.group_count(number) == len(group.members):
                if group.gathering is None:  # else the next view tells which links there are
                    self._begin_sync(number, group, now)
            elif not group.sync_knows_links:
                self.links_changed(group, now)

    def holds(self, number: int) -> bool:
        """Whether group `number` changes together with others, when a vote is resolved."""
        return self._resolution is not None and number in (self._resolution.groups or ())

    def entering(self, number: int) -> list[PeerId]:
        """Who becomes a member of group `number` with its next view."""
        resolution, pending = self._resolution, self._roster.pending
        if resolution is None or not self.holds(number):
            return []
        return [peer for peer in resolution.admitting if peer in pending and pending[peer].group == number]

    def probed(self, peer: PeerId, nonce: int) -> None:
        """`peer` answered a probe: if it is to be admitted, it lives."""
        if self._resolution is not None and self._resolution.nonces.get(peer) == nonce:
            del self._resolution.nonces[peer]
            self._roster.dirty = True

    def unreachable(self, peer: PeerId) -> None:
        """`peer` lost its connection: it cannot be admitted by this vote."""
        if self._resolution is not None and self._resolution.nonces.pop(peer, None) is not None:
            self._resolution.admitting.remove(peer)
            self._roster.dirty = True

    def deadline(self) -> int | None:
        """When newcomers that have not answered are left out."""
        return self._resolution.until if self._resolution is not None and self._resolution.nonces else None

    def explain(self) -> list[str]:
        lines: list[str] = []
        run = self._votes.run_votes()
        if run:
            missing = [it.name for it in absence.absent(self._roster, self._votes, run[0].kind, run[0].group)]
            lines.append(f"{CALL_NAMES[run[0].kind]}: waiting for {', '.join(missing) or 'the new views'}")
        if self._resolution is not None and self._resolution.nonces:
            names = [self._roster.peers[peer].name for peer in self._resolution.nonces]
            lines.append(f"newcomers that have not answered: {', '.join(names)}")
        for number, group in self._roster.groups.items():
            if group.sync is not None:
                lines.append(f"group {number}: {group.sync.explain()}")
            elif self._votes.group_count(number):
                away = absence.absent(self._roster, self._votes, VoteKind.SYNC_SHARED_STATE, number)
                ranks = [f"rank {group.rank(it.id)}" for it in away]
                lines.append(f"group {number}: sync_shared_state: waiting for {', '.join(ranks)}")
        return lines

    def calls(self, now: int) -> list[StatusCall]:
        """The joint calls under way: that of the run, then those of groups."""
        found: list[StatusCall] = []
        run = self._votes.run_votes()
        if run:
            waits = absence.describe(self._roster, self._votes, run[0].kind, run[0].group, now) or "the new views"
            found.append(_status_call(run, self._roster.accepted, False, waits, now))
        for number in self._votes.voted_groups():
            group, votes = self._roster.groups[number], self._votes.group_votes(number)
            if group.sync is not None:
                waits = group.sync.explain()
            else:
                waits = absence.describe(self._roster, self._votes, VoteKind.SYNC_SHARED_STATE, number, now)
            found.append(_status_call(votes, len(group.members), True, waits, now))
        return found

    def waits_in(self, entry: Peer, now: int) -> str:
        """The joint call that a member waits in, in words; empty for none."""
        vote = self._votes.of(entry.id, entry.group)
        return "" if vote is None else f"{CALL_NAMES[vote.kind]} since {now - vote.since} ms"

    # ------------------------------------------------------------------------------------------ messages

    def vote(self, entry: Peer, message: Vote, now: int) -> None:
        group = self._roster.groups[entry.group]
        if entry.answered is not None and message.call <= entry.answered.call:
            if message.call == entry.answered.call:
                self._roster.send(entry.id, _result(entry.answered))
            return
        standing = self._votes.of(entry.id, entry.group)
        if standing is not None:
            if standing.call != message.call:
                self._fault(entry.id, f"vote {message.call} while its vote {standing.call} is open", now)
            else:
                self._ask_voter(entry.id, group)
            return
        measured = self._measured(entry, message, now)
        if measured is None:
            return
        name = f"rank {group.rank(entry.id)} of group {entry.group}"
        vote = Open(entry.id, entry.group, message.call, VoteKind(message.kind), message.body, name, now, measured)
        clash = self._votes.cast(vote)
        entry.withdrew = None
        self._roster.dirty = True
        if clash:
            self._fail_votes(vote, clash)
            return
        if vote.kind is not VoteKind.ARE_PEERS_PENDING:
            group.forget_stalls(entry.id)
        self._ask_voter(entry.id, group)

    def _measured(self, entry: Peer, message: Vote, now: int) -> tuple[MeasuredLink, ...] | None:
        """What the voter's links showed so far. None: its body says nothing of the kind, and the voter is gone."""
        if message.kind != VoteKind.OPTIMIZE_TOPOLOGY or not message.body:
            return ()
        try:
            told = decode(message.body)
        except ProtocolError as error:
            told = error
        if isinstance(told, MeasuredLinks):
            return told.links
        self._fault(entry.id, f"optimize_topology with a body that says nothing of links: {told!r:.200}", now)
        return None

    def withdraw(self, entry: Peer, message: Withdraw, now: int) -> None:
        """A voter, or one that this master never heard voting, gives up. A complete vote gets its own answer soon; but
        a synchronisation that misses a caller cannot make all members alike any more, so it fails for all."""
        group = self._roster.groups[entry.group]
        if message.call == CONNECT_CALL:
            return  # admitted meanwhile: the view is its answer
        if entry.answered is not None and message.call <= entry.answered.call:
            if message.call == entry.answered.call:
                self._roster.send(entry.id, _result(entry.answered))
            return
        standing = self._votes.of(entry.id, entry.group)
        if standing is not None and standing.call != message.call:
            self._fault(entry.id, f"withdraws vote {message.call} while its vote {standing.call} is open", now)
        elif standing is not None and self._is_complete(standing, group):
            if group.sync is not None and message.abandoned:
                self._sync_step(group, group.sync.abandoned(entry.id, now))
        else:
            kind = VoteKind(message.kind)
            waited = f"waited {now - standing.since} ms for " if standing is not None else "waits for "
            awaited = absence.describe(self._roster, self._votes, kind, entry.group, now, asking=entry.id)
            text = clip(f"{CALL_NAMES[kind]}: {waited}{awaited or 'nobody else'}")
            entry.withdrew = (kind, now)
            self._answer([Answer(entry.id, message.call, Status.TIMEOUT, text)])

    def _is_complete(self, vote: Open, group: Group) -> bool:
        """Whether all voices are there, so that its answer is on its way."""
        return (group.sync if vote.kind is VoteKind.SYNC_SHARED_STATE else self._resolution) is not None

    def not_admitted(self, entry: Peer, now: int) -> str:
        """Whom a newcomer waits for, in words."""
        if missing := self._founding.missing(entry.group):
            return f"not admitted yet: {missing}"
        awaited = absence.describe(self._roster, self._votes, VoteKind.UPDATE_TOPOLOGY, entry.group, now)
        return f"not admitted yet: update_topology waits for {awaited or 'the new views'}"

    def _ask_voter(self, voter: PeerId, group: Group) -> None:
        """Members wait in operations: has the voter started them?"""
        for operation in group.stalls:
            if self._stuck_in(group, operation) and _needs(group, operation, voter):
                self._roster.send(voter, HasStarted(group.epoch, operation))

    def _stuck_in(self, group: Group, operation: OperationName) -> PeerId:
        """A member that waits in `operation` and has not voted meanwhile, empty if there is none."""
        waiting = group.stalls.get(operation, {})
        return next((peer for peer in waiting if self._votes.of(peer, group.view.group) is None), NOBODY)

    def stalled(self, entry: Peer, message: Stalled, now: int) -> None:
        group = self._roster.groups[entry.group]
        if message.epoch != group.epoch:
            return
        voting = self._votes.of(entry.id, entry.group)
        if voting is not None and voting.kind is not VoteKind.ARE_PEERS_PENDING:
            return
        # The first one to wait has the voters asked; the others of the same operation would only ask again.
        if group.stall(entry.id, message):
            question = HasStarted(group.epoch, message.operation)
            for voter in self._votes.voters(entry.group):
                if voter != entry.id and _needs(group, message.operation, voter):
                    self._roster.send(voter, question)

    def started(self, entry: Peer, message: Started, now: int) -> None:
        """A voter's answer. If it has not started what another member waits in, neither can ever go on."""
        group = self._roster.groups[entry.group]
        vote = self._votes.of(entry.id, entry.group)
        stuck = self._stuck_in(group, message.operation)
        if message.answer != 0 or message.epoch != group.epoch or vote is None or not stuck:
            return
        if not _needs(group, message.operation, entry.id):
            return
        operation = message.operation
        text = (
            f"rank {group.rank(entry.id)} called {CALL_NAMES[vote.kind]} while rank {group.rank(stuck)} waits in "
            f"operation ({operation}) that needs it"
        )
        # The freeze goes out first: what a voter calls next must not meet the operation that this ends.
        self._epochs.gather(group, now).cause = (Status.CALL_MISMATCH, text)
        self._fail_votes(vote, text)

    def state_message(self, entry: Peer, message: Message, now: int) -> None:
        group = self._roster.groups[entry.group]
        if group.sync is not None:
            self._sync_step(group, group.sync.received(entry.id, message, now))

    # ------------------------------------------------------------------------------------------ resolutions

    def _resolve(self, now: int) -> None:
        """Every accepted peer has called the same joint call of the run."""
        kind = self._votes.run_votes()[0].kind
        if kind is VoteKind.ARE_PEERS_PENDING:
            self._answer_run(bool(self._founding.admissible(self._roster.pending)))
            return
        admitting = self._founding.ready() if kind is VoteKind.UPDATE_TOPOLOGY else []
        # Who died in silence while it waited must not become a member that everybody waits for (G7).
        nonces = {peer: self._draw() | 1 for peer in admitting}
        self._resolution = Resolution(kind, admitting, nonces, now + self._probe_limit_ms)
        for peer, nonce in nonces.items():
            self._roster.send(peer, Probe(nonce))
        self._roster.dirty = True

    def _advance(self, resolution: Resolution, now: int) -> None:
        if resolution.nonces and now < resolution.until:
            return
        if resolution.groups is None:
            self._gather_for(resolution, now)
        elif all(self._epochs.gathered(it) for it in self._existing(resolution.groups)):
            self._complete(resolution, now)

    def _existing(self, numbers: Sequence[int]) -> list[Group]:
        return [self._roster.groups[number] for number in numbers if number in self._roster.groups]

    def _gather_for(self, resolution: Resolution, now: int) -> None:
        """The newcomers are known: stops the groups that change, if any does."""
        groups, pending = self._roster.groups, self._roster.pending
        here = [it for it in resolution.admitting if it in pending and it not in resolution.nonces]
        resolution.admitting = self._founding.admissible(here)
        resolution.nonces = {}
        if resolution.kind is VoteKind.OPTIMIZE_TOPOLOGY:
            figures = self._figures()
            changing = [it for it, group in groups.items() if self._epochs.would_change(group, figures, now)]
        else:
            wanted = {pending[peer].group: True for peer in resolution.admitting}
            changing = [it for it, group in groups.items() if it in wanted or self._epochs.has_healed(group)]
        if not changing and not resolution.admitting:
            self._resolution = None
            self._answer_run(False)
            return
        resolution.groups = changing
        for number in changing:
            gathering = self._epochs.gather(groups[number], now)
            gathering.cause = gathering.cause or (Status.PEER_LOST, f"{CALL_NAMES[resolution.kind]} made a new epoch")
        self._roster.dirty = True

    def _complete(self, resolution: Resolution, now: int) -> None:
        """Changes all groups of a vote at once: the last of them is gathered."""
        self._resolution = None
        numbers = [group.view.group for group in self._existing(resolution.groups or ())]
        admitting = self._founding.admissible(it for it in resolution.admitting if it in self._roster.pending)
        answers = [Answer(vote.peer, vote.call, flag=True) for vote in self._votes.run_votes()]
        self._tell_answers(self._epochs.change(numbers, admitting, answers, now, self._figures()))

    def _figures(self) -> Figures:
        """What the voters of the run measured. Those that were lost while they waited have no vote any more."""
        return {vote.peer: vote.measured for vote in self._votes.run_votes() if vote.measured}

    def _answer_run(self, flag: bool) -> None:
        self._answer([Answer(vote.peer, vote.call, flag=flag) for vote in self._votes.run_votes()])

    def _fail_votes(self, vote: Open, text: str) -> None:
        stuck = self._votes.stuck_with(vote)
        self._answer([Answer(it.peer, it.call, Status.CALL_MISMATCH, clip(text)) for it in stuck])

    # ------------------------------------------------------------------------------------------ answers

    def _answer(self, answers: Sequence[Answer], memories: tuple[Memory, ...] = ()) -> None:
        """Ends votes: first for good (journal), then for their callers. `memories` are what their groups remember of
        it: one record, since nobody may be measured by a revision that no caller was told of."""
        answers = self._epochs.dated([answer for answer in answers if answer.peer in self._roster.peers])
        if answers:
            self._roster.commit(Change(answers=tuple(answers), memories=memories))
            self._tell_answers(answers)

    def _tell_answers(self, answers: Sequence[Answer]) -> None:
        for answer in answers:
            entry = self._roster.peers[answer.peer]
            entry.answered = answer
            self._votes.drop(answer.peer, entry.group)
            self._roster.send(answer.peer, _result(answer))
        self._roster.dirty = True
        failed = [answer.text for answer in answers if answer.status != Status.OK]
        self._roster.notify(Event.VOTE, f"{len(answers)} callers answered: {failed[0] if failed else 'ok'}")

    # ------------------------------------------------------------------------------------------ shared state

    def _begin_sync(self, number: int, group: Group, now: int) -> None:
        votes = sorted(self._votes.group_votes(number), key=lambda vote: group.rank(vote.peer))
        apart = self._epochs.apart(group)
        ballots = [Ballot(it.peer, group.rank(it.peer), it.call, it.body, apart.get(it.peer, ())) for it in votes]
        group.sync_knows_links = True
        group.sync = self._sync_factory(self._draw(), number, ballots, self._roster.past.memories.get(number, b""))
        self._sync_step(group, group.sync.begin(now))

    def _sync_step(self, group: Group, step: SyncStep) -> None:
        for send in step.sends:
            if send.peer in self._roster.peers:
                self._roster.send(send.peer, send.message)
        if step.answers is not None:
            group.sync = None
            self._answer(step.answers, () if step.memory is None else (Memory(group.view.group, step.memory),))


def _needs(group: Group, operation: OperationName, voter: PeerId) -> bool:
    """Whether `voter`, a member of `group`, takes part in `operation`, as those say who wait in it."""
    told = next(iter(group.stalls.get(operation, {}).values()), None)
    return told is not None and scope.has(operation.scope, group.rank(voter), told.subgroup)


def _status_call(votes: Sequence[Open], voters: int, one_group: bool, waits: str, now: int) -> StatusCall:
    first = votes[0]
    since = now - min(vote.since for vote in votes)
    return StatusCall(CALL_NAMES[first.kind], one_group, first.group, len(votes), voters, since, clip(waits))


def _result(answer: Answer) -> VoteResult:
    return VoteResult(answer.call, answer.status, answer.text, answer.flag, answer.body, answer.epoch, answer.census)
