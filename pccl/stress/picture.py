# SPDX-License-Identifier: MIT
"""The timeline of a stress test as a PNG: who lived, how many took part, steps a second, faults with their recovery."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pccl.stress.timeline import Timeline
from pccl.stress.trial import Trial

NEEDS = "the picture needs matplotlib: pip install 'pccl[stress]'"
COLOURS = {"kill": "C3", "donor": "C3", "leave": "C1", "stop": "C4", "master": "C0"}
LINK_COLOUR = "C2"
ROWS_MAX = 60


def write(timeline: Timeline, title: str, path: Path) -> None:
    """Draws it. Blocks for about a second. Raises ImportError without matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (lives, world, rate, recovery) = pyplot.subplots(
        4, 1, sharex=True, figsize=(13, 10), height_ratios=(2.4, 1, 1.4, 1.4)
    )
    lives.set_title(title)
    _lives(lives, timeline)
    if timeline.world:
        times, sizes = zip(*timeline.world, strict=True)
        world.step([*times, timeline.end_s], [*sizes, sizes[-1]], where="post", color="black")
        world.set_ylim(0, max(sizes) + 1)
    world.set_ylabel("members")
    if timeline.rates():
        rate.step(*zip(*timeline.rates(), strict=True), where="post", color="C0", linewidth=1)
    rate.set_ylabel("steps/s")
    _recoveries(recovery, timeline.trials)
    for axes in (world, rate, recovery):
        for at_s in timeline.violations:
            axes.axvline(at_s, color="red", linewidth=2)
    recovery.set_xlabel("seconds")
    figure.tight_layout()
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def _lives(axes: Any, timeline: Timeline) -> None:
    """A bar per process, with what was done to it."""
    shown = dict(list(timeline.lives.items())[-ROWS_MAX:])
    for number, (begin_s, end_s) in shown.items():
        axes.barh(number, (end_s or timeline.end_s) - begin_s, left=begin_s, height=0.7, color="lightgrey")
    for trial in timeline.trials:
        for number in trial.victims:
            if number in shown:
                end_s = trial.healed_s if trial.fault.traits.held and trial.healed_s else trial.at_s
                axes.barh(number, end_s - trial.at_s, left=trial.at_s, height=0.7, color=_colour(trial))
                axes.plot([trial.at_s], [number], marker="|", color=_colour(trial), markersize=9, markeredgewidth=2)
    axes.set_ylabel("peer")


def _recoveries(axes: Any, trials: Sequence[Trial]) -> None:
    """A stem per fault: time until the survivors' next step."""
    for kind in dict.fromkeys(trial.fault.kind for trial in trials):
        chosen = [trial for trial in trials if trial.fault.kind == kind and trial.recovery_s is not None]
        if not chosen:
            continue
        times, colour = [trial.at_s for trial in chosen], _colour(chosen[0])
        heights = [max(1e-3, trial.recovery_s or 0.0) for trial in chosen]
        axes.vlines(times, 1e-3, heights, color=colour, linewidth=1)
        axes.plot(times, heights, "o", color=colour, markersize=4, label=kind)
    axes.set_yscale("log")
    axes.set_ylabel("s to next step")
    if any(trial.recovery_s is not None for trial in trials):
        axes.legend(loc="upper right", ncols=4, fontsize=8)
    for trial in trials:
        if trial.fault.traits.held and trial.healed_s is not None:
            axes.axvspan(trial.at_s, trial.healed_s, color=_colour(trial), alpha=0.12)


def _colour(trial: Trial) -> str:
    return COLOURS.get(trial.fault.kind, LINK_COLOUR)
