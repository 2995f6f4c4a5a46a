# SPDX-License-Identifier: MIT
"""What the simulated user does: an endless training loop with joint calls, collectives and retries.

    connect; loop: sync_shared_state, a few operations (each one retried until it succeeds), are_peers_pending,
    and update_topology where somebody is

What for: it uses the guarantees as a user would (G4, G8), and its state depends on the outcome of every operation, so
that any disagreement shows in the next synchronisation. Must not know: messages, epochs to come, other peers.

The one idea: the operations of a step follow from the state itself, so members with equal states run equal programs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from pccl import messages
from pccl.errors import Status
from pccl.messages import StateEntry, StateOffer
from pccl.protocol.state_sync import SharedStateSyncStrategy
from pccl.protocol.types import VoteKind
from tests.sim.dataplane import Key, Operation, PeerId

TAGS = 2
WINDOW = 3
RETRIABLE = (Status.PEER_LOST, Status.TIMEOUT)


@dataclass(frozen=True, slots=True)
class Content:
    """A shared state. `lineage` is the synchronisation that founded it; a fresh one has none and digest zero."""

    lineage: int
    step: int
    digest: bytes

    def grown(self, what: object) -> Content:
        digest = hashlib.blake2b(repr((self.digest, what)).encode(), digest_size=16).digest()
        return Content(self.lineage, self.step + 1, digest)


FRESH = Content(0, 0, bytes(16))


class Host(Protocol):
    """What a program may do."""

    def vote(self, kind: VoteKind, call: int, body: bytes) -> None: ...
    def start(self, operation: Operation) -> None: ...
    def later(self, delay: float, action: Callable[..., None], *arguments: Any) -> None: ...
    def draw(self) -> float: ...
    def mistaken(self) -> None: ...
    def finished(self, key: Key, epoch: int, members: tuple[PeerId, ...]) -> None: ...
    def aborted(self, key: Key, status: Status, epoch: int) -> None: ...


class Program:
    """The loop of one peer. `mistake` is the chance of a wrong joint call per step; `pause_ms` the mean time to think.
    With `optimize` some steps end with optimize_topology, which only a run of one group can agree on."""

    def __init__(self, host: Host, mistake: float, pause_ms: float, optimize: bool) -> None:
        self.host = host
        self.mistake = mistake
        self.optimize = optimize
        self.pause_ms = pause_ms
        self.content = FRESH
        self.fetched: Content | None = None
        self.steps = 0
        self.doing = "connect"
        self.call = 0
        self._strategy = SharedStateSyncStrategy.ENFORCE_POPULAR
        self._kind = VoteKind.SYNC_SHARED_STATE
        self._outcomes: dict[int, tuple[int, tuple[PeerId, ...]]] = {}
        self._flying: dict[int, bool] = {}
        self._count = 0
        self._realign = False

    # ------------------------------------------------------------------------------------------ joint calls

    def accepted(self) -> None:
        self.sync()

    def sync(self) -> None:
        self._realign = False
        entry = StateEntry("model", "uint8", (16,), self.content.digest)
        self._vote(VoteKind.SYNC_SHARED_STATE, StateOffer(self.content.step, int(self._strategy), (entry,)))

    def _vote(self, kind: VoteKind, offer: StateOffer | None = None) -> None:
        self.call += 1
        self._kind = kind
        self.doing = kind.name
        self.fetched = None
        self.host.vote(kind, self.call, messages.encode(offer) if offer is not None else b"")

    def resolved(self, call: int, flag: bool, body: bytes) -> None:
        if self._kind is VoteKind.SYNC_SHARED_STATE and body:
            self._agreed(messages.decode(body))
        elif self._kind is VoteKind.ARE_PEERS_PENDING and flag:
            self.host.later(self._pause(), self._vote, VoteKind.UPDATE_TOPOLOGY)
        elif self._kind is VoteKind.OPTIMIZE_TOPOLOGY:
            self.host.later(self._pause(), self._vote, VoteKind.ARE_PEERS_PENDING)
        else:
            self.host.later(self._pause(), self.sync)

    def rejected(self, status: Status, text: str) -> None:
        if self.content == FRESH and "SEND_ONLY would make that the group's state" in text:
            self._strategy = SharedStateSyncStrategy.SEND_ONLY
        self.host.later(self._pause(), self.again if status is Status.TIMEOUT else self.sync)

    def again(self) -> None:
        """After a joint call was given up: the same one, or back to where all programs begin."""
        if self._kind is VoteKind.SYNC_SHARED_STATE or self.host.draw() < 0.5:
            self.sync()
        else:
            self._vote(self._kind)

    def _agreed(self, agreed: Any) -> None:
        self._strategy = SharedStateSyncStrategy.ENFORCE_POPULAR
        if self.fetched is not None:
            self.content = self.fetched
            self._outcomes.clear()
        if self.content == FRESH:
            self.content = Content(agreed.sync, 0, agreed.sync.to_bytes(16, "little"))
        self.host.later(self._pause(), self._begin_step)

    # ------------------------------------------------------------------------------------------ operations

    def _begin_step(self) -> None:
        if self.host.draw() < self.mistake:
            self.host.mistaken()
            self._vote(VoteKind(1 + int(self.host.draw() * 3)))
            return
        self.doing = "operations"
        self._count = 1 + self.content.digest[0] % 4
        self._flying.clear()
        self._refill()

    def _refill(self) -> None:
        """Keeps the window full, in program order; when all are done, the step is."""
        if self.doing != "operations":
            return
        if len(self._outcomes) == self._count:
            self._end_step()
            return
        if self._realign:
            if not self._flying:
                self.doing = "think"
                self.host.later(self._pause(), self.sync)
            return
        for index in range(self._count):
            if len(self._flying) >= WINDOW:
                return
            if index not in self._outcomes and index not in self._flying:
                self._flying[index] = True
                digest = self.content.digest
                kind = digest[1 + index] % 4
                tag = digest[5 + index] % TAGS
                self.host.start(Operation((digest, index), tag, 0 if kind < 2 else kind, self._done))

    def _done(self, key: Key, status: Status | None, epoch: int, members: tuple[PeerId, ...]) -> None:
        index = key[1]
        del self._flying[index]
        if status is None:
            self.host.finished(key, epoch, members)
            self._outcomes[index] = (epoch, members)
        else:
            self.host.aborted(key, status, epoch)
            if status not in RETRIABLE:
                self._realign = True
        self.host.later(self._pause() / 20, self._refill)

    def _end_step(self) -> None:
        self.doing = "think"
        self.content = self.content.grown(sorted(self._outcomes.items()))
        self._outcomes.clear()
        self.steps += 1
        optimize = self.optimize and self.content.digest[0] % 8 == 0
        kind = VoteKind.OPTIMIZE_TOPOLOGY if optimize else VoteKind.ARE_PEERS_PENDING
        if self.host.draw() < self.mistake / 2:
            self.host.mistaken()
            self.host.later(self._pause(), self.sync)
        else:
            self.host.later(self._pause(), self._vote, kind)

    def _pause(self) -> float:
        return self.pause_ms * self.host.draw() * 2
