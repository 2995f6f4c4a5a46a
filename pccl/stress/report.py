# SPDX-License-Identifier: MIT
"""What is left of a stress test: a summary for people, an object for programs, and the command that repeats it.

Must not know: how the test was run.
"""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import Any

from rich.table import Table

from pccl.stress.supervisor import Outcome
from pccl.stress.timeline import recoveries
from pccl.stress.trial import Trial


def command(name: str, options: dict[str, Any]) -> str:
    """The one line that runs the same scenario with the same faults again; options that are None are left out."""
    words = ["pccl", "stress", name]
    for option, value in options.items():
        if value is not None:
            words += [f"--{option}", f"{value:.15g}" if isinstance(value, float) else str(value)]
    return shlex.join(words)


def as_json(outcome: Outcome, repeat: str) -> dict[str, Any]:
    """Everything, as plain values. Times in seconds since the start."""
    return {
        "scenario": outcome.scenario.name,
        "title": outcome.scenario.title,
        "seed": outcome.settings.seed,
        "hosts": asdict(outcome.settings.wanted),
        "repeat": repeat,
        "passed": not outcome.checkers.violations,
        "seconds": outcome.seconds,
        "steps": outcome.timeline.last_step,
        "step_ms": outcome.timeline.step_ms,
        "peers": len(outcome.director.peers),
        "left_out": outcome.unable,
        "violations": [asdict(violation) for violation in outcome.checkers.violations],
        "recoveries": [asdict(line) for line in recoveries(outcome.director.trials)],
        "faults": [_trial(trial) for trial in outcome.director.trials],
        "membership": outcome.timeline.world,
        "steps_per_second": outcome.timeline.rates(),
    }


def recovery_table(outcome: Outcome) -> Table:
    """One row per kind of fault."""
    shown = Table(title="recovery, in seconds", title_justify="left")
    shown.add_column("fault")
    for column in ("times", "failed operations", "next step: median", "max", "whole again: median", "max"):
        shown.add_column(column, justify="right")
    for line in recoveries(outcome.director.trials):
        times = (line.median_s, line.max_s, line.whole_median_s, line.whole_max_s)
        shown.add_row(line.kind, str(line.count), str(line.failed_steps), *map(_seconds, times))
    return shown


def verdict(outcome: Outcome) -> str:
    """The last word."""
    what = (
        f"{outcome.timeline.last_step} steps in {outcome.seconds:.0f} s ({outcome.timeline.step_ms:.1f} ms each in the "
        f"middle), {len(outcome.director.peers)} peers, {len(outcome.director.trials)} faults"
    )
    count = len(outcome.checkers.violations)
    return f"PASSED: {what}, no violation" if not count else f"FAILED: {what}, {count} violations"


def _trial(trial: Trial) -> dict[str, Any]:
    return {
        "kind": trial.fault.kind,
        "at_s": trial.at_s,
        "victims": trial.victims,
        "hold_s": trial.fault.hold_s,
        "healed_s": trial.healed_s,
        "recovery_s": trial.recovery_s,
        "whole_s": trial.whole_s,
        "failed_operations": trial.failed_steps,
        "void": trial.void,
    }


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
