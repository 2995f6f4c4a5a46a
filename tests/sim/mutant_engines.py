# SPDX-License-Identifier: MIT
"""Deliberately broken engines, a part of mutants.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pccl.errors import Status
from pccl.messages import OperationName, ReportLine, View
from pccl.protocol.types import PeerId
from pccl.protocol.verdict import DATA_DONE, DATA_PHASE
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


class ShortBarrier(Engine):
    """Leaves the finish barrier one round too early."""

    def _barrier_done(self, operation: Any) -> bool:
        return 2 << operation.round >= len(self._among(operation))


class HastySender(Engine):
    """Returns from a send when it has left."""

    def _barrier_done(self, operation: Any) -> bool:
        return operation.paired or super()._barrier_done(operation)


class OvertakingReceive(Engine):
    """Lets a receive from one rank pass one of any source that was called before it."""

    def _delays(self, operation: Any) -> bool:
        return bool(operation.from_any)


class KeptReceive(Engine):
    """Keeps a receive of any source for the next epoch."""

    def install(self, view: View, commits: Sequence[OperationName]) -> None:
        kept, self._matching.waiting = self._matching.waiting, []
        super().install(view, commits)
        self._matching.waiting[:0] = kept


class GreedyReceive(Engine):
    """Lets a receive of any source take from whoever sent first, be it taken already."""

    def _match(self, tag: int) -> None:
        while (found := self._matching.take(tag, {})) is not None:
            operation, operation.scope = found
            self._begin(operation)


class ScopelessTags(Engine):
    """Numbers what goes to and comes from anybody as if it were of the whole group."""

    def _tag(self, operation: Any) -> tuple[int, int]:
        return (0, operation.tag)


class StaleEpoch(Engine):
    """Lets frames of older epochs in."""

    def _accepts_stale(self) -> bool:
        return True


class PublishesNothing(Engine):
    """Ignores commits in a new view."""

    def install(self, view: View, commits: Sequence[OperationName]) -> None:
        super().install(view, ())


class HastyReport(Engine):
    """Reports that its data is done when it is still under way."""

    def report(self) -> list[ReportLine]:
        return [replace(it, state=DATA_DONE) if it.state == DATA_PHASE else it for it in super().report()]


class BlindReport(Engine):
    """Does not report what was called."""

    def report(self) -> list[ReportLine]:
        return [replace(it, fingerprint=0) for it in super().report()]


class CallsBehindFailures(Engine):
    """Begins calls that stand behind a failure which nobody has looked at."""

    def _forgets_unseen(self) -> bool:
        return True


class ClearsLaterFailures(Engine):
    """Takes a look at a failure for a look at all of its tag, later ones too."""

    def seen(self, tag: int, epoch: int) -> None:
        super().seen(tag, self.epoch)


class HalfStep(Engine):
    """Commits a step although the epoch has changed since its first operation."""

    def install(self, view: View, commits: Sequence[OperationName]) -> None:
        super().install(view, commits)
        self._step_broken = False
