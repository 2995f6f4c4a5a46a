# SPDX-License-Identifier: MIT
"""Accusations between peers, and what is known of their links.

What for: it decides when a suspect has to be probed, when an answer clears it, and which links broke too often. Must
not know: groups' views, votes, messages.

The one idea: only an answer to a probe that was sent *after* the accusation proves that the suspect was alive after it.
A report, however late it arrives, may have been sent before.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pccl.protocol.types import Limits, PeerId


@dataclass(frozen=True, slots=True)
class Accusation:
    """`accuser` says in `epoch` that it cannot reach the suspect. `link`: a broken link, not a mere timeout."""

    accuser: PeerId
    epoch: int
    text: str
    link: bool


@dataclass(slots=True)
class _Case:
    nonce: int
    next_probe: int
    accusations: list[Accusation] = field(default_factory=list)


class Suspicions:
    """Open cases, by suspect."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._cases: dict[PeerId, _Case] = {}

    def accuse(self, suspect: PeerId, accusation: Accusation, nonce: int, now: int) -> bool:
        """Opens or extends a case. True if it is news: then probe at once, with `nonce`."""
        case = self._cases.setdefault(suspect, _Case(nonce, now))
        for it in case.accusations:
            if (it.accuser, it.epoch) == (accusation.accuser, accusation.epoch) and it.link >= accusation.link:
                return False
        case.accusations.append(accusation)
        case.nonce, case.next_probe = nonce, now + self._limits.probe_ms
        return True

    def answered(self, suspect: PeerId, nonce: int) -> list[Accusation]:
        """The suspect answered a probe. The accusations that this refutes, which ends the case; none if the nonce is an
        older one."""
        case = self._cases.get(suspect)
        if case is None or case.nonce != nonce:
            return []
        del self._cases[suspect]
        return case.accusations

    def suspected(self, peer: PeerId) -> bool:
        return peer in self._cases

    def accusations(self, peer: PeerId) -> list[Accusation]:
        case = self._cases.get(peer)
        return list(case.accusations) if case else []

    def drop(self, peer: PeerId) -> None:
        """The peer is gone: as a suspect and as an accuser."""
        self._cases.pop(peer, None)
        for suspect, case in list(self._cases.items()):
            case.accusations = [it for it in case.accusations if it.accuser != peer]
            if not case.accusations:
                del self._cases[suspect]

    def any_of(self, peers: list[PeerId]) -> bool:
        """Whether a case is open against one of `peers`."""
        return bool(self._cases) and any(peer in self._cases for peer in peers)

    def due(self, now: int) -> list[tuple[PeerId, int]]:
        """(suspect, nonce) to probe again now."""
        found = [(suspect, case.nonce) for suspect, case in self._cases.items() if case.next_probe <= now]
        for suspect, _ in found:
            self._cases[suspect].next_probe = now + self._limits.probe_ms
        return found

    def deadline(self) -> int | None:
        return min((case.next_probe for case in self._cases.values()), default=None)


class LinkFaults:
    """Broken links between living peers, within a sliding window of time."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._faults: dict[tuple[PeerId, PeerId], dict[int, int]] = {}  # pair -> epoch -> when it broke in it

    def note(self, one: PeerId, other: PeerId, epoch: int, now: int) -> bool:
        """Counts a fault, once per epoch, since both ends report it. True if the link has now broken too often for both
        of them to stay."""
        pair = (one, other) if one < other else (other, one)
        recent = {it: at for it, at in self._faults.get(pair, {}).items() if at > now - self._limits.link_window_ms}
        recent.setdefault(epoch, now)
        self._faults[pair] = recent
        return len(recent) >= self._limits.link_failures

    def broken(self, now: int) -> list[tuple[PeerId, PeerId]]:
        """Pairs with a fault within the window."""
        begin = now - self._limits.link_window_ms
        self._faults = {pair: times for pair, times in self._faults.items() if max(times.values()) > begin}
        return list(self._faults)

    def degree(self, peer: PeerId, now: int) -> int:
        """How many different links of `peer` broke within the window."""
        return sum(peer in pair for pair in self.broken(now))

    def drop(self, peer: PeerId) -> None:
        self._faults = {pair: times for pair, times in self._faults.items() if peer not in pair}
