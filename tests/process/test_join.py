# SPDX-License-Identifier: MIT
"""A newcomer fails at a chosen byte of its way in. Whoever is a member already does not notice (G7)."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from pccl.stress.relay import Link
from tests.process.faults import long
from tests.process.team import Member, Team

pytestmark = pytest.mark.process

MASTER = ("--heartbeat-timeout", "2")
SHARES = (0.0, 0.3, 0.6, 0.9)
"""Of what a newcomer tells the master until it is accepted: greeting, hello, registration, what comes after it."""

STRIKES: dict[str, Callable[[Member], object]] = {
    "kill": lambda joiner: joiner.child.kill(),
    "stop": lambda joiner: joiner.child.kill(signal.SIGSTOP),
    "hold": lambda joiner: joiner.control.set(hold=True),
}


def round_of_all(team: Team) -> tuple[int, int]:
    """One step of all members: (failed attempts, members in the result)."""
    team.tell(team.all, "round")
    rounds = team.answers("round", team.all)
    assert len({(it["lost"], tuple(it["members"])) for it in rounds}) == 1
    return rounds[0]["lost"], len(rounds[0]["members"])


def joined_bytes(team: Team) -> int:
    """What an undisturbed newcomer tells the master until it is a member; it leaves again."""
    joiner = team.start()
    before = joiner.control.counts().up_bytes
    team.let_in([joiner])
    told = joiner.control.counts().up_bytes - before
    team.gone(joiner)
    joiner.child.tell(kind="leave")
    team.run.expect(joiner.child, "left")
    round_of_all(team)
    return told


def come(team: Team, at_bytes: int, strike: Callable[[Member], object]) -> Link:
    """Starts a newcomer and strikes it; the members go on for a while, and must not be disturbed by it."""
    joiner = team.start()
    struck: list[bool] = []

    def now() -> None:
        struck.append(True)
        strike(joiner)

    joiner.control.at("up", at_bytes, now)
    joiner.child.tell(kind="connect", peers=0)
    sizes: list[int] = []
    while not struck or len(sizes) < 20:
        lost, size = round_of_all(team)
        assert lost == 0 or size < max(sizes, default=0), "a newcomer that never was a member made an operation fail"
        sizes.append(size)
    joiner.child.kill()
    return joiner.control


@pytest.mark.parametrize("how", ["kill", "hold", *long("stop")])
def test_a_newcomer_that_fails_on_its_way_in_disturbs_nobody(tmp_path: Path, how: str) -> None:
    with Team(tmp_path, 2, master=MASTER) as team:
        told = joined_bytes(team)
        before = team.footprint(team.all)
        for share in SHARES:
            come(team, max(1, int(told * share)), STRIKES[how])
        while round_of_all(team)[1] > 2:  # one that was accepted before it was struck has to be noticed first
            pass
        team.works()
        team.back_to(before, team.all)
        team.recruit()
        team.works()
