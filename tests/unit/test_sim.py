# SPDX-License-Identifier: MIT
"""The simulator as a test: some seeds hold, mutants are caught, a seed is a run whatever the hash seed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pccl.protocol.master import MasterProtocol
from tests.sim import mutants
from tests.sim.dataplane import Engine
from tests.sim.run import FIRST_SEED, report, run_seed
from tests.sim.world import FAULTS, HARMLESS, World

ROOT = Path(__file__).resolve().parents[2]
SEEDS = range(FIRST_SEED, FIRST_SEED + 50)
MUTANT_SEEDS = range(FIRST_SEED, FIRST_SEED + 400)
MUTANT_FAULTS = ("crash", "control_break", "data_break", "master_crash", "pause", "data_partition", "interrupt")

REGRESSIONS: tuple[int, ...] = (599, 1283, 4620)
"""Seeds that ever failed."""


@pytest.mark.parametrize("seed", [*SEEDS, *REGRESSIONS])
def test_the_seed_holds(seed: int) -> None:
    _, violations, operations, _ = run_seed(seed)
    assert violations == []
    assert operations > 0


@pytest.mark.parametrize("fault", FAULTS)
def test_each_fault_alone_holds(fault: str) -> None:
    for seed in range(3):
        world = World(seed, faults=[fault])
        assert world.run() == []
        assert world.operations > 0


def test_no_operation_fails_while_the_master_is_killed_and_stopped() -> None:
    for seed in range(10):
        world = World(seed, faults=("master_crash", "master_pause"))
        assert world.run() == []
        assert world.operations > 0
        assert world.aborts == 0


def test_no_healthy_group_notices_newcomers_that_die() -> None:
    for seed in range(10):
        assert World(seed, faults=HARMLESS).run() == []


def _found(**classes: type) -> list[str]:
    for seed in MUTANT_SEEDS:
        violations = World(seed, faults=MUTANT_FAULTS, **classes).run()  # type: ignore[arg-type]
        if violations:
            return violations
    return []


@pytest.mark.parametrize("mutant", mutants.ENGINES, ids=lambda it: it.__name__)
def test_a_broken_engine_is_caught(mutant: type[Engine]) -> None:
    assert _found(engine_class=mutant)


@pytest.mark.parametrize("mutant", mutants.MASTERS, ids=lambda it: it.__name__)
def test_a_broken_master_is_caught(mutant: type[MasterProtocol]) -> None:
    assert _found(master_class=mutant)


def test_a_seed_is_one_run_whatever_the_hash_seed() -> None:
    traces = [
        subprocess.run(
            [sys.executable, "-m", "tests.sim.run", "--seed", "7", "--trace"],
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


def test_a_violation_is_printed_with_its_seed_and_command(capsys: pytest.CaptureFixture[str]) -> None:
    report(42, ["split verdict"])
    printed = capsys.readouterr().out
    assert "seed 42: split verdict" in printed
    assert "python -m tests.sim.run --seed 42" in printed
