#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""SIGKILL of one of four peers in the middle of a large all_reduce, again and again at random moments.

Each time the survivors must get the same verdict (G2), soon; calling again at once must give the right result of
three (G3, G4), soon; then a newcomer takes the place of the dead. Half of the repeats reduce in place. The exit
status is 0 only if there was no split verdict, wrong number or hang, and the limits were kept.

Of a repeat that broke a limit it is said whether the machine itself stood still meanwhile (`pulse`). It counts all the
same: this only tells where to look.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from dataclasses import dataclass, field

from crew import Crew, Failed
from pulse import Pulse

WARM_UP = 5


@dataclass(frozen=True)
class Limits:
    """Milliseconds from the kill, of what a `Tally` holds."""

    verdict_ms: float
    retry_ms: float


@dataclass
class Tally:
    """Milliseconds from the kill until the last survivor had its verdict, and until it had the result of the retry."""

    verdict_ms: list[float] = field(default_factory=list)
    retry_ms: list[float] = field(default_factory=list)
    aborted: int = 0
    committed: int = 0
    between: int = 0

    def late(self, limits: Limits) -> tuple[int, int]:
        """How many verdicts and how many results broke their limit."""
        verdicts = sum(value > limits.verdict_ms for value in self.verdict_ms)
        return verdicts, sum(value > limits.retry_ms for value in self.retry_ms)

    def join(self, other: Tally) -> None:
        """Takes in what `other` holds."""
        self.verdict_ms += other.verdict_ms
        self.retry_ms += other.retry_ms
        self.aborted += other.aborted
        self.committed += other.committed
        self.between += other.between

    def add(self, outcomes: list[list[list[int]]], killed_ns: int, before: int) -> None:
        """`outcomes` of all survivors. Raises Failed on a split verdict."""
        successes = [[size for size, *_ in calls if size] for calls in outcomes]
        if any(sizes != successes[0] for sizes in successes):
            raise Failed(f"a split verdict: the survivors' calls succeeded with {successes} members")
        verdicts = [
            [end_ns for size, _, end_ns in calls if end_ns > killed_ns and size in (0, before)][:1]
            for calls in outcomes
        ]
        if any(not found for found in verdicts):
            self.between += 1
            return
        self.verdict_ms.append((max(found[0] for found in verdicts) - killed_ns) / 1e6)
        if before in successes[0]:
            self.committed += 1
        else:
            self.aborted += 1
            self.retry_ms.append((max(calls[-1][2] for calls in outcomes) - killed_ns) / 1e6)


def show(name: str, tally: Tally) -> None:
    """Two lines of percentiles."""
    for what, values in (("verdict", tally.verdict_ms), ("result of the retry", tally.retry_ms)):
        if values:
            ranks = [percentile(values, share) for share in (0.5, 0.9, 0.99, 1.0)]
            print(f"{name:>12}  {what:<20} {len(values):5d} " + " ".join(f"{value:8.1f}" for value in ranks))


def percentile(values: list[float], share: float) -> float:
    """The smallest value that at least `share` of all do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def operation_s(crew: Crew) -> float:
    """How long an undisturbed all_reduce takes."""
    times = []
    for step in range(WARM_UP):
        crew.tell(crew.serials, do="reduce", step=step, serials=crew.serials, until=len(crew.peers), in_place=False)
        crew.answers("started", crew.serials)
        calls = [outcomes[0] for outcomes in crew.answers("outcomes", crew.serials).values()]
        times.append(max(end_ns for *_, end_ns in calls) - max(begin_ns for _, begin_ns, _ in calls))
    return statistics.median(times) / 1e9


def kill_once(
    crew: Crew, step: int, in_place: bool, chance: random.Random, span_s: float, pulse: Pulse
) -> tuple[Tally, float]:
    """One repeat: starts the operation, kills somebody, judges, and brings the crew back to strength. What it took, and
    for how many milliseconds the machine stood still meanwhile."""
    tally = Tally()
    before, victim = len(crew.peers), chance.choice(crew.serials)
    crew.tell(crew.serials, do="reduce", step=step, serials=crew.serials, until=before - 1, in_place=in_place)
    crew.answers("started", crew.serials)
    end = time.monotonic() + chance.uniform(0.0, span_s)
    while time.monotonic() < end:
        pass
    killed_ns = crew.kill(victim)
    outcomes = crew.answers("outcomes", crew.serials)
    tally.add(list(outcomes.values()), killed_ns, before)
    pause_ms = pulse.pause_ms(killed_ns, max(calls[-1][2] for calls in outcomes.values()))
    crew.tell(crew.serials, do="check", step=step, serials=crew.serials)
    if not all(crew.answers("right", crew.serials).values()):
        raise Failed(f"repeat {step}: the survivors' result or input is wrong")
    newcomers = crew.recruit(1)
    crew.tell(newcomers, do="gather", peers=before)
    crew.tell([serial for serial in crew.serials if serial not in newcomers], do="admit", peers=before)
    crew.answers("gathered", crew.serials)
    return tally, pause_ms


def kill_again_and_again(
    crew: Crew, repeats: int, chance: random.Random, limits: Limits, tallies: dict[str, Tally]
) -> list[str]:
    """All repeats. What broke a limit."""
    span_s = operation_s(crew)
    print(f"an undisturbed all_reduce takes {span_s * 1e3:.0f} ms", flush=True)
    with Pulse() as pulse:
        for step in range(repeats):
            in_place = step % 2 == 1
            once, pause_ms = kill_once(crew, step, in_place, chance, span_s, pulse)
            if any(once.late(limits)):
                took = " and ".join(f"{value:.0f}" for value in once.verdict_ms + once.retry_ms)
                print(f"repeat {step} took {took} ms; the machine stood still for {pause_ms:.0f} ms", flush=True)
            tallies["in place" if in_place else "out of place"].join(once)
    return judge(tallies, limits)


def judge(tallies: dict[str, Tally], limits: Limits) -> list[str]:
    """What broke a limit."""
    broken = []
    for name, tally in tallies.items():
        verdicts, results = tally.late(limits)
        if verdicts:
            broken.append(f"{name}: {verdicts} times the verdict took more than {limits.verdict_ms:.0f} ms")
        if results:
            broken.append(f"{name}: {results} times the result of the retry took more than {limits.retry_ms:.0f} ms")
    return broken


def main() -> int:
    """Runs all repeats and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--peers", type=int, default=4)
    parser.add_argument("--mebibytes", type=int, default=64)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--verdict-limit-ms", type=float, default=100.0)
    parser.add_argument("--retry-limit-ms", type=float, default=300.0)
    options = parser.parse_args()
    limits = Limits(options.verdict_limit_ms, options.retry_limit_ms)
    chance = random.Random(options.seed)
    tallies = {"in place": Tally(), "out of place": Tally()}
    print(f"seed {options.seed}: {options.repeats} repeats, {options.peers} peers, {options.mebibytes} MiB", flush=True)
    try:
        with Crew(options.mebibytes << 20) as crew:
            crew.tell(crew.recruit(options.peers), do="gather", peers=options.peers)
            crew.answers("gathered", crew.serials)
            broken = kill_again_and_again(crew, options.repeats, chance, limits, tallies)
    except Failed as failure:
        print(f"FAILED: {failure}")
        return 1
    print(f"{'':>12}  {'ms after the kill':<20} {'n':>5} {'p50':>8} {'p90':>8} {'p99':>8} {'max':>8}")
    for name, tally in tallies.items():
        show(name, tally)
    for name, tally in tallies.items():
        counts = f"{tally.aborted} aborted, {tally.committed} committed, {tally.between} between two operations"
        print(f"{name:>12}  {counts}")
    for line in broken:
        print(f"FAILED: {line}")
    if not broken:
        print(f"{options.repeats} kills: no split verdict, no wrong number, no hang")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
