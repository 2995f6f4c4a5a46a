# SPDX-License-Identifier: MIT
"""One link of a group is dead for good, while both its ends live: nobody is expelled, and operations find a way."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.process.faults import long
from tests.process.team import LARGE, SMALL, Member, Team
from tests.process.workload import FORMS

pytestmark = pytest.mark.process


def sever(one: Member, other: Member) -> None:
    """Whoever of the two dials the other from now on gets a reset."""
    for dialled, dialler in ((one, other), (other, one)):
        dialled.data.set(name=dialler.id, refuse=True)
        dialled.data.reset(dialler.id)


def mend(one: Member, other: Member) -> None:
    for dialled, dialler in ((one, other), (other, one)):
        dialled.data.set(name=dialler.id, refuse=False)


@pytest.mark.parametrize("elements", [SMALL, *long(LARGE)])
def test_a_dead_link_between_two_living_members(tmp_path: Path, elements: int) -> None:
    """It dies in the middle of an operation. All members stay, every collective works, in place and not."""
    with Team(tmp_path, 4) as team:
        team.works()
        one, other = team.all[0], team.all[1]
        before = team.footprint(team.all)
        team.data.at(team.traffic("all_reduce", elements, True) // 2, lambda: sever(one, other))
        team.begin("all_reduce", elements, True)
        assert team.outcomes().members == sorted(team.members)
        team.settle()
        for collective, in_place in FORMS:
            team.begin(collective, elements, in_place)
            outcome = team.outcomes()
            if collective != "broadcast":
                assert outcome.members == sorted(team.members)
        mend(one, other)
        team.settle()
        team.works()
        team.back_to(before, team.all)
