# SPDX-License-Identifier: MIT
"""A donor or a fetcher fails in the middle of a shared-state synchronisation. The others end up with the same state."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.process.faults import FAULTS, OPTIONS, long
from tests.process.team import Member, Team

pytestmark = [pytest.mark.process, pytest.mark.alone]

MASTER = ("--heartbeat-timeout", "2")
REVISION = 5


def prepared(team: Team, fetchers: list[Member]) -> None:
    """All hold the state of REVISION but the fetchers, which hold nonsense."""
    for member in team.all:
        member.child.tell(kind="prepare", revision=-1 if member in fetchers else REVISION)
    team.answers("prepared", team.all)


def synced(team: Team, members: list[Member]) -> None:
    """They have called; all must hold the state of REVISION, as the members check element by element."""
    results = team.answers("synced", members)
    assert {it["revision"] for it in results} == {REVISION}
    assert len({it["digest"] for it in results}) == 1


SHORT = [("kill", "donor"), ("kill", "fetcher"), ("cut_off", "donor"), ("reset", "donor"), ("corrupt", "fetcher")]
CASES = [(fault, role) for fault in FAULTS for role in ("donor", "fetcher")]


@pytest.mark.parametrize(("fault", "role"), [*SHORT, *long(*(case for case in CASES if case not in SHORT))])
def test_a_failure_in_mid_transfer(tmp_path: Path, fault: str, role: str) -> None:
    case = FAULTS[fault]
    with Team(tmp_path, 4, master=MASTER, **OPTIONS) as team:
        fetchers = team.all[:2]
        victim = team.all[2] if role == "donor" else fetchers[0]
        survivors = team.others(victim) if case.gone else team.all
        team.works()
        prepared(team, fetchers)
        if case.armed:
            team.tell([victim], "arm", how=case.armed)
            team.answers("armed", [victim])
        before = team.footprint(survivors)
        team.data.at(2 << 20, lambda: case.strike(team, victim))  # half of what two fetchers need
        team.tell(team.all, "sync")
        team.answers("syncing", team.all)
        synced(team, survivors)
        if case.heal is not None:
            case.heal(team, victim)
        if case.gone:
            team.gone(victim)
        team.settle()
        team.works()
        team.back_to(before, survivors)
