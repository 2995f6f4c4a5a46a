# SPDX-License-Identifier: MIT
"""The master's host is cut off: no connection ends, nothing gets through. Nobody's operation fails (G12)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.process.team import Team

pytestmark = pytest.mark.process


def hold_all(team: Team, on: bool) -> None:
    for member in team.all:
        member.control.set(hold=on)


@pytest.mark.parametrize("restart", [False, True])
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
