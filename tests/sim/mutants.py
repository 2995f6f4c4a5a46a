# SPDX-License-Identifier: MIT
"""Deliberately broken engines, cores and disks: each must be caught by a checker, or the checkers are worth nothing.

What for: the proof that the simulator can see. Must not be used by anything but tests.

The one idea: a mutant is a subclass that leaves out one rule of the protocol; MUTANTS says under which faults that
shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pccl import scope
from pccl.errors import Status
from pccl.messages import (
    Hello,
    Message,
    OperationName,
    ProbeReply,
    ReportLine,
    StateFetched,
    StatePlan,
    View,
    Vote,
    VoteResult,
    Welcome,
    Withdraw,
)
from pccl.protocol.epochs import Epochs
from pccl.protocol.joint import JointCalls
from pccl.protocol.links import Links
from pccl.protocol.master import MasterProtocol
from pccl.protocol.peer import PeerProtocol
from pccl.protocol.roster import Group, Peer
from pccl.protocol.state_master import MasterSync
from pccl.protocol.state_sync import StateSync
from pccl.protocol.types import (
    Answer,
    Append,
    Ballot,
    Change,
    Event,
    GroupView,
    MasterOutput,
    Memory,
    Past,
    PeerId,
    PeerOutput,
    Record,
    Send,
    SyncStep,
    Tell,
)
from pccl.protocol.verdict import DATA_DONE, ReportIndex
from pccl.protocol.votes import Open, VoteBox
from tests.sim.master import Disk
from tests.sim.mutant_engines import (
    BlindReport,
    CallsBehindFailures,
    ClearsLaterFailures,
    GreedyReceive,
    HalfStep,
    HastyReport,
    HastySender,
    KeptReceive,
    NoBarrier,
    NoFreeze,
    OvertakingReceive,
    PublishesNothing,
    ScopelessTags,
    ShortBarrier,
    StaleEpoch,
)
from tests.sim.mutant_founding import BeginsEarly, CountsFoundersOnce, IgnoresPlaces
from tests.sim.mutant_prices import FiguresOfTheLate, KeptFigures, OwnPrices, PricesForOneEpoch
from tests.sim.world import Kinds

# ---------------------------------------------------------------------------------------------- commit and journal


class _AnyDoneEpochs(Epochs):
    def _next_view(self, number: int, *arguments: Any) -> GroupView:
        group = self._roster.groups.get(number)
        view = super()._next_view(number, *arguments)
        if group is None or group.gathering is None:
            return view
        return replace(view, commits=_done_anywhere([it.lines for it in group.gathering.reports.values()]))


def _done_anywhere(reports: Sequence[Sequence[ReportLine]]) -> tuple[OperationName, ...]:
    names = {name: True for lines in reports for name, state in ReportIndex(lines).open.items() if state >= DATA_DONE}
    return tuple(names)


class _AskingAllEpochs(Epochs):
    def _next_view(self, number: int, *arguments: Any) -> GroupView:
        group = self._roster.groups.get(number)
        view = super()._next_view(number, *arguments)
        third = group is not None and len(group.members) > 2
        kept = tuple(it for it in view.commits if scope.pair(it.scope) is None)
        return replace(view, commits=kept) if third else view


class _AskingStrangersEpochs(Epochs):
    def _next_view(self, number: int, *arguments: Any) -> GroupView:
        view = super()._next_view(number, *arguments)
        return replace(view, commits=tuple(it for it in view.commits if not scope.is_subgroup(it.scope)))


class _EarlyEpochs(Epochs):
    def gathered(self, group: Group) -> bool:
        gathering = group.gathering
        if gathering is not None and gathering.reports and len(gathering.reports) == len(group.members) - 1:
            reports = list(gathering.reports.values())
            for peer in group.members:
                gathering.reports.setdefault(peer, reports[0])
        return super().gathered(group)


class _OneLessEpochs(Epochs):
    def _next_view(self, number: int, *arguments: Any) -> GroupView:
        group = self._roster.groups.get(number)
        if group is not None and group.gathering is not None and len(group.members) > 1:
            reports = group.gathering.reports
            reports[group.members[-1]] = reports[group.members[0]]
        return super()._next_view(number, *arguments)


class _WithEpochs(MasterProtocol):
    epochs: type[Epochs] = Epochs

    def start(self, now: int) -> list[MasterOutput]:
        self._epochs.__class__ = self.epochs
        return super().start(now)


class AnyDone(_WithEpochs):
    """Commits what any survivor has done."""

    epochs = _AnyDoneEpochs


class AsksAll(_WithEpochs):
    """Commits a send only if all survivors have it done, and so those too that know nothing of it."""

    epochs = _AskingAllEpochs


class AsksStrangers(_WithEpochs):
    """Commits what a subgroup did only if all survivors have it done, which the others never have."""

    epochs = _AskingStrangersEpochs


class _AdmittingEpochs(Epochs):
    def change(self, numbers: list[int], admitting: list[PeerId], *arguments: Any) -> list[Answer]:
        waiting = [peer for peer, it in self._roster.pending.items() if it.group in numbers]
        return super().change(numbers, list(dict.fromkeys([*admitting, *waiting])), *arguments)


class AdmitsAtEveryChange(_WithEpochs):
    """Takes newcomers into every next view, whether the members have called update_topology or not."""

    epochs = _AdmittingEpochs


class EarlyVerdict(_WithEpochs):
    """Decides before the last survivor has reported, as if that one had said what another did."""

    epochs = _EarlyEpochs


class OneSurvivorLess(_WithEpochs):
    """Decides without what the last of the survivors said."""

    epochs = _OneLessEpochs


class ForgetfulJournal(MasterProtocol):
    """Tells before it writes, so that a crash in between contradicts what was told."""

    def received(self, peer: PeerId, message: Message, now: int) -> list[MasterOutput]:
        outputs = super().received(peer, message, now)
        return sorted(outputs, key=lambda output: isinstance(output, Append))


class LazyDisk(Disk):
    """Says that a record is written when it is not yet: a crash loses the last one."""

    def __init__(self) -> None:
        super().__init__()
        self._late: Record | None = None

    def append(self, record: Record) -> None:
        if self._late is not None:
            super().append(self._late)
        self._late = record

    def crashed(self) -> None:
        self._late = None


class ForgottenVerdict(MasterProtocol):
    """Restarts without the verdicts of the newest epoch."""

    def __init__(self, *, past: Past, **arguments: Any) -> None:
        past.views.update({number: replace(view, commits=()) for number, view in past.views.items()})
        super().__init__(past=past, **arguments)


class ReusedEpoch(MasterProtocol):
    """Restarts with the newest epoch of the groups that still live, and forgets that of one that has ended."""

    def __init__(self, *, past: Past, **arguments: Any) -> None:
        past.epoch = max((view.epoch for view in past.views.values()), default=0)
        super().__init__(past=past, **arguments)


# ---------------------------------------------------------------------------------------------- what is said again


class NoViewAgain(MasterProtocol):
    """Does not repeat a view that a member may have missed."""

    def _hello_again(self, entry: Any, hello: Hello, now: int) -> None:
        super()._hello_again(entry, replace(hello, epoch=self._roster.groups[entry.group].epoch), now)


class NoFreezeAgain(MasterProtocol):
    """Does not repeat to a member that its epoch is frozen."""

    def _hello_again(self, entry: Any, hello: Hello, now: int) -> None:
        group = self._roster.groups[entry.group]
        gathering, group.gathering = group.gathering, None
        super()._hello_again(entry, hello, now)
        if entry.id in self._roster.peers:
            group.gathering = gathering


class NoAnswerAgain(MasterProtocol):
    """Says nothing to a repeated vote that has its answer."""

    def received(self, peer: PeerId, message: Message, now: int) -> list[MasterOutput]:
        entry = self._roster.peers.get(peer)
        if isinstance(message, Vote) and entry and entry.answered and message.call == entry.answered.call:
            return []
        return super().received(peer, message, now)


class _CountingEpochs(Epochs):
    def view_message(self, view: GroupView) -> View:
        return replace(super().view_message(view), census=self._roster.census)


class CountsAgain(_WithEpochs):
    """Repeats a view with the numbers of now, which the other members do not have."""

    epochs = _CountingEpochs


class AnswersWithNewNumbers(MasterProtocol):
    """Repeats an answer with the numbers of now, which the other callers do not have."""

    def received(self, peer: PeerId, message: Message, now: int) -> list[MasterOutput]:
        entry = self._roster.peers.get(peer)
        if isinstance(message, Vote) and entry and entry.answered and message.call == entry.answered.call:
            entry.answered = replace(entry.answered, census=self._roster.census)
        return super().received(peer, message, now)


class NoReportAgain(PeerProtocol):
    """Does not repeat its report to a master that may have lost it."""

    def _on_welcome(self, message: Welcome, now: int) -> list[PeerOutput]:
        report, self._report = self._report, None
        out = super()._on_welcome(message, now)
        self._report = report
        return out


class NoVoteAgain(PeerProtocol):
    """Does not repeat its vote to a master that may have lost it."""

    def _on_welcome(self, message: Welcome, now: int) -> list[PeerOutput]:
        out = super()._on_welcome(message, now)
        return [it for it in out if not (isinstance(it, Tell) and isinstance(it.message, Vote))]


class BelievesOldAnswers(PeerProtocol):
    """Takes the numbers of an answer for newer than those of a view that came before it."""

    def _on_vote_result(self, message: VoteResult, now: int) -> list[PeerOutput]:
        return super()._on_vote_result(replace(message, epoch=max(message.epoch, self.epoch)), now)


class AnswersBeforeViews(PeerProtocol):
    """Returns from a joint call although the view that came with it was lost."""

    def _on_vote_result(self, message: VoteResult, now: int) -> list[PeerOutput]:
        return super()._on_vote_result(replace(message, epoch=min(message.epoch, self.epoch)), now)


class FirstDoubtOnly(PeerProtocol):
    """Does not tell that a link broke when it had told before that it is doubtful."""

    def engine_suspect(self, epoch: int, peer: PeerId, *arguments: Any) -> list[PeerOutput]:
        return [] if peer in self._suspects else super().engine_suspect(epoch, peer, *arguments)


# ---------------------------------------------------------------------------------------------- votes


class _LateJoint(JointCalls):
    def _is_complete(self, vote: Open, group: Group) -> bool:
        return False


class LateWithdrawal(MasterProtocol):
    """Lets voters withdraw from what is complete."""

    def start(self, now: int) -> list[MasterOutput]:
        self._joint.__class__ = _LateJoint
        return super().start(now)


class _KeepingBox(VoteBox):
    def drop(self, peer: PeerId, group: int) -> None:
        if not self.keeping:
            super().drop(peer, group)

    keeping = False


class KeptVote(MasterProtocol):
    """Answers a withdrawal, and counts the voice all the same."""

    def received(self, peer: PeerId, message: Message, now: int) -> list[MasterOutput]:
        box = self._joint._votes
        box.__class__ = _KeepingBox
        assert isinstance(box, _KeepingBox)
        box.keeping = isinstance(message, Withdraw)
        return super().received(peer, message, now)


class _GenerousBox(VoteBox):
    def run_count(self) -> int:
        return super().run_count() + (super().run_count() > 1)


class DoubleVote(MasterProtocol):
    """Counts one of several voices twice."""

    def start(self, now: int) -> list[MasterOutput]:
        self._joint._votes.__class__ = _GenerousBox
        return super().start(now)


class _TwoRecordsJoint(JointCalls):
    def _answer(self, answers: Sequence[Answer], memories: tuple[Memory, ...] = ()) -> None:
        if memories:
            self._roster.commit(Change(memories=memories))
        super()._answer(answers)


class TwoRecords(MasterProtocol):
    """Remembers what a synchronisation agreed on before it journals the answers."""

    def start(self, now: int) -> list[MasterOutput]:
        self._joint.__class__ = _TwoRecordsJoint
        return super().start(now)


class _PartialJoint(JointCalls):
    def _answer_run(self, flag: bool) -> None:
        self._answer([Answer(it.peer, it.call, flag=flag or not i) for i, it in enumerate(self._votes.run_votes())])


class PartialAnswer(MasterProtocol):
    """Does not tell all callers of one vote the same."""

    def start(self, now: int) -> list[MasterOutput]:
        self._joint.__class__ = _PartialJoint
        return super().start(now)


class _CredulousJoint(JointCalls):
    def _resolve(self, now: int) -> None:
        super()._resolve(now)
        if self._resolution is not None:
            self._resolution.nonces.clear()


class UnprobedNewcomers(MasterProtocol):
    """Admits newcomers without a sign that they still live."""

    def start(self, now: int) -> list[MasterOutput]:
        self._joint.__class__ = _CredulousJoint
        return super().start(now)


# ---------------------------------------------------------------------------------------------- suspicion, identity


class TrustsAccusers(MasterProtocol):
    """Removes whoever is suspected, without a probe."""

    def _accuse(self, accuser: Peer, group: Group, message: Any, suspect: PeerId, now: int) -> None:
        entry = self._roster.peers.get(suspect)
        if entry is not None and entry.id in group.members and entry is not accuser:
            self._lose(entry, Event.LOST, "was lost: somebody says so", now)


class AnyAnswerClears(MasterProtocol):
    """Takes an answer to an older probe for a sign of life."""

    def _probe_reply(self, entry: Peer, message: ProbeReply, now: int) -> None:
        case = self._suspicions._cases.get(entry.id)
        super()._probe_reply(entry, replace(message, nonce=case.nonce) if case else message, now)


class _HopelessLinks(Links):
    def _given_up(self, link: Any, now: int) -> bool:
        return True


class GivesLinksUp(MasterProtocol):
    """Does not try a link again before it expels those who need it."""

    def start(self, now: int) -> list[MasterOutput]:
        self._links.__class__ = _HopelessLinks
        return super().start(now)


class HearsayLinks(MasterProtocol):
    """Takes what a member heard of a broken link for a break of that member's own link."""

    def _accuse(self, accuser: Peer, group: Group, message: Any, suspect: PeerId, now: int) -> None:
        if message.reason == Status.ABORTED:
            message = replace(message, reason=int(Status.PEER_LOST))
        super()._accuse(accuser, group, message, suspect, now)


class BelievesInDeath(MasterProtocol):
    """Takes every broken link for the proof that the process at its other end has ended."""

    def _accuse(self, accuser: Peer, group: Group, message: Any, suspect: PeerId, now: int) -> None:
        if message.reason == Status.PEER_LOST:
            message = replace(message, reason=int(Status.PEER_DIED))
        super()._accuse(accuser, group, message, suspect, now)


class BlamesPeersForItsSleep(MasterProtocol):
    """Takes suspects for lost that gave their connection up while it was stopped itself."""

    def _forgive(self, now: int) -> None:
        super()._forgive(now)
        self._excused_until = 0


class AnySecret(MasterProtocol):
    """Does not look at the session secret of a Hello."""

    def _hello(self, peer: PeerId, entry: Peer | None, hello: Hello, now: int) -> None:
        super()._hello(peer, entry, replace(hello, secret=entry.secret) if entry else hello, now)


class BelievesClones(MasterProtocol):
    """Refuses another process under a member's id, but believes what it says next."""

    def _hello(self, peer: PeerId, entry: Peer | None, hello: Hello, now: int) -> None:
        super()._hello(peer, entry, hello, now)
        if entry is not None:
            entry.usurped = False


# ---------------------------------------------------------------------------------------------- shared state


class LastRankWins(MasterSync):
    """Decides a tie between equally popular contents for the highest rank."""

    def __init__(self, sync_id: int, group: int, ballots: Sequence[Ballot], memory: bytes) -> None:
        super().__init__(sync_id, group, list(reversed(ballots)), memory)


class EarlySwap(MasterSync):
    """Ends a synchronisation when the first member has fetched what it lacked."""

    def received(self, peer: PeerId, message: Message, now: int) -> SyncStep:
        if isinstance(message, StateFetched) and self._sync is not None:
            for other in self._sync.pending:
                if other != peer:
                    self._sync.fetched(other, ())
        return super().received(peer, message, now)


class NoRelay(MasterSync):
    """Tells nobody to pass on what it fetched."""

    def _plan(self, sync: StateSync, peer: PeerId) -> Send:
        send = super()._plan(sync, peer)
        assert isinstance(send.message, StatePlan)
        return replace(send, message=replace(send.message, relay=False))


# ---------------------------------------------------------------------------------------------- the table


@dataclass(frozen=True, slots=True)
class Mutant:
    """What is broken, and the faults under which it shows soon."""

    kinds: Kinds
    faults: tuple[str, ...]


_LOSSES = ("crash", "data_break", "pause", "aim")
_LOST_WORDS = ("control_break", "control_cut", "overflow")
_RESTARTS = ("crash", "control_break", "data_break", "master_crash", "journal_crash")

MUTANTS: dict[str, Mutant] = {
    **{
        engine.__name__: Mutant(Kinds(engine=engine), _LOSSES)
        for engine in (
            NoFreeze,
            NoBarrier,
            ShortBarrier,
            HastySender,
            OvertakingReceive,
            KeptReceive,
            GreedyReceive,
            ScopelessTags,
            StaleEpoch,
            PublishesNothing,
            HastyReport,
        )
    },
    **{
        engine.__name__: Mutant(Kinds(engine=engine), ("data_break", "leave", "join_storm", "crash", "slow"))
        for engine in (CallsBehindFailures, ClearsLaterFailures)
    },
    "HalfStep": Mutant(Kinds(engine=HalfStep), ("data_break", "slow")),
    **{
        master.__name__: Mutant(Kinds(master=master), _LOSSES)
        for master in (AnyDone, AsksAll, AsksStrangers, EarlyVerdict, OneSurvivorLess, TrustsAccusers)
    },
    **{
        master.__name__: Mutant(Kinds(master=master), _RESTARTS)
        for master in (ForgetfulJournal, ForgottenVerdict, NoViewAgain, NoAnswerAgain)
    },
    **{
        master.__name__: Mutant(Kinds(master=master), ("interrupt", "impatience", "join_storm"))
        for master in (LateWithdrawal, KeptVote)
    },
    "AdmitsAtEveryChange": Mutant(Kinds(master=AdmitsAtEveryChange), ("join_storm", "crash", "leave")),
    **{
        master.__name__: Mutant(Kinds(master=master), (*_LOST_WORDS, "crash", "leave", "join_storm"))
        for master in (CountsAgain, AnswersWithNewNumbers)
    },
    **{
        peer.__name__: Mutant(Kinds(peer=peer), ("control_break", "crash", "leave", "join_storm"))
        for peer in (BelievesOldAnswers, AnswersBeforeViews)
    },
    "AnyAnswerClears": Mutant(Kinds(master=AnyAnswerClears), ("crash", "data_break", "aim")),
    "AnySecret": Mutant(Kinds(master=AnySecret), ("clone",)),
    "BlamesPeersForItsSleep": Mutant(Kinds(master=BlamesPeersForItsSleep), ("master_pause", "data_break")),
    **{
        master.__name__: Mutant(Kinds(master=master), ("join_storm", "crash", "leave"))
        for master in (BeginsEarly, IgnoresPlaces)
    },
    "CountsFoundersOnce": Mutant(Kinds(master=CountsFoundersOnce), ("impatience", "join_storm", "crash", "leave")),
    "BelievesInDeath": Mutant(Kinds(master=BelievesInDeath), ("data_break",)),
    "BlindReport": Mutant(Kinds(engine=BlindReport), ("mistake", "crash", "data_break", "aim")),
    "BelievesClones": Mutant(Kinds(master=BelievesClones), ("clone",)),
    "DoubleVote": Mutant(Kinds(master=DoubleVote), ("join_storm",)),
    "EarlySwap": Mutant(Kinds(sync=EarlySwap), ("join_storm", "drift")),
    "FirstDoubtOnly": Mutant(Kinds(peer=FirstDoubtOnly), ("data_dead", "drift")),
    "GivesLinksUp": Mutant(Kinds(master=GivesLinksUp), ("data_break", "leave")),
    "HearsayLinks": Mutant(Kinds(master=HearsayLinks), ("data_break", "data_dead")),
    "LastRankWins": Mutant(Kinds(sync=LastRankWins), ("join_storm", "drift")),
    "LazyDisk": Mutant(Kinds(disk=LazyDisk), ("crash", "master_crash")),
    "NoFreezeAgain": Mutant(Kinds(master=NoFreezeAgain), ("control_break", "leave", "join_storm", "aim")),
    "NoRelay": Mutant(Kinds(sync=NoRelay), ("data_dead", "drift")),
    "NoReportAgain": Mutant(Kinds(peer=NoReportAgain), _RESTARTS),
    "TwoRecords": Mutant(Kinds(master=TwoRecords), ("join_storm", "journal_crash")),
    "NoVoteAgain": Mutant(Kinds(peer=NoVoteAgain), ("control_break", "leave")),
    "OwnPrices": Mutant(Kinds(peer=OwnPrices), ("join_storm",)),
    "PartialAnswer": Mutant(Kinds(master=PartialAnswer), ("join_storm",)),
    **{
        master.__name__: Mutant(Kinds(master=master), ("join_storm", "leave", "mistake"))
        for master in (FiguresOfTheLate, KeptFigures, PricesForOneEpoch)
    },
    "ReusedEpoch": Mutant(Kinds(master=ReusedEpoch), ("burst", "crash", "master_crash", "journal_crash")),
    "UnprobedNewcomers": Mutant(Kinds(master=UnprobedNewcomers), ("newcomer_death", "join_storm")),
}
