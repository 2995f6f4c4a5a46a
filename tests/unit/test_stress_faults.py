# SPDX-License-Identifier: MIT
"""Faults from a seed: the same ones each time, drawn as the scenario says, never so many that nobody is left."""

from __future__ import annotations

from collections import Counter
from itertools import islice, pairwise

from hypothesis import given
from hypothesis import strategies as st

from pccl.stress import faults, scenario
from pccl.stress.faults import Fault
from pccl.stress.kinds import KINDS
from pccl.stress.scenario import Scenario, Source

SOURCES = (Source("kill", 3.0), Source("stop", 1.0, (2.0, 4.0)), Source("cut", 1.0, (1.0, 1.0)))
SOME = Scenario("some", "", gap_s=(1.0, 2.0), double=0.3, faults=SOURCES)


def drawn(seed: int, count: int = 400, able: tuple[str, ...] = tuple(KINDS)) -> list[Fault]:
    return list(islice(faults.plan(SOME, seed, able), count))


def test_a_seed_decides_everything() -> None:
    assert drawn(7) == drawn(7)
    assert drawn(7) != drawn(8)


def test_weights_holds_and_gaps_are_kept() -> None:
    found = drawn(1)
    counts = Counter(fault.kind for fault in found)
    assert 2 < counts["kill"] / counts["stop"] < 4.5
    for fault in found:
        if fault.kind == "stop":
            assert 2.0 <= fault.hold_s <= 4.0
        assert 1.0 <= fault.gap_s <= 2.0
    together = sum(fault.joins for fault in found)
    assert 0.1 < together / len(found) < 0.35
    assert not any(before.joins and after.joins for before, after in pairwise(found))


def test_what_hosts_cannot_do_is_never_drawn() -> None:
    assert {fault.kind for fault in drawn(1, able=("kill", "stop"))} == {"kill", "stop"}
    assert drawn(1, able=("leave",)) == []


@given(st.sampled_from(sorted(KINDS)), st.integers(0, 8), st.integers(0, 4), st.floats(0, 1, exclude_max=True))
def test_enough_are_left_alone(kind: str, living: int, keep: int, draw: float) -> None:
    candidates = list(range(10, 10 + living))
    chosen = faults.choose(Fault(kind, 0, 0, draw, draw), candidates, keep)
    assert set(chosen) <= set(candidates)
    assert len(set(chosen)) == len(chosen)
    assert not chosen or living - len(chosen) >= keep
    assert bool(chosen) == (living > keep)
    assert len(chosen) <= 1 or kind == "partition"


def test_every_kind_of_a_scenario_exists() -> None:
    for name in scenario.names():
        for source in scenario.load(name).faults:
            assert KINDS[source.kind].held == (source.hold_s[1] > 0)
