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
from pathlib import Path

from tests.sim.world import World

FIRST_SEED = 1


def run_seed(seed: int) -> tuple[int, list[str], int, int]:
    """(seed, violations, operations that succeeded, operations that were aborted)."""
    world = World(seed)
    try:
        violations = world.run()
    except Exception as error:  # an exception out of a core is a finding like any other
        violations = [f"{type(error).__name__}: {error}"]
    return seed, violations[:3], world.operations, world.aborts


def commit() -> str:
    root = Path(__file__).resolve().parents[2]
    found = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=root, capture_output=True, text=True, check=False
    )
    return found.stdout.strip() or "unknown"


def report(seed: int, violations: list[str]) -> None:
    for violation in violations:
        print(f"seed {seed}: {violation}")
    print(f"  commit {commit()}, again with: python -m tests.sim.run --seed {seed} --trace")


def run_many(first: int, count: int, jobs: int) -> bool:
    """Whether all seeds hold."""
    begun = time.monotonic()
    bad = operations = aborts = 0
    seeds = range(first, first + count)
    with multiprocessing.Pool(jobs) as pool:
        for seed, violations, done, aborted in pool.imap_unordered(run_seed, seeds, chunksize=8):
            operations += done
            aborts += aborted
            if violations:
                bad += 1
                report(seed, violations)
    seconds = time.monotonic() - begun
    print(f"{count} seeds, {operations} operations, {aborts} aborted, {bad} seeds violated, {seconds:.1f} s")
    return bad == 0


def run_one(seed: int, trace: bool) -> bool:
    world = World(seed, record=trace)
    violations = world.run()
    for line in world.lines or []:
        print(line)
    faults = ", ".join(world.faults) or "none"
    print(f"seed {seed}: faults {faults}; {world.operations} operations, {world.aborts} aborted")
    if violations:
        report(seed, violations)
    return not violations


def main() -> int:
    parser = argparse.ArgumentParser(description="deterministic simulation of the control plane")
    parser.add_argument("--seed", type=int, help="replay one seed")
    parser.add_argument("--seeds", type=int, default=50, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=FIRST_SEED, help="the first of them")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--trace", action="store_true", help="with --seed: print what happens")
    arguments = parser.parse_args()
    if arguments.seed is not None:
        return 0 if run_one(arguments.seed, arguments.trace) else 1
    return 0 if run_many(arguments.first, arguments.seeds, arguments.jobs) else 1


if __name__ == "__main__":
    sys.exit(main())
