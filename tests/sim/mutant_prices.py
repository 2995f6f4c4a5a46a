# SPDX-License-Identifier: MIT
"""Deliberately broken prices, a part of mutants.py."""

from __future__ import annotations

from dataclasses import replace

from pccl.messages import NO_PRICES, MeasuredLink, Message, Prices, View, Vote
from pccl.protocol.epochs import Epochs, Figures
from pccl.protocol.joint import JointCalls
from pccl.protocol.master import MasterProtocol
from pccl.protocol.peer import PeerProtocol
from pccl.protocol.roster import Group, Peer
from pccl.protocol.types import MasterOutput, PeerId, PeerOutput


class _ForgetfulEpochs(Epochs):
    def prices(self, group: Group, figures: Figures) -> Prices:
        return super().prices(group, figures) if figures else NO_PRICES


class PricesForOneEpoch(MasterProtocol):
    """Keeps what was measured only until the next epoch."""

    def start(self, now: int) -> list[MasterOutput]:
        self._epochs.__class__ = _ForgetfulEpochs
        return super().start(now)


class _FondEpochs(Epochs):
    told: dict[PeerId, tuple[MeasuredLink, ...]]

    def prices(self, group: Group, figures: Figures) -> Prices:
        return super().prices(group, {**self.told, **figures})


class _FondJoint(JointCalls):
    def _measured(self, entry: Peer, message: Vote, now: int) -> tuple[MeasuredLink, ...] | None:
        told = super()._measured(entry, message, now)
        if told and isinstance(self._epochs, _FondEpochs):
            self._epochs.told[entry.id] = told
        return told


class KeptFigures(MasterProtocol):
    """Lets figures count without their vote: when it failed, or is not complete yet."""

    def start(self, now: int) -> list[MasterOutput]:
        self._joint.__class__, self._epochs.__class__ = _FondJoint, _FondEpochs
        if isinstance(self._epochs, _FondEpochs):
            self._epochs.told = {}
        return super().start(now)


class _HastyJoint(JointCalls):
    def member_lost(self, entry: Peer, group: Group, now: int) -> None:
        super().member_lost(entry, group, now)
        self._votes._run = {peer: replace(vote, measured=()) for peer, vote in self._votes._run.items()}


class FiguresOfTheLate(MasterProtocol):
    """Forgets the figures of a vote under way when a member is lost: those who vote later set the prices alone."""

    def start(self, now: int) -> list[MasterOutput]:
        self._joint.__class__ = _HastyJoint
        return super().start(now)


class OwnPrices(PeerProtocol):
    """Chooses algorithms by prices of its own."""

    def received(self, message: Message, now: int) -> list[PeerOutput]:
        if isinstance(message, View):
            message = replace(message, prices=Prices(1 + self.peer[0], 0, 0, 0))
        return super().received(message, now)
