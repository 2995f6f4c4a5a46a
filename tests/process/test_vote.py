# SPDX-License-Identifier: MIT
"""A member fails while joint calls wait, be it for it or with it: those calls end, with whoever is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.process.faults import FAULTS, OPTIONS, long
from tests.process.team import Team

pytestmark = [pytest.mark.process, pytest.mark.alone]

MASTER = ("--heartbeat-timeout", "2")


SHORT = [("kill", False), ("kill", True), ("stop", False), ("pause", True), ("control_reset", True)]
CASES = [(fault, voted) for fault in FAULTS for voted in (False, True)]


@pytest.mark.parametrize(("fault", "voted"), [*SHORT, *long(*(case for case in CASES if case not in SHORT))])
def test_a_vote_ends_without_those_who_fail(tmp_path: Path, fault: str, voted: bool) -> None:
    case = FAULTS[fault]
    with Team(tmp_path, 3, master=MASTER, **OPTIONS) as team:
        team.works()
        victim, last, other = team.all
        survivors = [last, other] if case.gone else team.all
        before = team.footprint(survivors)
        if case.armed:
            team.tell([victim], "arm", how=case.armed)
            team.answers("armed", [victim])
        early, late = ([victim, other], [last]) if voted else ([last, other], [victim])
        team.tell(early, "vote")
        team.answers("voting", early)
        case.strike(team, victim)
        if voted or not case.gone:
            team.tell(late, "vote")
            team.answers("voting", late)
        assert {it["world_size"] for it in team.answers("voted", survivors)} <= {2, 3}
        if case.heal is not None:
            case.heal(team, victim)
        if case.gone:
            team.gone(victim)
        team.settle()
        team.works()
        team.back_to(before, survivors)


@pytest.mark.parametrize("fault", ["cut_off", *long("kill")])
def test_two_failures_in_one_vote(tmp_path: Path, fault: str) -> None:
    with Team(tmp_path, 4, master=MASTER) as team:
        team.works()
        first, second, *survivors = team.all
        before = team.footprint(survivors)
        team.tell(survivors, "vote")
        team.answers("voting", survivors)
        FAULTS[fault].strike(team, first)
        survivors[0].control.at("down", 1, lambda: FAULTS["kill"].strike(team, second))
        team.answers("voted", survivors)
        team.gone(first)
        team.gone(second)
        team.settle()
        team.works()
        team.back_to(before, survivors)
