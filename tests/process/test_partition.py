# SPDX-License-Identifier: MIT
"""A network in two halves, the master in one of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.process.team import LARGE, Member, Team

pytestmark = [pytest.mark.process, pytest.mark.alone]

MASTER = ("--heartbeat-timeout", "2")
REVISION = 5


def divide(team: Team, far: list[Member], hold: bool) -> None:
    """Nothing gets from one half to the other, nor from the far one to the master."""
    near = [member for member in team.all if member not in far]
    for one in far:
        one.control.set(hold=hold)
        for other in near:
            one.data.set(name=other.id, hold=hold)
            other.data.set(name=one.id, hold=hold)


def test_only_the_master_s_half_goes_on(tmp_path: Path) -> None:
    """B41: three and three. One half produces results, for three; the other gets errors. Healed, all six are one group
    again, with one state."""
    with Team(tmp_path, 6, master=MASTER, master_timeout=6.0) as team:
        team.works()
        near, far = team.all[::2], team.all[1::2]
        team.data.at(team.traffic("all_reduce", LARGE, True) // 2, lambda: divide(team, far, True))
        team.begin("all_reduce", LARGE, True)
        assert team.outcomes(near).members in ([it.number for it in near], sorted(team.members))
        team.tell(near, "prepare", revision=REVISION)
        team.answers("prepared", near)
        errors = {it["error"] for it in team.answers("error", far)}
        assert errors <= {"MasterLost"}, errors
        for member in far:
            team.gone(member)
        team.settle()
        team.members |= {member.number: member for member in far}
        divide(team, far, False)
        for member in far:
            team.gone(member)
        team.let_in(far, "rejoin")
        team.tell(far, "prepare", revision=-1)
        team.answers("prepared", far)
        team.tell(team.all, "sync")
        team.answers("syncing", team.all)
        synced = team.answers("synced", team.all)
        assert {it["revision"] for it in synced} == {REVISION}
        assert len({it["digest"] for it in synced}) == 1
        team.works()
