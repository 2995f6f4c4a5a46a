# SPDX-License-Identifier: MIT
"""Accusations between peers.

What for: it decides when a suspect has to be probed, and when an answer clears it. Must not know: groups' views, votes,
messages, what a cleared suspicion says of a link.

The one idea: only an answer to a probe that was sent *after* the accusation proves that the suspect was alive after it.
A report, however late it arrives, may have been sent before.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pccl.protocol.types import Limits, PeerId


@dataclass(frozen=True, slots=True)
class Accusation:
    """`accuser` says in `epoch` that it cannot reach the suspect. `link`: a broken link, not a mere timeout. `doubt`:
    it cannot dial the suspect, which may be able to dial it."""

    accuser: PeerId
    epoch: int
    text: str
    link: bool
    doubt: bool = False


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
