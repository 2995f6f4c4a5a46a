# SPDX-License-Identifier: MIT
"""Failures during recovery: the moment a survivor reports the first loss to the master, something else breaks."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from pccl.stress.workload import FORMS
from tests.process.faults import FAULTS, OPTIONS
from tests.process.harness import LIMIT_S
from tests.process.team import LARGE, SMALL, Team

pytestmark = [pytest.mark.process, pytest.mark.alone]

MASTER = ("--heartbeat-timeout", "2")


SHORT = [("kill", SMALL), ("kill", LARGE), ("pause", SMALL), ("cut_off", LARGE), ("reset", LARGE)]


def twice(team: Team, fault: str, collective: str, elements: int, in_place: bool) -> None:
    """The first of four is killed in the middle of an operation; the second gets its fault when the third has
    something to tell the master."""
    second_fault = FAULTS[fault]
    first, second, *others = team.all
    survivors = others if second_fault.gone else [second, *others]
    if second_fault.armed:
        team.tell([second], "arm", how=second_fault.armed)
        team.answers("armed", [second])
    whole = team.traffic(collective, elements, in_place)
    before = team.footprint(survivors)
    struck, again = threading.Event(), threading.Event()

    def strike() -> None:
        if not struck.is_set():
            struck.set()
            others[0].control.at("up", 1, strike_again)
            first.child.kill()

    def strike_again() -> None:
        second_fault.strike(team, second)
        again.set()

    team.data.at(max(1, whole // 2), strike)
    team.begin(collective, elements, in_place)
    team.outcomes(survivors)
    strike()  # with fewer acknowledgements than before, it comes after the operation
    assert again.wait(LIMIT_S)
    if second_fault.heal is not None:
        second_fault.heal(team, second)
    team.gone(first)
    if second_fault.gone:
        team.gone(second)
    team.settle()
    team.works()
    team.back_to(before, survivors)


@pytest.mark.parametrize(("fault", "elements"), SHORT)
def test_a_second_failure_before_the_verdict(tmp_path: Path, fault: str, elements: int) -> None:
    with Team(tmp_path, 4, master=MASTER, **OPTIONS) as team:
        team.works()
        collective, in_place = FORMS[list(FAULTS).index(fault) % len(FORMS)]
        twice(team, fault, collective, elements, in_place)


@pytest.mark.matrix
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("elements", [SMALL, LARGE])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_second_failure_in_each_collective(tmp_path: Path, fault: str, elements: int) -> None:
    with Team(tmp_path, 4, master=MASTER, **OPTIONS) as team:
        team.works()
        for collective, in_place in FORMS:
            twice(team, fault, collective, elements, in_place)
            team.recruit(4 - len(team.all))


@pytest.mark.parametrize("elements", [SMALL, LARGE])
def test_the_master_dies_before_its_verdict(tmp_path: Path, elements: int) -> None:
    with Team(tmp_path, 3, journal=True, master=MASTER) as team:
        team.works()
        victim, *survivors = team.all
        whole = team.traffic("all_reduce", elements, True)
        before = team.footprint(survivors)
        killed = threading.Event()

        def kill_master() -> None:
            team.run.master.kill()
            killed.set()

        def strike() -> None:
            survivors[0].control.at("up", 1, kill_master)
            victim.child.kill()

        team.data.at(whole // 2, strike)
        team.begin("all_reduce", elements, True)
        assert killed.wait(LIMIT_S)
        team.run.master.start()
        team.outcomes(survivors)
        team.gone(victim)
        team.recruit()
        team.works()
        team.back_to(before, survivors)
