# SPDX-License-Identifier: MIT
"""What must hold in every simulated run: one method per guarantee, called where its evidence appears.

What for: a violation is a text; the world stops at the first one. Must not know: how the cores work inside.

The one idea: checkers look only at what users and engines see (installed views, outcomes of operations, answers) and at
the journal, so they hold for any implementation of the cores.
"""

from __future__ import annotations

from typing import Any

from pccl.errors import Status
from pccl.messages import View
from pccl.protocol.types import Change, Event, Record, VoteKind
from tests.sim.dataplane import Key, PeerId
from tests.sim.program import FRESH, Content

Outcome = tuple[int, tuple[PeerId, ...]]


class Checkers:
    """All evidence of one run. `violations` is empty as long as all is well."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self._views: dict[int, tuple[Any, ...]] = {}
        self._installed: dict[PeerId, int] = {}
        self._outcomes: dict[Key, dict[PeerId, Outcome]] = {}
        self._states: dict[tuple[int, int], bytes] = {}
        self._answers: dict[tuple[PeerId, int], tuple[int, bool, bytes]] = {}
        self._disturbed: dict[int, bool] = {}
        self._admitted: dict[PeerId, int] = {}

    def fail(self, text: str) -> None:
        self.violations.append(text)

    def disturbed(self, group: int) -> None:
        """A fault of a member (or of a link between members) of `group`: its current epoch may now end."""
        self._disturbed[group] = True

    def one_membership_per_epoch(self, peer: PeerId, view: View) -> None:
        """Whoever installs an epoch installs the same members, ring and verdicts; a peer's epochs rise (G9 rests on
        it)."""
        seen = (view.group, view.members, view.ring, view.commits, view.previous, view.cause)
        if self._views.setdefault(view.epoch, seen) != seen:
            self.fail(f"epoch {view.epoch} has two meanings")
        if view.epoch <= self._installed.get(peer, 0):
            self.fail(f"peer {peer.hex()[:8]} went from epoch {self._installed[peer]} to {view.epoch}")
        self._installed[peer] = view.epoch

    def same_outcome(self, peer: PeerId, key: Key, epoch: int, members: tuple[PeerId, ...]) -> None:
        """G2, G4: an operation succeeds in one epoch, with one membership, for all; also for those that died since."""
        outcome = (epoch, members)
        others = self._outcomes.setdefault(key, {})
        for other, seen in others.items():
            if seen != outcome:
                self.fail(
                    f"split verdict: operation {key[1]} succeeded in epoch {epoch} on {peer.hex()[:8]}, "
                    f"in epoch {seen[0]} on {other.hex()[:8]}"
                )
        others[peer] = outcome
        if peer not in members:
            self.fail(f"peer {peer.hex()[:8]} succeeded in epoch {epoch} without being a member")

    def no_abort_without_cause(self, group: int, status: Status, epoch: int) -> None:
        """G7, G12: while only newcomers die or the master restarts, no operation of a healthy group fails."""
        if status in (Status.PEER_LOST, Status.TIMEOUT, Status.CALL_MISMATCH) and not self._disturbed.get(group):
            self.fail(
                f"an operation of epoch {epoch} in group {group} ended with {status.name}, with all members healthy"
            )

    def newcomers_need_a_vote(self, record: Record) -> None:
        """G7: newcomers enter a group only through an answered update_topology, or where no accepted peer is."""
        if not isinstance(record, Change):
            return
        for admission in record.admissions:
            self._admitted[admission.id] = admission.group
        if record.admissions and not record.answers and any(len(it.members) > len(it.admitted) for it in record.views):
            self.fail("newcomers were admitted into a group without an answered vote")

    def votes_agree(self, record: Record) -> None:
        """All callers of one vote get the same answer, and a call has one answer for good."""
        if not isinstance(record, Change) or not record.answers:
            return
        if len({(it.status, it.flag) for it in record.answers}) > 1:
            self.fail("the callers of one vote got different answers")
        for answer in record.answers:
            value = (int(answer.status), answer.flag, answer.body)
            if self._answers.setdefault((answer.peer, answer.call), value) != value:
                self.fail(f"call {answer.call} of {answer.peer.hex()[:8]} was answered twice, differently")

    def views_need_every_voice(self, record: Record) -> None:
        """Nobody's epoch ends by a vote that it took no part in, or has withdrawn from."""
        if isinstance(record, Change) and record.answers:
            voices = {answer.peer for answer in record.answers}
            for view in record.views:
                for rank, peer in enumerate(view.members):
                    if rank not in view.admitted and peer not in voices:
                        self.fail(f"a vote without {peer.hex()[:8]} made its epoch {view.epoch}")

    def timeout_was_journalled(self, peer: PeerId, call: int) -> None:
        """A call that was given up has no other answer."""
        status = self._answers.get((peer, call), (int(Status.TIMEOUT),))[0]
        if status != Status.TIMEOUT:
            self.fail(f"call {call} of {peer.hex()[:8]} was given up, but the journal has answer {status}")

    def no_protocol_errors(self, event: Event, text: str) -> None:
        """Correct cores never see each other break the protocol, and no report contradicts another."""
        if event is Event.CONFLICT or "protocol" in text:
            self.fail(f"{event.value}: {text}")

    def answer_was_journalled(self, peer: PeerId, call: int, kind: VoteKind, flag: bool, body: bytes) -> None:
        """What a caller hears is what the journal says."""
        if self._answers.get((peer, call)) != (0, flag, body):
            self.fail(f"{kind.name} call {call} of {peer.hex()[:8]} heard an answer that the journal does not have")

    def same_state(self, peer: PeerId, content: Content) -> None:
        """G8 (and G1 in spirit): members that are equally far hold equal states."""
        if content != FRESH:
            seen = self._states.setdefault((content.lineage, content.step), content.digest)
            if seen != content.digest:
                self.fail(f"step {content.step} has two states; the second one is on {peer.hex()[:8]}")
