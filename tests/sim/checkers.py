# SPDX-License-Identifier: MIT
"""What must hold in every simulated run: one method per guarantee, called where its evidence appears.

What for: a violation is a text; the world stops at the first one. Must not know: how the cores work inside.

The one idea: checkers look only at what users and engines see (installed views, outcomes of operations, answers), at
what is said to the master and what it says, and at the journal, so they hold for any implementation of the cores.
"""

from __future__ import annotations

from typing import Any

from pccl.errors import Status
from pccl.messages import (
    NO_PRICES,
    MeasuredLink,
    MeasuredLinks,
    Message,
    ProbeReply,
    Report,
    StateAgreed,
    StateOffer,
    Suspect,
    View,
    Vote,
    decode,
)
from pccl.protocol import journal
from pccl.protocol.prices import Measured, agree
from pccl.protocol.types import NOBODY, Answer, Change, Event, GroupView, Past, Record, VoteKind
from pccl.scope import words
from tests.sim.content import Content
from tests.sim.election import Choice, choose
from tests.sim.operation import Key, Name, PeerId

Outcome = tuple[int, tuple[PeerId, ...]]


class Checkers:
    """All evidence of one run. `violations` is empty as long as all is well."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self._past = Past()
        self._views: dict[int, tuple[Any, ...]] = {}
        self._installed: dict[PeerId, int] = {}
        self._outcomes: dict[Key, dict[PeerId, Outcome]] = {}
        self._sent: dict[tuple[int, int, PeerId, PeerId], list[Key]] = {}
        self._received: dict[tuple[int, int, PeerId, PeerId], dict[int, int]] = {}
        self._settled: dict[tuple[int, Name], tuple[bool, int, PeerId]] = {}
        self._states: dict[tuple[int, int], bytes] = {}
        self._answers: dict[tuple[PeerId, int], tuple[int, bool, bytes]] = {}
        self._counted: list[tuple[int, int, int]] = []
        self._made: dict[int, int] = {}
        self._ended: dict[tuple[PeerId, int], tuple[int, int]] = {}
        self._heard: dict[PeerId, int] = {}
        self._disturbed: dict[int, bool] = {}
        self._votes: dict[PeerId, Vote] = {}
        self._accused: dict[tuple[PeerId, PeerId, int, int], bool] = {}
        self._ghosts: dict[tuple[PeerId, int], list[PeerId]] = {}
        self._choices: dict[int, Choice] = {}
        self._agreements: dict[int, tuple[int, bytes]] = {}
        self._agreed: dict[int, int] = {}
        self._removed: dict[PeerId, bool] = {}
        self._probed: dict[PeerId, bool] = {}
        self._suspicions: dict[PeerId, int] = {}
        self._asked: dict[tuple[PeerId, int], int] = {}

    def fail(self, text: str) -> None:
        self.violations.append(text)

    def disturbed(self, group: int) -> None:
        """A fault of a member (or of a link between members) of `group`: its current epoch may now end."""
        self._disturbed[group] = True

    # ------------------------------------------------------------------------------------------ views and operations

    def founded(self, view: GroupView, founders: int, places: list[int]) -> None:
        """A group begins with so many members at least, and those admitted together (their `places` in order of rank)
        stand as they asked for."""
        if view.members and not view.previous and len(view.members) < founders:
            self.fail(f"group {view.group} begins with {len(view.members)} members, not with {founders}")
        if places != sorted(places):
            self.fail(f"group {view.group} admits newcomers of places {places} in this order")

    def one_membership_per_epoch(self, peer: PeerId, view: View) -> None:
        """Whoever installs an epoch installs the same members, verdicts, and all that algorithms are chosen by; a
        peer's epochs rise (G9 rests on it)."""
        chosen_by = (view.ring, view.shape, view.parents, view.prices)
        seen = (view.group, view.members, view.commits, view.previous, view.cause, chosen_by)
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

    def settled(self, peer: PeerId, epoch: int, name: Name, success: bool, kind: int) -> None:
        """G2 at the engine's level: what one member returned no other one aborts, whatever its user makes of it. And
        all have called the same (G6)."""
        seen, called, other = self._settled.setdefault((epoch, name), (success, kind, peer))
        if success and seen and kind != called:
            self.fail(
                f"mismatch: (tag {name[1]}, sequence {name[2]}{words(name[0])}) of epoch {epoch} succeeded on "
                f"{peer.hex()[:8]} and on {other.hex()[:8]}, which called different things"
            )
        if seen != success:
            winner, loser = (peer, other) if success else (other, peer)
            self.fail(
                f"split verdict: (tag {name[1]}, sequence {name[2]}{words(name[0])}) of epoch {epoch} succeeded on "
                f"{winner.hex()[:8]} and was aborted on {loser.hex()[:8]}"
            )

    def sent(self, epoch: int, tag: int, message: Key) -> None:
        """Called as the next one of its tag; `message` ends with who sends it, and to whom."""
        self._sent.setdefault((epoch, tag, *message[-2:]), []).append(message)

    def one_receive_per_send(self, peer: PeerId, epoch: int, bound: int, tag: int, place: int, message: Key) -> None:
        """Each receive has what was sent to its peer, with its tag, in the epoch it was called for, and nobody else has
        that. What one sends to one with one tag comes in order, whoever else sends; `place` counts the peer's calls."""
        pair = (epoch, tag, *message[-2:])
        sent, received = self._sent.get(pair, []), self._received.setdefault(pair, {})
        who = f"peer {peer.hex()[:8]} received message {message[1]} of {message[-2].hex()[:8]} in epoch {epoch}"
        if message[-1] != peer or message not in sent or epoch != bound:
            self.fail(f"{who}, which was not sent to its receive, of epoch {bound} and tag {tag}")
            return
        number = sent.index(message)
        if number in received.values():
            self.fail(f"{who} twice")
        elif any((other < place) != (before < number) for other, before in received.items()):
            self.fail(f"{who} out of order")
        received[place] = number

    def whole_step(self, peer: PeerId, epoch: int, step: list[tuple[Any, int, tuple[PeerId, ...]]]) -> None:
        """A commit speaks for a whole step: all its operations ran in the commit's own epoch."""
        if any(done != epoch for _, done, _ in step):
            self.fail(f"a step committed in epoch {epoch} on {peer.hex()[:8]}, with operations of an earlier one")

    def no_abort_without_cause(self, group: int, status: Status, epoch: int) -> None:
        """G7, G12: while only newcomers die or the master restarts, no operation of a healthy group fails."""
        if status in (Status.PEER_LOST, Status.TIMEOUT, Status.CALL_MISMATCH) and not self._disturbed.get(group):
            self.fail(
                f"an operation of epoch {epoch} in group {group} ended with {status.name}, with all members healthy"
            )

    # ------------------------------------------------------------------------------------------ what the master is told

    def said(self, peer: PeerId, message: Message, dead: dict[PeerId, bool]) -> None:
        """The master hears `message`, and knows who says it."""
        if isinstance(message, Vote):
            self._votes[peer] = message
        if isinstance(message, ProbeReply):
            self._probed[peer] = True
        suspect = message.suspect if isinstance(message, Report) else NOBODY
        if isinstance(message, Suspect):
            suspect = message.peer
        if suspect not in (NOBODY, peer) and isinstance(message, Report | Suspect):
            # What is said again was true when it was said first.
            was_dead = self._accused.setdefault((peer, suspect, message.epoch, message.reason), suspect in dead)
            if was_dead:
                self._ghosts.setdefault((suspect, message.epoch), []).append(peer)

    def suspected(self, peer: PeerId) -> None:
        """The master tells of one more suspicion of `peer`."""
        self._suspicions[peer] = self._suspicions.get(peer, 0) + 1

    def asked(self, peer: PeerId, nonce: int) -> None:
        """The master sends a probe to `peer`, perhaps not for the first time."""
        self._asked.setdefault((peer, nonce), self._suspicions.get(peer, 0))

    def cleared(self, peer: PeerId, nonce: int) -> None:
        """The answer of `peer` to a probe ends all suspicions of it, so it must have been given after the last of them:
        it may be long under way, and who gave it dead since."""
        if self._asked.get((peer, nonce), 0) < self._suspicions[peer]:
            self.fail(f"{peer.hex()[:8]} was cleared by the answer to a probe from before it was suspected")

    def sync_began(self, sync: int, voters: list[PeerId]) -> None:
        """The master sends the plans of a synchronisation to its voters."""
        if sync in self._choices or not all(self._votes[peer].kind == VoteKind.SYNC_SHARED_STATE for peer in voters):
            return
        group = self._past.admissions[voters[0]].group
        members = self._past.views[group].members
        offers = [decode(self._votes[peer].body) for peer in sorted(voters, key=members.index)]
        memory = self._past.memories.get(group)
        last = int.from_bytes(memory, "big") if memory else None
        chosen = choose([it for it in offers if isinstance(it, StateOffer)], last)
        if chosen is None:
            self.fail(f"synchronisation {sync} began although its offers allow no election")
        else:
            self._choices[sync] = chosen

    # ------------------------------------------------------------------------------------------ the journal

    def recorded(self, record: Record) -> None:
        """The journal has one more record."""
        if isinstance(record, Change):
            self._newcomers_need_a_vote(record)
            self._votes_agree(record)
            self._every_voice_counts_once(record)
            for view in record.views:
                self._epochs_follow(view)
                self._no_ghosts(view)
            self._prices_were_measured(record)
            self._note_agreements(record)
        journal.apply(self._past, record)
        self._memories_were_told()
        self._count(record)

    def _note_agreements(self, record: Change) -> None:
        for answer in record.answers:
            if answer.status == Status.OK and answer.body:
                agreed = decode(answer.body)
                assert isinstance(agreed, StateAgreed)
                self._agreed[self._past.admissions[answer.peer].group] = agreed.revision

    def _memories_were_told(self) -> None:
        """What a group is measured by is the revision that its callers were last told of: a master that dies between
        the two would ask the others for what only the dead may have had."""
        remembered = {group: int.from_bytes(body, "big") for group, body in self._past.memories.items()}
        if remembered != self._agreed:
            self.fail(f"the groups remember the revisions {remembered}, but were told of {self._agreed}")

    def _count(self, record: Record) -> None:
        """Peers, groups and the largest group behind each record; which one made an epoch, or ended a vote well, and in
        which epoch of the caller's group."""
        sizes = [len(view.members) for view in self._past.views.values()]
        self._counted.append((sum(sizes), len(sizes), max(sizes, default=0)))
        number = len(self._counted) - 1
        for view in record.views if isinstance(record, Change) else ():
            self._made[view.epoch] = number
        for answer in record.answers if isinstance(record, Change) else ():
            if answer.status == Status.OK and answer.peer in self._past.admissions:
                group = self._past.admissions[answer.peer].group
                self._ended[answer.peer, answer.call] = (number, self._past.views[group].epoch)

    def journal_survives(self, past: Past) -> None:
        """What was appended is what a restarted master reads, and nothing else."""
        if past != self._past:
            self.fail("the journal does not say what was appended to it")

    def _newcomers_need_a_vote(self, record: Change) -> None:
        """G7: newcomers enter a group only through an answered update_topology, or where no accepted peer is."""
        if record.admissions and not record.answers and any(len(it.members) > len(it.admitted) for it in record.views):
            self.fail("newcomers were admitted into a group without an answered vote")
        if record.answers and not all(it.id in self._probed for it in record.admissions):
            self.fail("a newcomer was admitted that nobody had asked whether it lives")

    def _votes_agree(self, record: Change) -> None:
        """All callers of one vote get the same answer, and a call has one answer for good."""
        if len({(it.status, it.flag) for it in record.answers}) > 1:
            self.fail("the callers of one vote got different answers")
        for answer in record.answers:
            value = (int(answer.status), answer.flag, answer.body)
            if self._answers.setdefault((answer.peer, answer.call), value) != value:
                self.fail(f"call {answer.call} of {answer.peer.hex()[:8]} was answered twice, differently")

    def _every_voice_counts_once(self, record: Change) -> None:
        """A vote ends well only with the voice of everybody in its scope; nobody's epoch ends by a vote that it took
        no part in, or has withdrawn from."""
        good = [answer for answer in record.answers if answer.status == Status.OK]
        voices = {answer.peer: True for answer in good}
        for view in record.views if good else ():
            silent = [it for rank, it in enumerate(view.members) if rank not in view.admitted and it not in voices]
            if silent:
                self.fail(f"a vote without {silent[0].hex()[:8]} made its epoch {view.epoch}")
        if good and not record.views:
            absent = [peer for peer in self._scope(good[0]) if peer not in voices]
            if absent:
                self.fail(f"a vote was answered without the voice of {absent[0].hex()[:8]}, a member")

    def _scope(self, answer: Answer) -> list[PeerId]:
        """The members that the journal has, in the scope of a vote. One that is leaving the run may be among them
        until the next view, so those that the master has removed meanwhile are left out."""
        views = self._past.views
        vote = self._votes.get(answer.peer)
        if vote is not None and vote.kind == VoteKind.SYNC_SHARED_STATE:
            views = {number: view for number, view in views.items() if answer.peer in view.members}
        return [peer for view in views.values() for peer in view.members if peer not in self._removed]

    def _epochs_follow(self, view: GroupView) -> None:
        """An epoch's number is never used twice, and follows the group's one before."""
        before = self._past.views.get(view.group)
        if view.epoch <= self._past.epoch or view.previous != (before.epoch if before else 0):
            self.fail(f"epoch {view.epoch} of group {view.group} follows {view.previous}")

    def _no_ghosts(self, view: GroupView) -> None:
        """Who was dead when a member reported it, and has not been heard since, is not in the next epoch: an answer
        that it gave before proves nothing."""
        for peer in view.members:
            accusers = self._ghosts.get((peer, view.previous), [])
            if any(accuser in view.members for accuser in accusers):
                self.fail(f"epoch {view.epoch} has {peer.hex()[:8]} as a member, dead and reported before")

    def _prices_were_measured(self, record: Change) -> None:
        """Prices stay but for a vote that ends well; then they are what comes of the figures of all its voters, and
        where that is something new there is a new view."""
        figures = {it.peer: self._figures(it) for it in record.answers if it.status == Status.OK}
        views = {**self._past.views} if any(figures.values()) else {}
        views.update({view.group: view for view in record.views})
        for number, view in views.items():
            before = self._past.views.get(number)
            old = before.prices if before else NO_PRICES
            hosts = {it: self._past.admissions[it].member.host_id for it in view.members if it in figures}
            ranks = {it: rank for rank, it in enumerate(hosts)}
            measured = [
                Measured(ranks[peer], ranks[link.peer], link.latency_ns, link.bytes_per_s)
                for peer in hosts
                for link in figures[peer]
                if link.peer in ranks
            ]
            expected = agree(list(hosts.values()), measured, old)
            if view.members and view.prices != expected:
                self.fail(f"epoch {view.epoch} has prices {view.prices} after {old}, but its voters told {expected}")

    def _figures(self, answer: Answer) -> tuple[MeasuredLink, ...]:
        """What a voter told of its links with the vote that is answered."""
        vote = self._votes.get(answer.peer)
        if vote is None or vote.call != answer.call or vote.kind != VoteKind.OPTIMIZE_TOPOLOGY or not vote.body:
            return ()
        told = decode(vote.body)
        assert isinstance(told, MeasuredLinks)
        return told.links

    def removed(self, peer: PeerId) -> None:
        """The master says that `peer` is a member no more; a restarted one may not know."""
        self._removed[peer] = True

    # ------------------------------------------------------------------------------------------ answers

    def timeout_was_journalled(self, peer: PeerId, call: int) -> None:
        """A call that was given up has no other answer."""
        status = self._answers.get((peer, call), (int(Status.TIMEOUT),))[0]
        if status != Status.TIMEOUT:
            self.fail(f"call {call} of {peer.hex()[:8]} was given up, but the journal has answer {status}")

    def no_protocol_errors(self, event: Event, text: str) -> None:
        """Correct cores never see each other break the protocol, and no report contradicts another."""
        if "protocol" in text:
            self.fail(f"{event.value}: {text}")

    def answer_was_journalled(self, peer: PeerId, call: int, kind: VoteKind, flag: bool, body: bytes) -> None:
        """What a caller hears is what the journal says, and not before it has the epoch that came with it."""
        if self._answers.get((peer, call)) != (0, flag, body):
            self.fail(f"{kind.name} call {call} of {peer.hex()[:8]} heard an answer that the journal does not have")
            return
        self._heard[peer], epoch = self._ended[peer, call]
        if self._installed[peer] < epoch:
            self.fail(f"{kind.name} call {call} of {peer.hex()[:8]} ended in epoch {epoch}, which it does not have")

    def same_numbers(self, peer: PeerId, epoch: int, numbers: tuple[int, int, int]) -> None:
        """Members of a group that have made the same joint calls and are in the same epoch read the same of the whole
        run: how it was when the last of those calls ended, or the epoch began, whichever came later."""
        counted = self._counted[max(self._heard.get(peer, 0), self._made[epoch])]
        if numbers != counted:
            self.fail(f"{peer.hex()[:8]} reads {numbers} of the run in epoch {epoch}, where others read {counted}")

    # ------------------------------------------------------------------------------------------ shared state

    def same_state(self, peer: PeerId, content: Content) -> None:
        """G1 in spirit: members that agreed once and are equally far since hold equal states."""
        if content.lineage and not content.strayed:
            seen = self._states.setdefault((content.lineage, content.step), content.digest)
            if seen != content.digest:
                self.fail(f"step {content.step} has two states; the second one is on {peer.hex()[:8]}")

    def same_agreement(self, peer: PeerId, agreed: StateAgreed, content: Content) -> None:
        """G8: all members end a synchronisation with equal bits, of the revision that was told; those of the offer
        that had to win."""
        seen = self._agreements.setdefault(agreed.sync, (agreed.revision, content.digest))
        if seen != (agreed.revision, content.digest):
            self.fail(f"a synchronisation left two states; the second one is on {peer.hex()[:8]}")
        chosen = self._choices.get(agreed.sync)
        if content.step != agreed.revision or (chosen and content != chosen.content.agreed(agreed.sync)):
            self.fail(f"a synchronisation left a state on {peer.hex()[:8]} that was not the one to be elected")
