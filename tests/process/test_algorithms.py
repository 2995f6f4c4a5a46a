# SPDX-License-Identifier: MIT
"""A member is killed in each collective by each algorithm, over TCP and through shared memory.

`test_matrix` combines all faults with all phases; which algorithm runs is left to sizes there.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pccl import Algorithm
from pccl.stress.workload import FORMS, FORMS_OF_ALL_LINKS, FROM_ROOT
from tests.process.faults import long
from tests.process.team import LARGE, SMALL, Team

pytestmark = pytest.mark.process

ALGORITHMS = {
    "all_reduce": ["RING", "HALVING", "STAR", "DOUBLING"],
    "reduce_scatter": ["RING"],
    "all_gather": ["RING", "BRUCK"],
    "broadcast": ["CHAIN", "BINOMIAL", "STAR"],
    "reduce": ["CHAIN", "BINOMIAL", "STAR"],
    "gather": ["STAR", "LINE"],
    "scatter": ["STAR", "LINE"],
    "all_to_all": ["PAIRWISE", "BRUCK", "LINE"],
    "scan": ["CHAIN", "DOUBLING", "LINE"],
    "exscan": ["CHAIN", "DOUBLING", "LINE"],
}
"""All but those that only a group without some links uses."""

CALLS = [(collective, algorithm) for collective, names in ALGORITHMS.items() for algorithm in names]


def lose(team: Team, collective: str, elements: int, in_place: bool, at_once: bool = False, **more: int) -> int:
    """One of four is killed in the middle of what passes through the relays, or when all have been told to call. The
    survivors agree on an exact result, and another one takes its place. Returns the algorithm that ran."""
    everyone, victim = sorted(team.members), team.all[2]
    survivors = team.others(victim)
    team.data.at(max(1, team.traffic(collective, elements, in_place, **more) // 2), victim.child.kill)
    team.begin(collective, elements, in_place, **more)
    if at_once:
        victim.child.kill()
    result = team.outcomes(survivors)
    victim.child.kill()  # with fewer acknowledgements than before, it comes after the operation
    team.gone(victim)
    if collective not in FROM_ROOT:
        assert result.members in (everyone, sorted(team.members)), f"{collective} of {result.members}"
    team.settle()
    team.recruit()
    return result.algorithm


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("elements", "in_place"), [(SMALL, True), *long((SMALL, False), (LARGE, False), (LARGE, True))]
)
def test_a_death_in_each_algorithm(tmp_path: Path, elements: int, in_place: bool) -> None:
    with Team(tmp_path, 4) as team:
        team.works()
        for collective, algorithm in CALLS:
            if (collective, in_place) in FORMS:
                wish = Algorithm[algorithm]
                assert lose(team, collective, elements, in_place, algorithm=wish) == wish, collective
        for collective, placed in FORMS_OF_ALL_LINKS:
            if placed == in_place:
                lose(team, collective, elements, in_place)
        team.works()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("all_forms", [False, *long(True)])
def test_a_death_in_each_collective_through_shared_memory(tmp_path: Path, all_forms: bool) -> None:
    with Team(tmp_path, 4, shm="auto") as team:
        team.works()
        assert team.shares_memory
        for turn, (collective, in_place) in enumerate([*FORMS, *FORMS_OF_ALL_LINKS]):
            if all_forms or turn % 2 == 0:
                lose(team, collective, LARGE, in_place, at_once=True)
        team.works()
