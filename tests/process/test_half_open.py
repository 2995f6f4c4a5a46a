# SPDX-License-Identifier: MIT
"""Links that carry nothing, or little, while no connection ends; and those that were idle for long."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from tests.process.faults import FAULTS, cut_off, long, plug_in
from tests.process.harness import LIMIT_S
from tests.process.team import LARGE, SMALL, Team

pytestmark = [pytest.mark.process, pytest.mark.alone]

MASTER = ("--heartbeat-timeout", "2")


@pytest.mark.parametrize("elements", [LARGE, *long(SMALL)])
def test_a_host_that_is_cut_off_is_named_and_may_come_back(tmp_path: Path, elements: int) -> None:
    """B31: in mid-operation nothing gets through to one member any more, and all sockets stay open. The others are
    told within the heartbeat limit, whom they lost; the lost one finds itself expelled when it is back."""
    with Team(tmp_path, 3, master=MASTER) as team:
        team.works()
        victim, *survivors = team.all
        before = team.footprint(team.all)
        team.data.at(team.traffic("all_reduce", elements, True) // 2, lambda: cut_off(team, victim))
        team.begin("all_reduce", elements, True)
        outcome = team.outcomes(survivors)
        assert outcome.members in ([it.number for it in survivors], [it.number for it in team.all])
        assert outcome.lost or elements == SMALL, "it cannot have been done"
        assert all("no sign of life" in text and "rank" in text for text in outcome.texts)
        team.gone(victim)
        team.settle()
        plug_in(team, victim)
        failure = team.run.next_of(victim.child, "error")
        assert failure["error"] == "Expelled", failure
        team.let_in([victim], "rejoin")
        team.works()
        team.back_to(before, [victim, *survivors])


def test_an_operation_that_gets_nothing_names_whom_it_waits_for(tmp_path: Path) -> None:
    """B31: only the data are stuck, everybody still talks to the master. The operation ends by its own timeout."""
    with Team(tmp_path, 3, master=("--heartbeat-timeout", "2"), operation_timeout=2.0, link_timeout=2.0) as team:
        team.works()
        victim = team.all[0]
        before = team.footprint(team.all)
        for link, name in team.links_of(victim):
            link.set(name=name, hold=True)
        team.begin("all_reduce", SMALL, True)
        for failure in team.answers("error", team.all):
            assert failure["error"] == "OperationTimeout", failure
            assert "rank" in failure["text"]
            assert "silent for" in failure["text"]
        for link, name in team.links_of(victim):
            link.set(name=name, hold=False)
        team.settle()
        team.works()
        team.back_to(before, team.all)


SLOW = ("rate", 400_000, LARGE, 1.0)
SLOWER = [("total_rate", 400_000, LARGE, 1.0), ("total_rate", 1 << 20, 16 << 20, 10.0)]


@pytest.mark.parametrize(("field", "rate", "elements", "timeout_s"), [SLOW, *long(*SLOWER)])
@pytest.mark.timeout(600)
def test_a_slow_link_is_not_a_dead_one(tmp_path: Path, field: str, rate: int, elements: int, timeout_s: float) -> None:
    """B35: timeouts count from the last byte: an operation that takes much longer than its timeout succeeds. (The long
    one has 64 MiB to get over a mebibyte a second.)"""
    options = {"operation_timeout": timeout_s, "link_timeout": timeout_s, "p2p_connection_pool_size": 1}
    with Team(tmp_path, 2, master=("--heartbeat-timeout", "1"), **options) as team:
        team.works()
        for link, name in team.links_of(team.all[0]):
            link.set(name=name, **{field: rate})
        begun, moved = time.monotonic(), threading.Event()
        team.data.at(7 * elements, moved.set)  # of 8 that there are in float32: each sends as much as it has
        team.begin("all_reduce", elements, True)
        assert moved.wait(40 * timeout_s + LIMIT_S)
        outcome = team.outcomes()
        assert time.monotonic() - begun > 3 * timeout_s, "that was no test"
        assert outcome.lost == 0
        assert outcome.members == sorted(team.members)


@pytest.mark.parametrize("timeout_s", [1.0, *long(10.0)])
def test_a_group_may_be_idle_for_longer_than_any_timeout(tmp_path: Path, timeout_s: float) -> None:
    """B35: nothing is said on the links for five times the timeout of operations; then all works at once."""
    options = {"operation_timeout": timeout_s, "link_timeout": 0.3 * timeout_s}
    with Team(tmp_path, 3, master=("--heartbeat-timeout", "1"), **options) as team:
        team.settle()
        begun = time.monotonic()
        while time.monotonic() - begun < 5 * timeout_s:
            team.footprint(team.all)  # a quarter of a second in which they do nothing
        team.works()


@pytest.mark.parametrize("fault", ["reset", *long("cut")])
def test_links_that_break_while_idle_are_there_again_when_needed(tmp_path: Path, fault: str) -> None:
    with Team(tmp_path, 3) as team:
        team.works()
        FAULTS[fault].strike(team, team.all[1])
        team.settle()
        team.works()
