# SPDX-License-Identifier: MIT
"""Masters that found groups wrongly: `mutants.py` says when that shows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pccl.messages import NO_PLACE, Register
from pccl.protocol.founding import Founding
from pccl.protocol.master import MasterProtocol
from pccl.protocol.roster import Peer
from pccl.protocol.types import PeerId


class BeginsEarly(MasterProtocol):
    """A group begins with whoever comes first."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**{**arguments, "founders": 1})


class IgnoresPlaces(MasterProtocol):
    """Ranks follow arrival alone."""

    def _register(self, entry: Peer, message: Register, now: int) -> None:
        super()._register(entry, message, now)
        entry.place = NO_PLACE


class _CountsOnce(Founding):
    _asking = False

    def ready(self) -> list[PeerId]:
        self._asking = True
        found = super().ready()
        self._asking = False
        return found

    def admissible(self, newcomers: Iterable[PeerId]) -> list[PeerId]:
        return super().admissible(newcomers) if self._asking else list(newcomers)


class CountsFoundersOnce(MasterProtocol):
    """Nobody looks whether the founders are still there when the probes are back."""

    def __init__(self, *, founders: int = 1, **arguments: Any) -> None:
        super().__init__(founders=founders, **arguments)
        self._joint._founding = _CountsOnce(self._roster, founders)
