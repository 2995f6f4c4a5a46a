# SPDX-License-Identifier: MIT
"""The master dies, or its host is cut off: no connection ends, nothing gets through. Nobody's operation fails (G12)."""

from __future__ import annotations

import threading
import time
from functools import partial
from pathlib import Path

import pytest

from pccl.stress.workload import FORMS
from tests.process.faults import OPTIONS, long
from tests.process.harness import LIMIT_S
from tests.process.team import LARGE, RSS_BYTES, SMALL, Member, Team

pytestmark = [pytest.mark.process, pytest.mark.alone]


LONG_S = 600.0
"""A `master_timeout` that no machine is too busy for."""


def hold_all(members: list[Member], on: bool) -> None:
    for member in members:
        member.control.set(hold=on)


@pytest.mark.parametrize("restart", [False, *long(True)])
def test_operations_go_on_while_the_master_is_cut_off(tmp_path: Path, restart: bool) -> None:
    with Team(tmp_path, 3, journal=True, master=("--heartbeat-timeout", "1"), master_timeout=LONG_S) as team:
        team.works()
        before = team.footprint(team.all)
        hold_all(team.all, True)
        epochs = set()
        for _ in range(12):  # each footprint takes a quarter of a second in which the master hears nothing
            team.tell(team.all, "stream", steps=50)
            epochs |= {it["epoch"] for it in team.answers("streamed", team.all)}
            team.footprint(team.all)
        assert len(epochs) == 1
        if restart:
            team.run.master.kill()
            team.run.master.start()
        hold_all(team.all, False)
        team.works()
        team.vote()
        team.back_to(before, team.all)
        team.recruit()
        team.works()


@pytest.mark.parametrize(("elements", "away_s"), [(LARGE, 3.0), *long((SMALL, 0.0), (LARGE, 60.0))])
@pytest.mark.timeout(300)
def test_the_master_dies_in_an_operation_and_comes_back(tmp_path: Path, elements: int, away_s: float) -> None:
    """B46: killed at a chosen byte of an operation, which succeeds, as do all that follow. Started again at the same
    port after a while, it lets newcomers in; a call that was made meanwhile waits for it."""
    with Team(tmp_path, 3, journal=True, master_timeout=LONG_S) as team:
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
        away = time.monotonic()
        team.works()
        while time.monotonic() - away < away_s:
            team.tell(team.all, "stream", steps=50)
            team.answers("streamed", team.all)
        team.tell(team.all, "vote")
        team.answers("voting", team.all)
        team.run.master.start()
        team.answers("voted", team.all)
        team.back_to(before, team.all)
        team.recruit()
        team.works()


# ---------------------------------------------------------------------------------------------- in every phase


class Absence:
    """The master is away from a chosen byte on: dead, or cut off from `members`."""

    def __init__(self, team: Team, how: str) -> None:
        self.members = team.all
        self.how = how
        self._master = team.run.master
        self._gone = threading.Event()

    def begin(self) -> None:
        """In the relay's thread."""
        if self.how == "kill":
            self._master.kill()
        else:
            hold_all(self.members, True)
        self._gone.set()

    def end(self) -> None:
        """Once it has begun."""
        assert self._gone.wait(LIMIT_S)
        if self.how == "kill":
            self._master.start()
        else:
            hold_all(self.members, False)


def in_connect(team: Team, absence: Absence) -> None:
    joiner = team.start()
    absence.members.append(joiner)
    joiner.control.at("up", 100, absence.begin)
    team.tell([joiner], "connect", peers=0)
    absence.end()
    admitted = False
    while not admitted:
        team.tell(team.all, "round")
        admitted = team.answers("round", team.all)[0]["admitted"]
    team.run.next_of(joiner.child, "connected")
    joiner.child.tell(kind="leave")
    team.run.expect(joiner.child, "left")


def in_vote(team: Team, absence: Absence) -> None:
    team.all[-1].control.at("up", 1, absence.begin)
    team.tell(team.all, "vote")
    team.answers("voting", team.all)
    absence.end()
    team.answers("voted", team.all)


def in_operation(share: float, tail_bytes: int, team: Team, absence: Absence) -> None:
    for collective, in_place in FORMS:
        whole = team.traffic(collective, LARGE, in_place)
        team.data.at(max(1, int(whole * share) - tail_bytes), absence.begin)
        team.begin(collective, LARGE, in_place)
        outcome = team.outcomes()
        assert outcome.lost == 0, outcome.texts
        team.works()  # with fewer acknowledgements than before, it comes only now
        absence.end()
        absence = Absence(team, absence.how)


def in_verdict(team: Team, absence: Absence) -> None:
    first, *survivors = team.all

    def strike() -> None:
        survivors[0].control.at("up", 1, absence.begin)
        first.child.kill()

    team.data.at(team.traffic("all_reduce", LARGE, True) // 2, strike)
    team.begin("all_reduce", LARGE, True)
    absence.end()
    assert team.outcomes(survivors).members == [it.number for it in survivors]
    team.gone(first)
    team.recruit()


def in_sync(team: Team, absence: Absence) -> None:
    for member in team.all:
        team.tell([member], "prepare", revision=-1 if member is team.all[0] else 5)
    team.answers("prepared", team.all)
    team.data.at(1 << 20, absence.begin)
    team.tell(team.all, "sync")
    team.answers("syncing", team.all)
    absence.end()
    assert {it["revision"] for it in team.answers("synced", team.all)} == {5}


PHASES = {
    "connect": in_connect,
    "vote": in_vote,
    "data": partial(in_operation, 0.5, 0),
    "finish": partial(in_operation, 1.0, 500),
    "verdict": in_verdict,
    "sync": in_sync,
}


@pytest.mark.matrix
@pytest.mark.timeout(600)
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("how", ["kill", "cut_off"])
def test_the_master_is_away_in_phase(tmp_path: Path, how: str, phase: str) -> None:
    """No operation fails, calls wait, and all is well when it is back."""
    with Team(tmp_path, 3, journal=True, master=("--heartbeat-timeout", "2"), **OPTIONS) as team:
        team.works()
        before = team.footprint(team.all)
        PHASES[phase](team, Absence(team, how))
        team.settle()
        team.works()
        # with what an engine keeps for large operations to come
        team.back_to(before, team.all[: len(before)], 4 * RSS_BYTES)


def test_a_master_that_stays_away_is_an_error_for_whoever_needs_it(tmp_path: Path) -> None:
    """B46: nobody waits for ever. Joint calls end with MasterLost after `master_timeout`."""
    with Team(tmp_path, 2, master=("--heartbeat-timeout", "2"), master_timeout=2.0) as team:
        team.works()
        team.run.master.kill()
        team.tell(team.all, "vote")
        team.answers("voting", team.all)
        assert {it["error"] for it in team.answers("error", team.all)} == {"MasterLost"}
