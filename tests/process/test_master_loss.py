# SPDX-License-Identifier: MIT
"""The master dies, or its host is cut off: no connection ends, nothing gets through. Nobody's operation fails (G12)."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.process.faults import long
from tests.process.harness import LIMIT_S
from tests.process.team import LARGE, SMALL, Team

pytestmark = pytest.mark.process


def hold_all(team: Team, on: bool) -> None:
    for member in team.all:
        member.control.set(hold=on)


@pytest.mark.parametrize("restart", [False, *long(True)])
def test_operations_go_on_while_the_master_is_cut_off(tmp_path: Path, restart: bool) -> None:
    with Team(tmp_path, 3, journal=True, master=("--heartbeat-timeout", "1")) as team:
        team.works()
        before = team.footprint(team.all)
        hold_all(team, True)
        epochs = set()
        for _ in range(12):  # each footprint takes a quarter of a second in which the master hears nothing
            team.tell(team.all, "stream", steps=50)
            epochs |= {it["epoch"] for it in team.answers("streamed", team.all)}
            team.footprint(team.all)
        assert len(epochs) == 1
        if restart:
            team.run.master.kill()
            team.run.master.start()
        hold_all(team, False)
        team.works()
        team.tell(team.all, "vote")
        team.answers("voting", team.all)
        team.answers("voted", team.all)
        team.back_to(before, team.all)
        team.recruit()
        team.works()


@pytest.mark.parametrize("elements", [LARGE, *long(SMALL)])
def test_the_master_dies_in_an_operation_and_comes_back(tmp_path: Path, elements: int) -> None:
    """B46: killed at a chosen byte of an operation, which succeeds, as do all that follow. Started again at the same
    port, it lets newcomers in."""
    with Team(tmp_path, 3, journal=True) as team:
        team.works()
        before = team.footprint(team.all)
        whole = team.traffic("all_reduce", elements, True)
        killed = threading.Event()

        def kill() -> None:
            team.run.master.kill()
            killed.set()

        team.data.at(whole // 2, kill)
        team.begin("all_reduce", elements, True)
        outcome = team.outcomes()
        assert (outcome.lost, outcome.members) == (0, sorted(team.members))
        assert killed.wait(LIMIT_S)
        team.works()
        team.run.master.start()
        team.tell(team.all, "vote")
        team.answers("voting", team.all)
        team.answers("voted", team.all)
        team.back_to(before, team.all)
        team.recruit()
        team.works()


def test_a_master_that_stays_away_is_an_error_for_whoever_needs_it(tmp_path: Path) -> None:
    """B46: nobody waits for ever. Joint calls end with MasterLost after `master_timeout`."""
    with Team(tmp_path, 2, master=("--heartbeat-timeout", "2"), master_timeout=2.0) as team:
        team.works()
        team.run.master.kill()
        team.tell(team.all, "vote")
        team.answers("voting", team.all)
        assert {it["error"] for it in team.answers("error", team.all)} == {"MasterLost"}
