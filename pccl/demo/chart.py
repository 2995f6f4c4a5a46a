# SPDX-License-Identifier: MIT
"""The picture at the end of the demo: loss and membership over time, with the events marked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class History:
    """What was seen when; seconds since the start."""

    losses: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    members: list[tuple[float, int]] = field(default_factory=list)
    events: list[tuple[float, str]] = field(default_factory=list)

    def round_finished(self, peer: str, at_s: float, loss: float, world_size: int) -> None:
        """One report of one peer."""
        self.losses.setdefault(peer, []).append((at_s, loss))
        if not self.members or self.members[-1][1] != world_size:
            self.members.append((at_s, world_size))


def write(history: History, path: Path) -> None:
    """Draws the PNG. Blocks for about a second."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (above, below) = pyplot.subplots(2, 1, sharex=True, figsize=(11, 7), height_ratios=(3, 1.2))
    for peer, points in history.losses.items():
        above.plot(*zip(*points, strict=True), label=peer, linewidth=1.2)
    above.set_yscale("log")
    above.set_ylabel("training loss of the round")
    above.set_title("DiLoCo on handwritten digits: peers come and go, the master dies, training goes on")
    above.legend(loc="upper right")
    end_s = max(points[-1][0] for points in history.losses.values())
    times, sizes = zip(*history.members, strict=True)
    below.step([*times, end_s], [*sizes, sizes[-1]], where="post", color="black")
    below.set_ylabel("peers in the group")
    below.set_xlabel("seconds")
    below.set_ylim(0, max(sizes) + 1)
    below.set_yticks(range(max(sizes) + 2))
    _mark(above, below, history.events)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _mark(above: Any, below: Any, events: Sequence[tuple[float, str]]) -> None:
    """A thin line through both parts at each event, its name at the upper one's foot."""
    look = {"rotation": 90, "fontsize": 8, "color": "grey", "transform": above.get_xaxis_transform()}
    for at_s, text in events:
        for axes in (above, below):
            axes.axvline(at_s, color="grey", linestyle=":", linewidth=1)
        above.text(at_s, 0.02, f" {text}", **look)
