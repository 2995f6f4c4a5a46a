# SPDX-License-Identifier: MIT
"""A member is killed in each collective by each algorithm, deterministic or not, with even parts and others, over TCP,
through shared memory and where groups have both, committed one by one or later.

`test_matrix` combines all faults with all phases; which algorithm runs is left to sizes there.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from pccl import Algorithm
from pccl.stress.program import Task
from pccl.stress.workload import ALGORITHMS, DETERMINISTIC, FORMS, FORMS_OF_ALL_LINKS, FROM_ROOT
from tests.process.harness import named_segments
from tests.process.team import LARGE, RSS_BYTES, SMALL, Team

pytestmark = [pytest.mark.process, pytest.mark.alone]

Options = dict[str, Any]
Case = tuple[str, bool, Options]

SETUPS: dict[str, dict[str, Any]] = {
    "tcp": {},
    "two hosts": {"shm": "auto", "hosts": 2, "p2p_connection_pool_size": 2},  # else their number is by round trip
    "shm": {"shm": "auto"},
    "deferred": {"commit": "deferred"},
}
BELLS = 64
"""So few bytes are no data: where memory is shared, one wakes who sleeps."""
TRANSPORTS = {"tcp": {"tcp"}, "two hosts": {"tcp", "shm"}, "shm": {"shm"}, "deferred": {"tcp"}}


def options_of(collective: str) -> list[Options]:
    """All that a call may ask for: algorithms, and those that have a fixed order also with that."""
    forced = [Task(collective, 0, algorithm=one) for one in ALGORITHMS.get(collective, ())]
    fixed = [Task(collective, 0, algorithm=one, deterministic=True) for one in DETERMINISTIC.get(collective, ())]
    return [task.options for task in (Task(collective, 0), *forced, *fixed)]


CASES = [
    (collective, in_place, options)
    for collective, in_place in [*FORMS, *FORMS_OF_ALL_LINKS]
    for options in options_of(collective)
]
"""Every collective, in place and not, with everything that it may be asked for."""


def once_each() -> list[Case]:
    """One case for all that a collective may be asked for, in place or not by turns."""
    kinds: dict[str, list[Case]] = {}
    for case in CASES:
        kinds.setdefault(f"{case[0]} {case[2]}", []).append(case)
    return [forms[(turn + turn // len(SETUPS)) % len(forms)] for turn, forms in enumerate(kinds.values())]


def strike(team: Team, collective: str, elements: int, in_place: bool, options: Options) -> None:
    """One of four is killed in the middle of what passes through the relays; if that are only bells, once all have been
    told to call. The survivors agree on an exact result, and another one takes its place."""
    everyone, victim = sorted(team.members), team.all[2]
    survivors = team.others(victim)
    half = team.traffic(collective, elements, in_place, **options) // 2
    if half > BELLS:
        team.data.at(half, victim.child.kill)
    team.begin(collective, elements, in_place, **options)
    if half <= BELLS:
        victim.child.kill()
    result = team.outcomes(survivors)
    victim.child.kill()  # with fewer acknowledgements than before, it comes after the operation
    team.gone(victim)
    wish = options.get("algorithm", Algorithm.AUTO)
    assert wish in (Algorithm.AUTO, result.algorithm), f"{collective} by {Algorithm(result.algorithm).name}"
    if collective not in FROM_ROOT:
        assert result.members in (everyone, sorted(team.members)), f"{collective} of {result.members}"
    team.settle()
    team.recruit()


def play(folder: Path, setup: str, cases: list[Case], sizes: tuple[int, ...]) -> None:
    """One case after the other; afterwards nothing of it is left, in no process and nowhere else."""
    named = named_segments()
    with Team(folder, 4, **SETUPS[setup]) as team:
        team.works()
        assert team.transports() == TRANSPORTS[setup]
        before = team.footprint(team.all)
        for (collective, in_place, options), elements in zip(cases, itertools.cycle(sizes), strict=False):
            strike(team, collective, elements, in_place, options)
        team.works()
        team.back_to(before, team.all, 4 * RSS_BYTES)  # with what an engine keeps for large operations to come
    assert named_segments() <= named


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("setup", SETUPS)
def test_a_death_in_each_algorithm(tmp_path: Path, setup: str) -> None:
    """Each collective by each algorithm once, taking turns."""
    cases = once_each()[list(SETUPS).index(setup) :: len(SETUPS)]
    assert len(cases) > 10
    play(tmp_path, setup, cases, (SMALL, LARGE))


@pytest.mark.matrix
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("elements", [SMALL, LARGE])
@pytest.mark.parametrize("setup", SETUPS)
def test_a_death_in_each_algorithm_each_way(tmp_path: Path, setup: str, elements: int) -> None:
    play(tmp_path, setup, CASES, (elements,))
