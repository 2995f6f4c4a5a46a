# SPDX-License-Identifier: MIT
"""From one epoch of a group to the next.

What for: freezing a group, collecting its reports, and making the one `Change` that ends the epoch. Must not know: why
an epoch has to end, how peers are found dead, votes.

The one idea: whatever the reason, a group is *gathered* first. So every survivor has installed the epoch that ends, has
stopped, and has said what it had; the new view can then be decided without asking anyone again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pccl.errors import Status
from pccl.messages import NO_PRICES, FreezeEpoch, MeasuredLink, Prices, Report, View, clip
from pccl.protocol.links import Links
from pccl.protocol.prices import Measured, agree
from pccl.protocol.roster import Gathering, Group, Phase, Roster, cause_of
from pccl.protocol.suspicion import Suspicions
from pccl.protocol.topology import Arrangement, Shape, arrange
from pccl.protocol.types import Admission, Answer, Change, Event, GroupView, PeerId
from pccl.protocol.verdict import commits

Figures = Mapping[PeerId, tuple[MeasuredLink, ...]]
"""What the voters of one complete vote measured. No other change of an epoch knows anything of that."""
NO_FIGURES: Figures = {}


class Epochs:
    """The part of the master that owns views."""

    def __init__(self, roster: Roster, suspicions: Suspicions, links: Links) -> None:
        self._roster, self._suspicions, self._links = roster, suspicions, links
        self._told: tuple[GroupView, View] | None = None

    def gather(self, group: Group, now: int, reporter: PeerId = b"") -> Gathering:
        """Stops the epoch of a group, if it is not stopping already. `reporter` has frozen it by itself."""
        if group.gathering is None:
            group.gathering = Gathering(now)
            self._roster.dirty = True
            self._roster.notify(Event.FROZEN, f"epoch {group.epoch} of group {group.view.group}", epoch=group.epoch)
            freeze = FreezeEpoch(group.epoch)
            for peer in group.members:
                if peer != reporter and self._roster.peers[peer].known:
                    self._roster.send(peer, freeze)
        return group.gathering

    def gathered(self, group: Group) -> bool:
        """Whether all survivors have reported and nobody among them is under suspicion."""
        gathering = group.gathering
        return (
            gathering is not None
            and len(gathering.reports) == len(group.members)
            and not self._suspicions.any_of(group.members)
        )

    def got_something_done(self, group: Group) -> bool:
        """Whether the reports of a gathered group tell of an operation that succeeded."""
        reports = _reports(group)
        return any(line.returned_below for report in reports.values() for line in report.lines) or bool(
            commits(reports)
        )

    def change(
        self,
        numbers: list[int],
        admitting: list[PeerId],
        answers: list[Answer],
        now: int,
        figures: Figures = NO_FIGURES,
    ) -> list[Answer]:
        """The only way to a new epoch: the gathered groups `numbers`, and those of the newcomers, get new views, with
        the prices that come of what voters measured, and the callers of a vote their answers, which are returned as
        they were journalled (the owner of votes tells them). Newcomers stand in the order of their places, those of one
        place as they come in `admitting`."""
        roster = self._roster
        newcomers: dict[int, list[Admission]] = {number: [] for number in numbers}
        for peer in sorted(admitting, key=lambda peer: roster.pending[peer].place):
            it = roster.pending[peer]
            assert it.member is not None  # Register made it pending
            newcomers.setdefault(it.group, []).append(Admission(it.id, it.secret, it.group, it.member))
        views = [
            self._next_view(number, admissions, roster.past.epoch + 1 + index, now, figures)
            for index, (number, admissions) in enumerate(newcomers.items())
        ]
        census = roster.census_with(views)
        views = [replace(view, census=census) for view in views]
        answers = self.dated(answers, views)
        admissions = tuple(it for entries in newcomers.values() for it in entries)
        roster.commit(Change(admissions, tuple(views), tuple(answers)))
        for admission in admissions:
            entry = roster.pending.pop(admission.id)
            entry.phase = Phase.ACCEPTED
            roster.accepted += 1
            roster.notify(Event.ACCEPTED, f"{entry.name} into group {entry.group}", entry.id)
        for view in views:
            old = roster.groups.get(view.group)
            roster.groups[view.group] = Group(view, list(view.members), sync=old.sync if old else None)
        for view in views:
            self._tell_view(view)
        roster.dirty = True
        return answers

    def dated(self, answers: Sequence[Answer], views: Sequence[GroupView] = ()) -> list[Answer]:
        """`answers` of members, with the epoch and the numbers of the run that they are true for: those of now, or of
        `views` that come with them."""
        census, fresh = self._roster.census_with(views), {view.group: view.epoch for view in views}

        def epoch_of(peer: PeerId) -> int:
            number = self._roster.peers[peer].group
            return fresh[number] if number in fresh else self._roster.groups[number].epoch

        return [replace(it, epoch=epoch_of(it.peer), census=census) for it in answers]

    def _tell_view(self, view: GroupView) -> None:
        """The view is journalled and the group's own."""
        line = f"group {view.group}: {len(view.members)} members; {view.text}"
        self._roster.notify(Event.VIEW, line, epoch=view.epoch)
        message = self.view_message(view)
        for peer in view.members:
            self._roster.send(peer, message)

    def _next_view(
        self, number: int, newcomers: Sequence[Admission], epoch: int, now: int, figures: Figures
    ) -> GroupView:
        group = self._roster.groups.get(number)
        survivors = group.members if group else []
        members = [*survivors, *(it.id for it in newcomers)]
        admitted = tuple(range(len(survivors), len(members)))
        self._links.offer(members, now)
        arranged = self.arrangement(members, now, newcomers)
        ranks = {peer: rank for rank, peer in enumerate(members)}
        avoided = tuple(sorted(_ranks(pair, ranks) for pair in self._links.avoided(members)))
        prices = self.prices(group, figures) if group else NO_PRICES
        links = (int(arranged.shape), arranged.parents, avoided, prices)
        if group is None or group.gathering is None:
            text = "the group begins"
            return GroupView(epoch, 0, number, tuple(members), arranged.ring, admitted, (), Status.OK, text, *links)
        status, text = cause_of(group)
        decided = commits(_reports(group))
        return GroupView(
            epoch,
            group.epoch,
            number,
            tuple(members),
            arranged.ring,
            admitted,
            decided,
            status,
            clip(text),
            *links,
        )

    def arrangement(self, members: Sequence[PeerId], now: int, newcomers: Sequence[Admission] = ()) -> Arrangement:
        """What the next view of `members` has, with links that have healed; some of them may be `newcomers` that the
        journal does not have yet."""
        fresh = {it.id: it for it in newcomers}
        known = self._roster.past.admissions
        placed = [(fresh.get(peer) or known[peer]).member.host_id for peer in members]
        ranks = {peer: rank for rank, peer in enumerate(members)}
        avoided = [_ranks(pair, ranks) for pair in self._links.avoided(members, offering=True)]
        shaky = [_ranks(pair, ranks) for pair in self._links.shaky(members, now)]
        return arrange(placed, avoided, shaky)

    def prices(self, group: Group, figures: Figures) -> Prices:
        """What links between the survivors cost, as far as any of them told."""
        ranks = {peer: rank for rank, peer in enumerate(group.members)}
        hosts = [self._roster.past.admissions[peer].member.host_id for peer in group.members]
        known = [
            Measured(rank, ranks[link.peer], link.latency_ns, link.bytes_per_s)
            for rank, peer in enumerate(group.members)
            for link in figures.get(peer, ())
            if link.peer in ranks and link.peer != peer
        ]
        return agree(hosts, known, group.view.prices)

    def would_change(self, group: Group, figures: Figures, now: int) -> bool:
        """Whether a next view of the same members would be arranged in another way, or have other prices. A group that
        is being gathered changes in any case, and its survivors need not hang together before those that are cut off
        are known."""
        if group.gathering is not None:
            return True
        other_prices = self.prices(group, figures) != group.view.prices
        return other_prices or self.arrangement(group.members, now) != self.present(group)

    def has_healed(self, group: Group) -> bool:
        """Whether a link that the group avoids stands again."""
        return self._links.avoided(group.members) != self._links.avoided(group.members, offering=True)

    def apart(self, group: Group) -> dict[PeerId, tuple[PeerId, ...]]:
        """To whom a member has no link that is to be used."""
        found: dict[PeerId, tuple[PeerId, ...]] = {}
        for one, other in self._links.avoided(group.members):
            found[one] = (*found.get(one, ()), other)
            found[other] = (*found.get(other, ()), one)
        return found

    def present(self, group: Group) -> Arrangement:
        """That of the current view."""
        return Arrangement(Shape(group.view.shape), group.view.ring, group.view.parents)

    def end_group(self, number: int) -> None:
        """The last member is gone. What its shared state remembers stays, for whoever founds the group again."""
        view = self._roster.groups.pop(number).view
        epoch = self._roster.past.epoch + 1
        ended = GroupView(epoch, view.epoch, number, (), (), (), (), Status.OK, "the group has ended")
        self._roster.commit(Change(views=(ended,)))

    def view_message(self, view: GroupView) -> View:
        """What the members of `view` are told. One object for all of them: they may ask at once."""
        if self._told is None or self._told[0] is not view:
            self._told = (view, self._message(view))
        return self._told[1]

    def _message(self, view: GroupView) -> View:
        members = tuple(self._roster.past.admissions[peer].member for peer in view.members)
        return View(
            view.epoch,
            view.previous,
            view.group,
            members,
            view.ring,
            view.admitted,
            view.commits,
            view.cause,
            view.text,
            view.census,
            view.shape,
            view.parents,
            view.prices,
        )


def _reports(group: Group) -> dict[int, Report]:
    """Those of the survivors of a gathered group, by rank in the epoch that ends."""
    assert group.gathering is not None
    told = group.gathering.reports
    survivors = dict.fromkeys(group.members, True)
    return {rank: told[peer] for rank, peer in enumerate(group.view.members) if peer in survivors}


def _ranks(pair: tuple[PeerId, PeerId], ranks: dict[PeerId, int]) -> tuple[int, int]:
    low, high = sorted((ranks[pair[0]], ranks[pair[1]]))
    return low, high
