# SPDX-License-Identifier: MIT
"""One link of a group is dead for good, while both its ends live: nobody is expelled, and operations find a way."""

from __future__ import annotations

from pathlib import Path

import pytest

from pccl.stress.relay import Directions
from pccl.stress.workload import FORMS, FROM_ROOT
from tests.process.faults import long, mend, sever, silence
from tests.process.team import LARGE, RSS_BYTES, SMALL, Team

pytestmark = [pytest.mark.process, pytest.mark.alone]


@pytest.mark.parametrize("elements", [SMALL, *long(LARGE)])
def test_a_dead_link_between_two_living_members(tmp_path: Path, elements: int) -> None:
    """It dies in the middle of an operation. All members stay, every collective works, in place and not."""
    with Team(tmp_path, 4, link_timeout=2.0) as team:
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
            if collective not in FROM_ROOT:
                assert outcome.members == sorted(team.members)
        mend(one, other)
        team.settle()
        team.works()
        team.back_to(before, team.all, 4 * RSS_BYTES)  # with what an engine keeps for large operations to come


@pytest.mark.parametrize(
    ("direction", "elements"),
    [("both", SMALL), ("up", LARGE), *long(("down", SMALL), ("both", LARGE), ("down", LARGE))],
)
def test_a_link_that_carries_nothing_any_more(tmp_path: Path, direction: Directions, elements: int) -> None:
    """Between two of three living members bytes vanish, and no connection ends. Operations succeed again after a few
    failures at most, all members stay, and the link is used again when it carries."""
    with Team(tmp_path, 3, link_timeout=2.0) as team:
        team.works()
        one, other = team.all[0], team.all[1]
        before = team.footprint(team.all)
        team.data.at(team.traffic("all_reduce", elements, True) // 2, lambda: silence(one, other, direction))
        lost, epochs = 0, []
        for collective, in_place in FORMS:
            team.begin(collective, elements, in_place)
            outcome = team.outcomes()
            lost += outcome.lost
            epochs.append(outcome.epoch)
            assert all("the link between rank" in text for text in outcome.texts), outcome
            if collective not in FROM_ROOT:
                assert outcome.members == sorted(team.members)
        assert lost <= 4, "the link was not avoided"
        assert epochs[-1] > epochs[0] or lost, "the link was never needed"
        silence(one, other, direction, hold=False)
        team.settle()
        team.works()
        team.back_to(before, team.all, 4 * RSS_BYTES)  # with what an engine keeps for large operations to come
