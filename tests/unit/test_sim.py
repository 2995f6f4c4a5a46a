# SPDX-License-Identifier: MIT
"""The simulator as a test: some seeds hold, mutants are caught, a seed is a run whatever the hash seed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.faults import FAULTS, HARMLESS, PASSIVE
from tests.sim.master import AFTER, BEFORE, TORN
from tests.sim.mutants import MUTANTS
from tests.sim.network import Clock, Node, Wire
from tests.sim.run import FIRST_SEED, MUTANT_SEEDS, Result, catch, catching_seeds, kept_seeds, report, run_seed
from tests.sim.storm import storm
from tests.sim.world import World

ROOT = Path(__file__).resolve().parents[2]
SEEDS = range(FIRST_SEED, FIRST_SEED + 50)
CATCHING_SEEDS = catching_seeds()
SEED_FROM_ANY = 3
"""Its programs receive from anybody."""


@pytest.mark.parametrize("seed", [*SEEDS, *kept_seeds()])
def test_the_seed_holds(seed: int) -> None:
    result = run_seed(seed)
    assert result.violations == ()
    assert result.operations > 0


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_alone_holds(fault: str) -> None:
    for seed in range(2):
        result = run_seed(seed, faults=[fault])
        assert result.violations == ()
        assert result.operations > 0


def test_every_kind_of_fault_strikes_by_itself_or_is_passive() -> None:
    assert set(PASSIVE) < set(FAULTS)
    assert set(HARMLESS) < set(FAULTS)


def test_no_operation_fails_while_the_master_is_killed_and_stopped() -> None:
    for seed in range(10):
        result = run_seed(seed, faults=("master_crash", "master_pause", "journal_crash"))
        assert result.violations == ()
        assert result.operations > 0


def test_no_healthy_group_notices_newcomers_that_die() -> None:
    for seed in range(10):
        assert run_seed(seed, faults=HARMLESS).violations == ()


@pytest.mark.parametrize("how", [BEFORE, TORN, AFTER])
def test_the_master_may_die_at_every_write_of_its_journal(how: str) -> None:
    seed, faults, writes = 1, ("crash", "join_storm", "data_break"), 40
    whole = World(seed, faults=faults)
    seen: list[int] = []  # until the world is healed
    whole.master.crash_at_write = seen.append
    assert whole.run() == []
    assert seen[:writes] == list(range(1, writes + 1))
    for write in range(1, writes + 1):
        world = World(seed, faults=faults, master_dies=(write, how))
        assert world.run() == [], f"the master died {how} write {write}"
        assert world.master.lives == 2


def test_a_storm_of_peers_costs_a_few_messages_per_peer() -> None:
    count = 400
    it = storm(count)
    assert it.members() == [count - len(it.dead)] == [200]
    for act in it.acts:
        assert act.received <= 2 * count, act
        assert act.sent <= 2 * count + 2, act


def test_there_are_many_mutants() -> None:
    assert len(MUTANTS) >= 25
    assert set(CATCHING_SEEDS) <= set(MUTANTS)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", MUTANTS)
def test_every_mutant_is_caught(name: str) -> None:
    """By the seed that caught it before, which is the first that did, or by any other up to MUTANT_SEEDS."""
    known = CATCHING_SEEDS.get(name)
    _, seed, violation = catch(name, [] if known is None else [known])
    assert seed <= MUTANT_SEEDS, violation
    assert not violation.startswith("TypeError"), "it does not fit what it breaks, and shows nothing"


def test_a_seed_is_one_run_whatever_the_hash_seed() -> None:
    traces = [
        subprocess.run(
            [sys.executable, "-m", "tests.sim.run", "--seed", "7"],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert traces[0] == traces[1]
    assert len(traces[0].splitlines()) > 20


def test_a_trace_tells_who_receives_from_anybody_and_what_came() -> None:
    world = World(SEED_FROM_ANY, record=True)
    assert world.run() == []
    told = "\n".join(world.lines or [])
    assert "a receive from anybody of tag" in told
    assert " received " in told


def test_the_last_words_of_a_connection_come_before_the_first_of_the_next() -> None:
    for seed in range(100):
        clock = Clock(seed)
        source, target = Node(clock), Node(clock)
        heard: list[int] = []
        old = Wire(clock, source, target, 4.0)
        for word in range(3):
            old.send(heard.append, word)
        old.cut()
        Wire(clock, source, target, 4.0, old).send(heard.append, 3)
        clock.run(1_000.0, lambda: False)
        assert heard == [*range(len(heard) - 1), 3]


def test_a_violation_is_printed_with_its_seed_its_faults_and_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    report(Result(42, ("crash", "aim"), ("split verdict",), 1, 0))
    printed = capsys.readouterr().out
    assert "seed 42: split verdict" in printed
    assert "faults: crash, aim" in printed
    assert "python -m tests.sim.run --seed 42" in printed
