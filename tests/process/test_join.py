# SPDX-License-Identifier: MIT
"""A newcomer fails at a chosen byte of its way in: whoever is a member already does not notice (G7). Or a member fails
while a newcomer is let in, which it is then all the same."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.process.faults import FAULTS, OPTIONS, control_corrupt, long, pause
from tests.process.team import Member, Team

pytestmark = [pytest.mark.process, pytest.mark.alone]

MASTER = ("--heartbeat-timeout", "2")
SHARES = (0.0, 0.3, 0.6, 0.9)
"""Of what a newcomer tells the master until it is accepted: greeting, hello, registration, what comes after it."""

STRIKES: dict[str, Callable[[Team, Member], object]] = {
    "kill": lambda team, joiner: joiner.child.kill(),
    "stop": lambda team, joiner: joiner.child.kill(signal.SIGSTOP),
    "exit": lambda team, joiner: joiner.child.kill(signal.SIGUSR1),
    "close": lambda team, joiner: joiner.child.kill(signal.SIGUSR1),
    "hold": lambda team, joiner: joiner.control.set(hold=True),
}
HARMLESS: dict[str, Callable[[Team, Member], object]] = {
    "pause": pause,
    "reset": lambda team, joiner: joiner.control.reset(),
    "cut": lambda team, joiner: joiner.control.cut(),
    "corrupt": control_corrupt,
}
"""What a newcomer gets over."""


def round_of_all(team: Team) -> tuple[list[str], int]:
    """One step of all members, which succeeds for all in one epoch: (why attempts before failed, members in the
    result). A late first call may meet the retry of another."""
    team.tell(team.all, "round")
    rounds = team.answers("round", team.all)
    assert len({(it["epoch"], tuple(it["members"])) for it in rounds}) == 1
    return [text for it in rounds for text in it["lost"]], len(rounds[0]["members"])


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


def come(team: Team, at_bytes: int, how: str) -> None:
    """Starts a newcomer and strikes it; the members go on for a while, and must not be disturbed by it: unless it was
    let in before it was struck, perhaps for no longer than an attempt that failed without it."""
    joiner = team.start()
    struck: list[bool] = []
    if how in ("exit", "close"):
        team.tell([joiner], "arm", how=how)
        team.answers("armed", [joiner])

    def now() -> None:
        struck.append(True)
        STRIKES[how](team, joiner)

    joiner.control.at("up", at_bytes, now)
    joiner.child.tell(kind="connect", peers=0)
    rounds, newcomer = 0, f"rank {len(team.all)} (peer "
    while not struck or rounds < 20:
        lost, _ = round_of_all(team)
        assert all(newcomer in text for text in lost), "a newcomer that never was a member made an operation fail"
        rounds += 1
    joiner.child.kill()


@pytest.mark.parametrize("how", ["kill", "hold", *long(*(it for it in STRIKES if it not in ("kill", "hold")))])
def test_a_newcomer_that_fails_on_its_way_in_disturbs_nobody(tmp_path: Path, how: str) -> None:
    with Team(tmp_path, 2, master=MASTER) as team:
        told = joined_bytes(team)
        before = team.footprint(team.all)
        for share in SHARES:
            come(team, max(1, int(told * share)), how)
        while round_of_all(team)[1] > 2:  # one that was accepted before it was struck has to be noticed first
            pass
        team.works()
        team.back_to(before, team.all)
        team.recruit()
        team.works()


@pytest.mark.parametrize("how", ["reset", *long(*(it for it in HARMLESS if it != "reset"))])
def test_a_newcomer_whose_way_in_is_disturbed_gets_in(tmp_path: Path, how: str) -> None:
    with Team(tmp_path, 2, master=MASTER) as team:
        told = joined_bytes(team)
        before = team.footprint(team.all)
        for share in SHARES:
            joiner, members = team.start(), team.all
            joiner.control.at("up", max(1, int(told * share)), partial(HARMLESS[how], team, joiner))
            team.let_in([joiner])
            joiner.control.set(corrupt_every=0)
            team.works()
            team.gone(joiner)
            joiner.child.tell(kind="leave")
            team.run.expect(joiner.child, "left")
            team.settle()
        team.works()
        team.back_to(before, members)


@pytest.mark.parametrize("fault", ["kill", *long(*(it for it in FAULTS if it != "kill"))])
@pytest.mark.timeout(600)
def test_a_member_fails_while_a_newcomer_is_let_in(tmp_path: Path, fault: str) -> None:
    """At a chosen byte of what the master tells a member while a newcomer comes."""
    case = FAULTS[fault]
    with Team(tmp_path, 3, master=MASTER, **OPTIONS) as team:
        team.works()
        for at_bytes in (1, 200, 400):
            joiner, victim = team.start(), team.all[1]
            survivors = team.others(victim) if case.gone else team.all
            before = team.footprint(survivors)
            if case.armed:
                team.tell([victim], "arm", how=case.armed)
                team.answers("armed", [victim])
            team.tell([joiner], "connect", peers=0)
            struck = threading.Event()

            def strike(victim: Member = victim, struck: threading.Event = struck) -> None:
                if not struck.is_set():
                    struck.set()
                    case.strike(team, victim)

            victim.control.at("down", at_bytes, strike)
            admitted = False
            while not admitted:
                team.tell(team.all, "round")
                admitted = team.answers("round", survivors)[0]["admitted"]
            joiner.id = team.run.next_of(joiner.child, "connected")["id"]
            team.members[joiner.number] = joiner
            strike()
            if case.heal is not None:
                case.heal(team, victim)
            if case.gone:
                team.gone(victim)
            team.settle()
            team.works()
            if not case.gone:  # there is one member more than before
                team.gone(joiner)
                joiner.child.tell(kind="leave")
                team.run.expect(joiner.child, "left")
                team.settle()
            team.back_to(before, survivors)
