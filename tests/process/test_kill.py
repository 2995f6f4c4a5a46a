# SPDX-License-Identifier: MIT
"""A process dies or stops: how soon the others know, what they are told, and what that leaves behind."""

from __future__ import annotations

import random
import signal
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from tests.process.faults import FAULTS, each_link, long
from tests.process.harness import LIMIT_S
from tests.process.team import LARGE, RSS_BYTES, SMALL, Team

pytestmark = [pytest.mark.process, pytest.mark.alone]

LONG_BEFORE_S = 60.0
"""Far less than any timeout of an operation, and enough for a busy machine."""


SLOW = 4 << 20
"""Bytes a second at which 64 MiB last for longer than it takes a process to end."""


@pytest.mark.parametrize("fault", ["kill", "close", *long("exit")])
def test_everything_in_flight_is_told_and_nothing_spins(tmp_path: Path, fault: str) -> None:
    """B29: a member dies or leaves in the middle of 64 MiB, with five more operations queued behind: each wait raises,
    on every survivor, and then they are idle. B32: that takes a moment, though operations may wait for 300 s."""
    with Team(tmp_path, 4) as team:
        team.works()
        victim, *survivors = team.all
        before = team.footprint(survivors)
        if FAULTS[fault].armed:
            team.tell([victim], "arm", how=FAULTS[fault].armed)
            team.answers("armed", [victim])
        team.tell(survivors, "fly", elements=16 << 20, count=6)
        team.answers("flying", survivors)
        begun = time.monotonic()

        def strike() -> None:
            each_link(team, victim, type(victim.data).set, rate=SLOW)
            FAULTS[fault].strike(team, victim)

        team.data.at(64 << 20, strike)
        team.tell([victim], "fly", elements=16 << 20, count=1)
        team.tell(survivors, "land")
        for landed in team.answers("landed", survivors):
            assert [name for name, _ in landed["ends"]] == ["PeerLost"] * 6
            assert all("rank" in text for _, text in landed["ends"])
        team.gone(victim)
        team.begin("all_reduce", LARGE, True)
        assert team.outcomes().members == sorted(team.members)
        assert time.monotonic() - begun < LONG_BEFORE_S
        team.works()
        team.back_to(before, survivors, 4 * RSS_BYTES)  # what an engine keeps for large operations to come


def test_failures_are_exceptions_and_processes_end_well(tmp_path: Path) -> None:
    """B26: sizes differ, bytes of the links are damaged, frames and all, a member is killed: survivors catch what there
    is to catch, go on, and end with status 0."""
    with Team(tmp_path, 3, checksum="always", p2p_connection_pool_size=4) as team:
        team.works()
        victim, *survivors = team.all
        team.tell(team.all, "differ")
        assert {it["error"] for it in team.answers("error", team.all)} == {"CollectiveMismatch"}
        team.data.at(1_000_000, lambda: FAULTS["corrupt"].strike(team, survivors[0]))
        team.begin("all_reduce", LARGE, True)
        team.outcomes()
        team.data.at(100_000, victim.child.kill)
        team.begin("all_reduce", LARGE, True)
        assert team.outcomes(survivors).lost
        team.gone(victim)
        team.settle()
        team.tell(survivors, "leave")
        team.answers("left", survivors)
        team.tell(survivors, "stop")
        assert [team.run.ended(member.child) for member in survivors] == [0, 0]


@pytest.mark.parametrize("elements", [LARGE, *long(SMALL)])
def test_close_does_not_wait_for_a_stopped_member(tmp_path: Path, elements: int) -> None:
    """B36: one of four is stopped inside an operation; the others close, and their processes end."""
    with Team(tmp_path, 4) as team:
        team.works()
        victim = team.all[2]
        others = team.others(victim)
        stopped = threading.Event()

        def stop() -> None:
            victim.child.kill(signal.SIGSTOP)
            stopped.set()

        team.data.at(team.traffic("all_reduce", elements, True) // 2, stop)
        team.tell(team.all, "fly", elements=elements, count=2)
        team.answers("flying", others)
        assert stopped.wait(LIMIT_S)
        begun = time.monotonic()
        team.tell(others, "leave")
        team.answers("left", others)
        team.tell(others, "stop")
        assert [team.run.ended(member.child) for member in others] == [0, 0, 0]
        assert time.monotonic() - begun < LONG_BEFORE_S / 2


@pytest.mark.parametrize("repeats", [3, *long(50)])
@pytest.mark.timeout(900)
def test_a_member_that_just_exits_while_the_group_changes(tmp_path: Path, repeats: int) -> None:
    """B38: it exits or is killed, without farewell, at a random byte of what it says while a newcomer is let in. The
    rest converges each time."""
    chance = random.Random(repeats)
    with Team(tmp_path, 3) as team:
        team.works()
        before = team.footprint(team.all)[:1]
        for _ in range(repeats):
            victim, joiner = chance.choice(team.all), team.start()
            team.tell([victim], "arm", how="exit")
            team.answers("armed", [victim])
            joiner.child.tell(kind="connect", peers=0)
            end = partial(victim.child.kill, chance.choice((signal.SIGKILL, signal.SIGUSR1)))
            victim.control.at("up", chance.randrange(1, 500), end)
            team.gone(victim)
            admitted = False
            while not admitted:
                team.tell([victim, *team.all], "round")
                admitted = team.answers("round", team.all)[0]["admitted"]
            victim.child.kill()
            joiner.id = team.run.next_of(joiner.child, "connected")["id"]
            team.members[joiner.number] = joiner
            team.settle()
        team.works()
        team.back_to(before, team.all[:1])
