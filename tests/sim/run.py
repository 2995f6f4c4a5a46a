# SPDX-License-Identifier: MIT
"""Runs simulated worlds: `python -m tests.sim.run --seed N` replays one, `--seeds N [--jobs J]` runs many.

A violation prints the seed, the commit and the command that shows it again; the exit status is then 1.
"""

from __future__ import annotations

import argparse
import multiprocessing
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.sim.mutants import MUTANTS
from tests.sim.world import HEAL_MS, Kinds, World

FIRST_SEED = 1
MUTANT_SEEDS = 2_000
CATCHING = "mutants.txt"


@dataclass(frozen=True, slots=True)
class Result:
    """How one seed ended. `faults` are those that it dealt, `operations` succeeded, `aborts` did not. `healed_ms`: the
    virtual time from the end of the faults until the core had done all that was asked of it."""

    seed: int
    faults: tuple[str, ...]
    violations: tuple[str, ...]
    operations: int
    aborts: int
    healed_ms: float = 0.0


def run_seed(seed: int, faults: Sequence[str] | None = None, kinds: Kinds | None = None) -> Result:
    """One run, with the faults that the seed deals or with others."""
    world = World(seed, faults=faults, kinds=kinds)
    try:
        violations = world.run()
    except Exception as error:  # an exception out of a core is a finding like any other
        violations = [f"{type(error).__name__}: {error}"]
    faults_dealt = tuple(world.faults.kinds)
    return Result(seed, faults_dealt, tuple(violations[:3]), world.operations, world.aborts, world.healed_after)


def _kept(name: str) -> list[list[str]]:
    """The words of each line of a file beside this one, without its head."""
    lines = (Path(__file__).parent / name).read_text().splitlines()
    return [line.split() for line in lines if line and not line.startswith("#")]


def kept_seeds() -> list[int]:
    """Those that ever failed; the file says what each one found."""
    return [int(seed) for seed, *_ in _kept("seeds.txt")]


def catching_seeds() -> dict[str, int]:
    """By mutant, the first seed that caught it when `--mutants` was last run."""
    return {mutant: int(seed) for mutant, seed in _kept(CATCHING)}


def keep_catching_seeds(seeds: dict[str, int]) -> None:
    """Writes them in place of those that are there."""
    path = Path(__file__).parent / CATCHING
    head = [line for line in path.read_text().splitlines(keepends=True) if line.startswith("#")]
    path.write_text("".join([*head, *(f"{mutant} {seeds[mutant]}\n" for mutant in MUTANTS if mutant in seeds)]))


def commit() -> str:
    root = Path(__file__).resolve().parents[2]
    found = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=root, capture_output=True, text=True, check=False
    )
    return found.stdout.strip() or "unknown"


def report(result: Result) -> None:
    for violation in result.violations:
        print(f"seed {result.seed}: {violation}")
    print(f"  faults: {', '.join(result.faults) or 'none'}")
    print(f"  commit {commit()}, again with: python -m tests.sim.run --seed {result.seed}", flush=True)


def catch(name: str, sooner: Sequence[int] = ()) -> tuple[str, int, str]:
    """(mutant, the seed that catches it, by which violation); MUTANT_SEEDS + 1 if none does. It tries the seeds of
    `sooner` and then all from 1 on."""
    mutant = MUTANTS[name]
    for seed in (*sooner, *range(1, MUTANT_SEEDS + 1)):
        result = run_seed(seed, mutant.faults, mutant.kinds)
        if result.violations:
            sound = run_seed(seed, mutant.faults)
            assert not sound.violations, f"seed {seed} fails without {name} too: {sound.violations}"
            return name, seed, result.violations[0]
    return name, MUTANT_SEEDS + 1, "not caught"


def run_mutants(jobs: int) -> bool:
    """Whether all deliberate faults are caught. Keeps the first seed that catches each, for who looks again."""
    begun = time.monotonic()
    caught: dict[str, int] = {}
    with multiprocessing.Pool(jobs) as pool:
        for name, seed, violation in pool.imap_unordered(catch, MUTANTS, chunksize=1):
            if seed <= MUTANT_SEEDS:
                caught[name] = seed
            print(f"{name:20} {seed:5}  {violation[:120]}", flush=True)
    keep_catching_seeds(caught)
    print(f"{len(MUTANTS)} mutants, {len(MUTANTS) - len(caught)} not caught, {time.monotonic() - begun:.1f} s")
    return len(caught) == len(MUTANTS)


def run_many(first: int, count: int, jobs: int) -> bool:
    """Whether all seeds hold."""
    begun = time.monotonic()
    bad = operations = aborts = 0
    slowest = 0.0
    seeds = range(first, first + count)
    with multiprocessing.Pool(jobs) as pool:
        for result in pool.imap_unordered(run_seed, seeds, chunksize=8):
            operations += result.operations
            aborts += result.aborts
            slowest = max(slowest, result.healed_ms)
            if result.violations:
                bad += 1
                report(result)
    seconds = time.monotonic() - begun
    print(f"{count} seeds, {operations} operations, {aborts} aborted, {bad} seeds violated, {seconds:.1f} s")
    print(f"after the faults every core got on within {slowest / 1000:.1f} virtual s, of {HEAL_MS / 1000:.0f} allowed")
    return bad == 0


def run_one(seed: int) -> bool:
    """Runs one seed and prints what happens in it: whether it holds."""
    world = World(seed, record=True)
    try:
        violations = world.run()
    except Exception:
        violations = [traceback.format_exc()]
    for line in world.lines or []:
        print(line)
    result = Result(seed, tuple(world.faults.kinds), tuple(violations), world.operations, world.aborts)
    print(f"seed {seed}: {result.operations} operations, {result.aborts} aborted")
    report(result)
    return not violations


def main() -> int:
    parser = argparse.ArgumentParser(description="deterministic simulation of the control plane")
    parser.add_argument("--seed", type=int, help="replay one seed")
    parser.add_argument("--seeds", type=int, default=50, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=FIRST_SEED, help="the first of them")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--mutants", action="store_true", help="break the cores on purpose: which seed catches each?")
    arguments = parser.parse_args()
    if arguments.mutants:
        return 0 if run_mutants(arguments.jobs) else 1
    if arguments.seed is not None:
        return 0 if run_one(arguments.seed) else 1
    return 0 if run_many(arguments.first, arguments.seeds, arguments.jobs) else 1


if __name__ == "__main__":
    sys.exit(main())
