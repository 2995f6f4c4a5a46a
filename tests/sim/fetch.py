# SPDX-License-Identifier: MIT
"""How a simulated peer fetches shared state: entry by entry, from whichever donor still has it.

What for: donors that die, lie in wait, or are out of reach while others fetch from them. Must not know: who was
elected, what the state is for.

The one idea: every piece takes time, and what held when it was asked for need not hold when it comes. A piece counts
only if it is what its digest says; nothing is swapped in here. Who gets nothing from anybody asks all again, and gives
up when that has lasted too long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pccl.messages import StateFailed, StateFetched, StatePlan, StateReceived, StateSource
from tests.sim.operation import PeerId

if TYPE_CHECKING:
    from tests.sim.content import Content
    from tests.sim.peer import SimPeer

PIECE_MS = (1.0, 25.0)
SILENCE_MS = 80.0
RETRY_MS = 30.0
PATIENCE_MS = 3_000.0
BYTES = 16


class Fetching:
    """One plan, from its arrival to its report. It ends without one when the peer drops it."""

    def __init__(self, peer: SimPeer, plan: StatePlan) -> None:
        self._peer, self._plan = peer, plan
        self._content = peer.program.content
        self._complete = False
        self._received: dict[PeerId, int] = {}
        self._failing_since: float | None = None
        if plan.fetch:
            peer.world.faults.moment("fetch")
            self._begin(0)

    def _begin(self, index: int) -> None:
        self._next(index, self._donors(self._plan.fetch[index]))

    def _donors(self, source: StateSource) -> list[PeerId]:
        if source.donors:
            return [self._plan.donors[place].peer for place in source.donors]
        return [donor.peer for donor in self._plan.donors]

    def _next(self, index: int, donors: list[PeerId]) -> None:
        """Asks the first of `donors` for the entry at `index` of the plan."""
        if not donors:
            self._ask_again(index)
            return
        donor = donors[0]
        reachable = self._reaches(donor)
        pause = self._peer.clock.random.uniform(*PIECE_MS) if reachable else SILENCE_MS
        self._peer.later(pause, self._came, index, donors, reachable)

    def _ask_again(self, index: int) -> None:
        """Nobody gave the entry at `index`."""
        now = self._peer.clock.now
        if self._failing_since is None:
            self._failing_since = now
        if now - self._failing_since < PATIENCE_MS:
            self._peer.later(RETRY_MS, self._retry, index)
        else:
            self._peer.state_event(StateFailed(self._plan.sync, "no donor answered", self._plan.round))

    def _retry(self, index: int) -> None:
        if self._peer.fetching is self:
            self._begin(index)

    def _reaches(self, donor: PeerId) -> bool:
        links = self._peer.world.links
        return not links.is_refused(self._peer.id, donor) and not links.is_cut(donor, self._peer.id)

    def _came(self, index: int, donors: list[PeerId], asked: bool) -> None:
        if self._peer.fetching is not self:
            return
        source = self._plan.fetch[index]
        donor = donors[0]
        theirs = self._served(self._peer.world.peers[donor])
        part = theirs.optimizer if source.index else theirs.model
        if not asked or not self._reaches(donor) or part != source.digest:
            self._next(index, donors[1:])
            return
        self._failing_since = None
        self._received[donor] = self._received.get(donor, 0) + BYTES
        self._content = self._content.with_part(source.index, part).at_step(theirs)
        if index + 1 < len(self._plan.fetch):
            self._begin(index + 1)
            return
        self._peer.fetched(self._plan.sync, self._content)
        received = tuple(StateReceived(donor, count) for donor, count in self._received.items())
        self._complete = True
        self._peer.state_event(StateFetched(self._plan.sync, received, round=self._plan.round))

    def _served(self, donor: SimPeer) -> Content:
        """What `donor` offers: its own content, or what it fetched and has to pass on."""
        theirs = donor.fetching
        if theirs is None or theirs._plan.sync != self._plan.sync or not (theirs._plan.relay and theirs._complete):
            return donor.program.content
        return theirs._content
