# SPDX-License-Identifier: MIT
"""Members of one run, each behind relays of its own: one for what others dial, one for its way to the master.

A test says what all shall do, and lets a fault happen when exactly so many bytes have moved between them. Afterwards
`works` and `back_to` say whether the run is as good as new.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from pccl.fleet import Child
from pccl.stress.relay import Link, Relay
from pccl.stress.workload import FORMS, FROM_ROOT
from tests.process.harness import PATIENCE, Run
from tests.process.member import serving

SMALL = 1000
LARGE = 1 << 19
"""Elements: what doubling is used for, and what the ring is used for."""

RSS_BYTES = int((16 << 20) * PATIENCE)  # sanitizers hold freed memory back
IDLE_CPU = 0.1
ATTEMPTS = 40
"""How often an operation, or a footprint, is tried until it is as it was."""


@dataclass
class Member:
    """A process, what it is called by, and the relays around it."""

    number: int
    child: Child
    data: Link
    control: Link
    id: str = ""


@dataclass
class Outcome:
    """Of one operation, the same for all survivors: whose contributions are in the result (all survivors', where it
    does not tell). How many attempts failed before, at most, and what was told then. The epoch in which it succeeded;
    a verdict may have ended it there. By which algorithm."""

    members: list[int]
    lost: int
    texts: list[str]
    epoch: int
    algorithm: int


class Team:
    """A run of `peers` members, gathered when the `with` block begins. Leaving it kills all."""

    def __init__(
        self,
        folder: Path,
        peers: int,
        *,
        journal: bool = False,
        master: Sequence[str] = (),
        hosts: int = 0,
        **options: Any,
    ) -> None:
        """`master` are options of `pccl master`, `options` those of each Communicator. Members take each other for
        processes of so many hosts, in turn; 0: of the one that they are on."""
        self.run = Run(folder, journal=journal, options=master)
        self.data, self.control = Relay(), Relay()
        self.members: dict[int, Member] = {}
        self._peers = peers
        self._hosts = hosts
        self._options = {"shm": "off", "rdma": "off", **options}
        self._steps = self._numbers = 0
        self._fds = 0

    def __enter__(self) -> Team:
        self.run.__enter__()
        self.recruit(self._peers)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.run.__exit__(kind, error, trace)
        self.data.close()
        self.control.close()

    @property
    def all(self) -> list[Member]:
        """Who is believed to be there."""
        return list(self.members.values())

    def others(self, *without: Member) -> list[Member]:
        return [member for member in self.all if member not in without]

    # ------------------------------------------------------------ members come and go

    def start(self) -> Member:
        """A process that has not connected yet and is not among `members`."""
        control, data = self.control.link(self.run.master.address), self.data.before_peer()
        self._numbers += 1
        options = {"advertise": data.address, **self._options}
        if self._hosts > 0:
            options["host"] = 1 + self._numbers % self._hosts
        child = self.run.peer(serving, str(self._numbers), repr(options), address=control.address)
        member = Member(self._numbers, child, data, control)
        self.run.expect(child, "up")
        return member

    def recruit(self, count: int = 1) -> None:
        """Starts so many and waits until all are in."""
        self.let_in([self.start() for _ in range(count)])

    def let_in(self, newcomers: list[Member], how: str = "connect") -> None:
        """Makes these members, however they come ("rejoin" after an expulsion). Whoever is to be lost meanwhile is not
        to be among `members` any more."""
        present, peers = self.all, len(self.members) + len(newcomers)
        self.tell(newcomers, how, peers=peers)
        for member in newcomers:
            self.run.next_of(member.child, "connecting")
        self.tell(present, "admit", peers=peers)
        for member in newcomers:
            member.id = self.run.expect(member.child, "connected")["id"]
            self.members[member.number] = member
        self.answers("admitted", present)

    def gone(self, member: Member) -> None:
        """It is no member any more, nor believed to be."""
        del self.members[member.number]

    # ------------------------------------------------------------ what they do

    def tell(self, members: Iterable[Member], kind: str, **fields: Any) -> None:
        for member in members:
            member.child.tell(kind=kind, **fields)

    def answers(self, kind: str, members: Iterable[Member]) -> list[dict[str, Any]]:
        return [self.run.expect(member.child, kind) for member in members]

    def begin(
        self, collective: str, elements: int, in_place: bool, members: Iterable[Member] | None = None, **more: Any
    ) -> None:
        """Lets these, or all, start one operation. They call until they succeed. `more`: see COLLECTIVES."""
        members = self.all if members is None else list(members)
        self._steps += 1
        fields = {"collective": collective, "step": self._steps, "elements": elements, "in_place": in_place}
        self.tell(members, "run", more=more, **fields)

    def outcomes(self, survivors: Iterable[Member] | None = None) -> Outcome:
        """Waits for the results of `begin` and asserts that these, or all, agree on them."""
        survivors = self.all if survivors is None else list(survivors)
        results = [self.run.expect(member.child, "outcome") for member in survivors]
        assert len({(it["world_size"], it["epoch"]) for it in results}) == 1, f"survivors disagree: {results}"
        named = [it["members"] for it in results if it["members"] is not None]
        assert all(it == named[0] for it in named), f"different results: {results}"
        members = named[0] if named else sorted(member.number for member in survivors)
        worst = max(results, key=lambda it: len(it["lost"]))  # who had not called yet has nothing to lose
        return Outcome(members, len(worst["lost"]), worst["lost"], results[0]["epoch"], results[0]["algorithm"])

    def settle(self) -> None:
        """Operations until one succeeds at once, which all that are left have to take part in, and so does the next,
        in the same epoch: an operation may have succeeded just before a failure, and a broken link is noticed by who
        uses it. The master hears of it before the joint call between the two; it may be slower than a link that is
        dialled again and has carried an operation already, and ends the epoch all the same."""
        epoch = -1
        for _ in range(ATTEMPTS):
            self.begin("all_reduce", SMALL, True)
            outcome = self.outcomes()
            if outcome.lost == 0 and outcome.members == sorted(self.members):
                if outcome.epoch == epoch:
                    return
                epoch = outcome.epoch
            self.vote()
        raise AssertionError(f"after {ATTEMPTS} operations: {outcome}")

    def vote(self) -> None:
        """One joint call of all, without effect."""
        self.tell(self.all, "vote")
        self.answers("voting", self.all)
        self.answers("voted", self.all)

    def works(self) -> None:
        """Every collective of all members is exact at the first call."""
        for collective, in_place in FORMS:
            self.begin(collective, SMALL, in_place)
            outcome = self.outcomes()
            assert outcome.lost == 0, f"{collective} failed: {outcome.texts}"
            if collective not in FROM_ROOT:
                assert outcome.members == sorted(self.members), f"{collective} of {outcome.members}"

    # ------------------------------------------------------------ traffic

    def traffic(self, collective: str, elements: int, in_place: bool, **more: Any) -> int:
        """How many bytes an undisturbed operation moves between all members, roughly: acknowledgements vary."""
        before = self.data.total_bytes()
        self.begin(collective, elements, in_place, **more)
        self.outcomes()
        return self.data.total_bytes() - before

    def connections(self) -> int:
        """How many stand now between all members, through the relays."""
        return sum(member.data.counts().open for member in self.all)

    def reconnected(self, connections: int) -> None:
        """Waits until so many stand again. The members are to be idle."""
        for _ in range(ATTEMPTS):
            if self.connections() >= connections:
                return
            self._measured(self.all)
        raise AssertionError(f"{self.connections()} of {connections} connections stand")

    def transports(self) -> set[str]:
        """What links go through; of those that share memory, bytes take the way around the relays."""
        self.tell(self.all, "transports")
        return {name for it in self.answers("transports", self.all) for name in it["names"]}

    def links_of(self, member: Member) -> list[tuple[Link, str | None]]:
        """What the data of a member pass through: its own link, and its connections (by name) through the others'."""
        return [(member.data, None), *((other.data, member.id) for other in self.all if other is not member)]

    # ------------------------------------------------------------ what they take

    def footprint(self, members: Iterable[Member]) -> list[dict[str, Any]]:
        """What each member takes now, to be compared with `back_to`."""
        found = self._measured(list(members))
        self._fds = max(self._fds, *(it["fds"] for it in found))
        return found

    def back_to(self, before: list[dict[str, Any]], members: Iterable[Member], rss_bytes: int = RSS_BYTES) -> None:
        """Asserts that the members use no more than before, and nothing of the processor while idle. What they let go
        of takes a moment to be gone. Of memory: up to so much more. Of descriptors: no more than any member ever had
        before, since a link may just have been down when that was looked at."""
        members = list(members)
        for _ in range(ATTEMPTS):
            now = self._measured(members)
            worse = [
                (then, it)
                for then, it in zip(before, now, strict=True)
                if it["fds"] > max(then["fds"], self._fds)
                or it["threads"] > then["threads"]
                or it["segments"] > then["segments"]
                or it["rss_bytes"] > then["rss_bytes"] + rss_bytes
                or it["cpu"] > IDLE_CPU
            ]
            if not worse:
                return
        raise AssertionError(f"(before, now) of those that take more: {worse}")

    def _measured(self, members: list[Member]) -> list[dict[str, Any]]:
        self.tell(members, "footprint")
        return self.answers("footprint", members)
