# SPDX-License-Identifier: MIT
"""What is kept of a stress test for pictures and reports: who was there when, steps a second, faults, violations.

Must not know: processes, drawing. Times are seconds since the start of the run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from pccl.stress.trial import Trial

BINS_MAX = 400
WAITS_KEPT = 10_000
RECENT_S = 5


@dataclass
class Timeline:
    """Filled while the test runs; `trials` are the director's."""

    trials: list[Trial] = field(default_factory=list)
    lives: dict[int, tuple[float, float | None]] = field(default_factory=dict)
    world: list[tuple[float, int]] = field(default_factory=list)
    violations: list[float] = field(default_factory=list)
    last_step: int = 0
    end_s: float = 0.0
    _per_second: list[int] = field(default_factory=list)
    _waits_s: deque[float] = field(default_factory=lambda: deque(maxlen=WAITS_KEPT))

    def started(self, number: int, at_s: float) -> None:
        """A peer's life begins."""
        self.lives[number] = (at_s, None)

    def ended(self, number: int, at_s: float) -> None:
        """And ends."""
        self.lives[number] = (self.lives[number][0], at_s)

    def stepped(self, step: int, begin_s: float, end_s: float, world: int) -> None:
        """A step was reported; it counts once, for whoever reports it first."""
        self.end_s = max(self.end_s, end_s)
        if step <= self.last_step:
            return
        self.last_step = step
        missing = int(end_s) + 1 - len(self._per_second)
        self._per_second += [0] * missing
        self._per_second[int(end_s)] += 1
        self._waits_s.append(end_s - begin_s)
        if not self.world or self.world[-1][1] != world:
            self.world.append((end_s, world))

    @property
    def step_ms(self) -> float:
        """What a step takes, in the middle."""
        return 1e3 * median(self._waits_s) if self._waits_s else 0.0

    @property
    def recent_rate(self) -> float:
        """Steps a second, over the last whole seconds."""
        seconds = self._per_second[-RECENT_S - 1 : -1]
        return sum(seconds) / len(seconds) if seconds else 0.0

    def rates(self) -> list[tuple[float, float]]:
        """(begin of a bin, steps a second in it), at most BINS_MAX bins of whole seconds."""
        width = max(1, -(-len(self._per_second) // BINS_MAX))
        begins = range(0, len(self._per_second), width)
        return [(float(begin), sum(self._per_second[begin : begin + width]) / width) for begin in begins]


@dataclass(frozen=True)
class Recoveries:
    """All faults of one kind in one line; times in seconds, of those that are known."""

    kind: str
    count: int
    failed_steps: int
    median_s: float | None
    max_s: float | None
    whole_median_s: float | None
    whole_max_s: float | None


def recoveries(trials: Sequence[Trial]) -> list[Recoveries]:
    """By kind, in the order of their first appearance. Trials that the machine disturbed do not count."""
    lines = []
    for kind in dict.fromkeys(trial.fault.kind for trial in trials):
        chosen = [trial for trial in trials if trial.fault.kind == kind and not trial.void]
        recovered = [trial.recovery_s for trial in chosen if trial.recovery_s is not None]
        whole = [
            trial.whole_s - trial.healed_s
            for trial in chosen
            if trial.whole_s is not None and trial.healed_s is not None
        ]
        failed = sum(trial.failed_steps for trial in chosen)
        lines.append(Recoveries(kind, len(chosen), failed, *_middle_and_most(recovered), *_middle_and_most(whole)))
    return lines


def _middle_and_most(values: Sequence[float]) -> tuple[float | None, float | None]:
    return (median(values), max(values)) if values else (None, None)
