# SPDX-License-Identifier: MIT
"""Deliberately broken engines and cores: each must be caught by a checker, or the checkers are worth nothing.

What for: the proof that the simulator can see. Must not be used by anything but tests.

The one idea: a mutant is a subclass that leaves out one rule of the protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pccl.errors import Status
from pccl.messages import Hello, Message, OperationName, ReportLine, View, Vote, Withdraw
from pccl.protocol.epochs import Epochs
from pccl.protocol.joint import JointCalls
from pccl.protocol.master import MasterProtocol
from pccl.protocol.roster import Group
from pccl.protocol.types import Append, GroupView, MasterOutput, PeerId
from pccl.protocol.verdict import DATA_DONE, ReportIndex
from pccl.protocol.votes import Open, VoteBox
from tests.sim.dataplane import Engine


class NoFreeze(Engine):
    """Reports, but goes on working until the verdict comes."""

    def stop(self, suspect: PeerId, reason: Status, text: str) -> None:
        if not self._stopped_once():
            super().stop(suspect, reason, text)
            self.frozen = False

    def _stopped_once(self) -> bool:
        epoch, self._stopped = getattr(self, "_stopped", 0), self.epoch
        return bool(epoch == self.epoch)


class NoBarrier(Engine):
    """Returns as soon as its own data is done."""

    def _barrier_done(self, operation: Any) -> bool:
        return True


class StaleEpoch(Engine):
    """Lets frames of older epochs in."""

    def _accepts_stale(self) -> bool:
        return True


class PublishesNothing(Engine):
    """Ignores commits in a new view."""

    def install(self, view: View, commits: Sequence[OperationName]) -> None:
        super().install(view, ())


class _AnyDoneEpochs(Epochs):
    def _next_view(self, number: int, *arguments: Any) -> GroupView:
        group = self._roster.groups.get(number)
        view = super()._next_view(number, *arguments)
        if group is None or group.gathering is None:
            return view
        return replace(view, commits=_done_anywhere([it.lines for it in group.gathering.reports.values()]))


class AnyDone(MasterProtocol):
    """Commits what any survivor has done."""

    def start(self, now: int) -> list[MasterOutput]:
        self._epochs.__class__ = _AnyDoneEpochs
        return super().start(now)


def _done_anywhere(reports: Sequence[Sequence[ReportLine]]) -> tuple[OperationName, ...]:
    names = {name: True for lines in reports for name, state in ReportIndex(lines).open.items() if state >= DATA_DONE}
    return tuple(OperationName(*name) for name in names)


class _EarlyEpochs(Epochs):
    def gathered(self, group: Group) -> bool:
        gathering = group.gathering
        if gathering is not None and gathering.reports and len(gathering.reports) == len(group.members) - 1:
            reports = list(gathering.reports.values())
            for peer in group.members:
                gathering.reports.setdefault(peer, reports[0])
        return super().gathered(group)


class EarlyVerdict(MasterProtocol):
    """Decides before the last survivor has reported, as if that one had said what another did."""

    def start(self, now: int) -> list[MasterOutput]:
        self._epochs.__class__ = _EarlyEpochs
        return super().start(now)


class ForgetfulJournal(MasterProtocol):
    """Tells before it writes, so that a crash in between contradicts what was told."""

    def received(self, peer: PeerId, message: Message, now: int) -> list[MasterOutput]:
        outputs = super().received(peer, message, now)
        return sorted(outputs, key=lambda output: isinstance(output, Append))


class NoViewAgain(MasterProtocol):
    """Does not repeat a view that a member may have missed."""

    def _hello_again(self, entry: Any, hello: Hello, now: int) -> None:
        super()._hello_again(entry, replace(hello, epoch=self._roster.groups[entry.group].epoch), now)


class NoAnswerAgain(MasterProtocol):
    """Says nothing to a repeated vote that has its answer."""

    def received(self, peer: PeerId, message: Message, now: int) -> list[MasterOutput]:
        entry = self._roster.peers.get(peer)
        if isinstance(message, Vote) and entry and entry.answered and message.call == entry.answered.call:
            return []
        return super().received(peer, message, now)


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


ENGINES: tuple[type[Engine], ...] = (NoFreeze, NoBarrier, StaleEpoch, PublishesNothing)
MASTERS: tuple[type[MasterProtocol], ...] = (
    AnyDone,
    EarlyVerdict,
    ForgetfulJournal,
    NoViewAgain,
    NoAnswerAgain,
    LateWithdrawal,
    KeptVote,
)
