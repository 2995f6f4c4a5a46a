# SPDX-License-Identifier: MIT
"""One fault that was performed, and how long the peers took to get over it.

*Recovered* is when every survivor has finished a correct step that the fault can no longer delay: one that began after
it, or that the victims had no part in. *Whole* is when, after the heal, all peers that live have done a step together.

Must not know: processes, clocks. Times are seconds since the start of the run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from pccl.stress.faults import Fault


@dataclass
class Trial:
    """`victims` and `survivors` are peers' numbers; a survivor that meets its own fault later counts no more."""

    fault: Fault
    at_s: float
    victims: tuple[int, ...]
    survivors: set[int]
    world: int
    recovered_s: float | None = None
    recovery_s: float | None = None
    healed_s: float | None = None
    whole_s: float | None = None
    failed_steps: int = 0
    void: bool = False
    _waiting: set[int] = field(default_factory=set)
    _together: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._waiting = set(self.survivors)

    @property
    def text(self) -> str:
        """For people: what happened to whom."""
        whom = " and ".join(f"peer {number}" for number in self.victims)
        return f"{self.fault.traits.what}: {whom}" if whom else self.fault.traits.what

    @property
    def over(self) -> bool:
        """Whether there is nothing left to wait for."""
        return self.recovered_s is not None and self.whole_s is not None

    def stepped(self, number: int, begin_s: float, end_s: float, members: Collection[int], living: set[int]) -> None:
        """A peer has finished a step together with `members`."""
        if number in self._waiting and end_s > self.at_s:
            untouched = bool(self.victims) and not set(members) & set(self.victims)
            if begin_s > self.at_s or untouched:
                self._waiting.discard(number)
                self._settle(end_s)
        if self.healed_s is not None and self.whole_s is None and begin_s > self.healed_s and living <= set(members):
            self._together.add(number)
            if living <= self._together:
                self.whole_s = end_s

    def lost(self, number: int) -> None:
        """An operation of a peer has failed."""
        if self.recovered_s is None:
            self.failed_steps += 1

    def leaves(self, numbers: Iterable[int], at_s: float) -> None:
        """Peers are hit by another fault: nothing can be expected of them."""
        self._waiting -= set(numbers)
        self._settle(at_s)

    def healed(self, at_s: float) -> None:
        """The fault is over, its victims are back or replaced."""
        self.healed_s = at_s

    def explain(self) -> str:
        """Whom it waits for."""
        if self.recovered_s is None:
            waiting = ", ".join(f"peer {number}" for number in sorted(self._waiting))
            return f"no step of {waiting} since {self.text}"
        return f"no step of all peers together since the end of: {self.text}"

    def _settle(self, at_s: float) -> None:
        if self.recovered_s is None and not self._waiting:
            self.recovered_s = at_s
            self.recovery_s = at_s - self.at_s
