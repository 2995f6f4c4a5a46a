# SPDX-License-Identifier: MIT
"""How the traffic between peers is disturbed: by relays that they advertise instead of themselves, or in namespaces.

`Weather` is what ought to be, as plain sets: which peers, or hosts, hear nothing, are cut off, or are slow. The two
ways to make it so differ only in how they carry that out; both do it whole after every change, so faults may overlap
and end in any order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Literal, Protocol

from pccl.stress.kinds import KINDS
from pccl.stress.namespaces import Namespace, Namespaces
from pccl.stress.relay import Link, Relay


@dataclass
class Weather:
    """Counts, since two faults of one kind may hit the same place."""

    isolated: Counter[int] = field(default_factory=Counter)
    deaf: Counter[int] = field(default_factory=Counter)
    unplugged: Counter[int] = field(default_factory=Counter)
    slow: Counter[int] = field(default_factory=Counter)
    sides: list[frozenset[int]] = field(default_factory=list)

    def begin(self, kind: str, places: Iterable[int]) -> None:
        """A fault of that kind begins in these places."""
        if kind == "partition":
            self.sides.append(frozenset(places))
        else:
            self._of(kind).update(places)

    def end(self, kind: str, places: Iterable[int]) -> None:
        """It ends."""
        if kind == "partition":
            self.sides.remove(frozenset(places))
        else:
            self._of(kind).subtract(places)

    def blocked(self, source: int, target: int) -> bool:
        """Whether nothing gets from one peer to another."""
        alone = any(counts[place] > 0 for counts in (self.isolated, self.unplugged) for place in (source, target))
        return alone or self.deaf[target] > 0 or any((source in side) != (target in side) for side in self.sides)

    def masterless(self, place: int) -> bool:
        """Whether it cannot reach the master."""
        return self.unplugged[place] > 0 or any(place in side for side in self.sides)

    def _of(self, kind: str) -> Counter[int]:
        return {"half-open": self.isolated, "one-way": self.deaf, "cut": self.unplugged, "slow": self.slow}[kind]


@dataclass(frozen=True)
class Place:
    """How a peer reaches the master, what it advertises instead of its own address, and whether it may go through
    shared memory where it could."""

    master: str
    advertise: str | None = None
    shm: Literal["auto", "off"] = "off"


class Links(Protocol):
    """What a supervisor asks of the network."""

    able: frozenset[str]
    """The kinds of link faults that it can do."""

    def place(self, number: int, seat: int, master: str) -> Place:
        """For a peer that is about to start; `master` is the real address."""

    def joined(self, number: int, peer: str) -> None:
        """It has joined with that peer id, in hexadecimal digits; possibly not for the first time."""

    def ended(self, number: int) -> None:
        """Its process is gone."""

    def begin(self, kind: str, numbers: Sequence[int]) -> None:
        """Does a fault to the links of peers."""

    def heal(self, kind: str, numbers: Sequence[int]) -> None:
        """Undoes it."""

    def close(self) -> None:
        """Frees what it has."""


class PlainLinks:
    """Nothing is done to them."""

    able: frozenset[str] = frozenset()

    def place(self, number: int, seat: int, master: str) -> Place:
        """As it is."""
        return Place(master, shm="auto")

    def joined(self, number: int, peer: str) -> None:
        """Of no interest."""

    def ended(self, number: int) -> None:
        """Of no interest."""

    def begin(self, kind: str, numbers: Sequence[int]) -> None:
        """Never asked for."""

    def heal(self, kind: str, numbers: Sequence[int]) -> None:
        """Never asked for."""

    def close(self) -> None:
        """Has nothing."""


@dataclass
class _Wire:
    """The two relay links of one peer, and the id that it greets others with."""

    data: Link
    control: Link
    peer: str | None = None


class RelayLinks:
    """All traffic of peers on this machine goes through one relay in this process."""

    able = frozenset(name for name, kind in KINDS.items() if kind.links)

    def __init__(self, slow_rate: int) -> None:
        """`slow_rate` in bits a second."""
        self._relay = Relay()
        self._slow_bytes = slow_rate // 8
        self._weather = Weather()
        self._wires: dict[int, _Wire] = {}

    def place(self, number: int, seat: int, master: str) -> Place:
        """Two new links: one before the master, one before the peer."""
        data = self._relay.before_peer()
        control = self._relay.link(master)
        self._wires[number] = _Wire(data, control)
        return Place(control.address, data.address)

    def joined(self, number: int, peer: str) -> None:
        """From now on its dials are known by that name."""
        self._wires[number].peer = peer
        self._apply()

    def ended(self, number: int) -> None:
        """Its links end."""
        wire = self._wires.pop(number, None)
        if wire is not None:
            for link in (wire.data, wire.control):
                link.close()

    def begin(self, kind: str, numbers: Sequence[int]) -> None:
        """From the next byte on."""
        if kind == "reset":
            self._reset(numbers)
        else:
            self._weather.begin(kind, numbers)
            self._apply()

    def heal(self, kind: str, numbers: Sequence[int]) -> None:
        """What was held back goes on."""
        if KINDS[kind].held:
            self._weather.end(kind, numbers)
            self._apply()

    def close(self) -> None:
        """Ends all connections."""
        self._relay.close()

    def _reset(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            wire = self._wires[number]
            wire.data.reset()
            for other in self._wires.values():
                if other is not wire and wire.peer is not None:
                    other.data.reset(wire.peer)

    def _apply(self) -> None:
        """A connection's dialler sends up and hears down."""
        for dialler, target in permutations(self._wires, 2):
            name = self._wires[dialler].peer
            if name is not None:
                slow = self._weather.slow[dialler] > 0 or self._weather.slow[target] > 0
                rate = self._slow_bytes if slow else 0
                link = self._wires[target].data
                link.set("up", name=name, hold=self._weather.blocked(dialler, target), total_rate=rate)
                link.set("down", name=name, hold=self._weather.blocked(target, dialler), total_rate=rate)
        for number, wire in self._wires.items():
            wire.control.set(hold=self._weather.masterless(number))


class NamespaceLinks:
    """Routes into nowhere, interfaces that are down, queues that are slow. A fault hits all peers of a host."""

    able = frozenset({"half-open", "one-way", "cut", "slow", "partition"})

    def __init__(self, namespaces: Namespaces, usual_rate: int, slow_rate: int) -> None:
        """Rates in bits a second; 0 is no limit."""
        self._namespaces = namespaces
        self._rates = {False: usual_rate, True: slow_rate}
        self._weather = Weather()
        self._hosts: dict[int, int] = {}
        self._blocked: set[tuple[Namespace, Namespace]] = set()
        self._down: set[Namespace] = set()
        self._slow: set[Namespace] = set()

    def place(self, number: int, seat: int, master: str) -> Place:
        """As it is; hosts have addresses of their own."""
        self._hosts[number] = seat % len(self._namespaces.hosts)
        return Place(master)

    def joined(self, number: int, peer: str) -> None:
        """Of no interest."""

    def ended(self, number: int) -> None:
        """Of no interest."""

    def begin(self, kind: str, numbers: Sequence[int]) -> None:
        """For all of their hosts."""
        self._weather.begin(kind, self._places(numbers))
        self._apply()

    def heal(self, kind: str, numbers: Sequence[int]) -> None:
        """For all of their hosts."""
        self._weather.end(kind, self._places(numbers))
        self._apply()

    def close(self) -> None:
        """The namespaces go as a whole."""

    def _places(self, numbers: Sequence[int]) -> set[int]:
        return {self._hosts[number] for number in numbers}

    def _apply(self) -> None:
        """Changes what differs from what there is."""
        hosts, master, weather = self._namespaces.hosts, self._namespaces.master, self._weather
        down = {host for index, host in enumerate(hosts) if weather.unplugged[index] > 0}
        slow = {host for index, host in enumerate(hosts) if weather.slow[index] > 0}
        blocked = {
            (hosts[source], hosts[target])
            for source, target in permutations(range(len(hosts)), 2)
            if weather.blocked(source, target) and not {hosts[source], hosts[target]} & down
        }
        for index, host in enumerate(hosts):
            if weather.masterless(index) and host not in down:
                blocked |= {(host, master), (master, host)}
        for host in down ^ self._down:
            self._namespaces.set_up(host, host not in down)
        for host in slow ^ self._slow:
            self._namespaces.set_rate(host, self._rates[host in slow])
        for source, target in blocked ^ self._blocked:
            self._namespaces.block(source, target, (source, target) in blocked)
        self._blocked, self._down, self._slow = blocked, down, slow
