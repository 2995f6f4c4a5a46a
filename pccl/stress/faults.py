# SPDX-License-Identifier: MIT
"""What goes wrong and in which order: an endless list of faults that depends on a scenario and a seed alone.

A fault says of its victims only what was drawn: a number from 0 to 1 that is turned into a peer when the fault begins,
by `choose`, since who lives then depends on the faults before.

Must not know: processes, clocks, networks.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pccl.stress.kinds import KINDS, Kind
from pccl.stress.scenario import Scenario


@dataclass(frozen=True)
class Fault:
    """One draw. `gap_s` passes between the recovery from what came before and this, unless it `joins` that at once."""

    kind: str
    gap_s: float
    hold_s: float
    draw: float
    share: float
    joins: bool = False

    @property
    def traits(self) -> Kind:
        """What all of its kind have in common."""
        return KINDS[self.kind]


def plan(scenario: Scenario, seed: int, able: Sequence[str]) -> Iterator[Fault]:
    """The faults of a seed, without end; none if the scenario has none of the `able` kinds."""
    chance = random.Random(seed)
    sources = [source for source in scenario.faults if source.kind in able]
    if not sources:
        return
    joins = False
    while True:
        source = chance.choices(sources, [source.weight for source in sources])[0]
        yield Fault(
            kind=source.kind,
            gap_s=chance.uniform(*scenario.gap_s),
            hold_s=chance.uniform(*source.hold_s),
            draw=chance.random(),
            share=chance.random(),
            joins=joins,
        )
        joins = not joins and chance.random() < scenario.double


def choose(fault: Fault, candidates: Sequence[int], keep: int) -> list[int]:
    """Whom it hits: one of `candidates` (several for a partition), so that `keep` of them are left; nobody if that
    cannot be."""
    most = len(candidates) - keep
    if most < 1:
        return []
    count = 1 + int(fault.share * most) if fault.kind == "partition" else 1
    first = int(fault.draw * len(candidates))
    return sorted(candidates[(first + step) % len(candidates)] for step in range(min(count, most)))
