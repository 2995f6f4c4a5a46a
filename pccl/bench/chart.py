# SPDX-License-Identifier: MIT
"""A benchmark as a PNG: time and bus bandwidth over size, a line for each contender."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pccl.bench import sizes
from pccl.bench.report import Row

NEEDS = "the chart needs matplotlib: pip install 'pccl[bench]'"
MARKERS = "osD^"


def write(rows: Sequence[Row], title: str, path: Path) -> None:
    """Draws it; the shadow of a line goes from the shortest time to the 99th percentile. Blocks for about a second.
    Raises ImportError without matplotlib."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (time, bandwidth) = pyplot.subplots(1, 2, figsize=(13, 5.5))
    figure.suptitle(title)
    contenders = list(dict.fromkeys(row.contender for row in rows))
    for index, contender in enumerate(contenders):
        own = sorted((row for row in rows if row.contender == contender), key=lambda row: row.bytes)
        style = {"color": f"C{index}", "marker": MARKERS[index % len(MARKERS)], "markersize": 4, "label": contender}
        _lines(time, bandwidth, own, style)
    ticks = sorted({row.bytes for row in rows})
    _axes(time, "median time, µs (lower is better)", ticks)
    _axes(bandwidth, "bus bandwidth, GB/s (higher is better)", ticks)
    figure.tight_layout()
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def _lines(time: Any, bandwidth: Any, rows: Sequence[Row], style: dict[str, Any]) -> None:
    over = [row.bytes for row in rows]
    time.plot(over, [row.figures.median_us for row in rows], **style)
    lows, highs = [row.figures.min_us for row in rows], [row.figures.p99_us for row in rows]
    time.fill_between(over, lows, highs, color=style["color"], alpha=0.12, linewidth=0)
    bandwidth.plot(over, [row.figures.busbw_gbs for row in rows], **style)


def _axes(axes: Any, label: str, ticks: Sequence[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(ticks, [sizes.show(size) for size in ticks], rotation=45)
    axes.minorticks_off()
    axes.set_xlabel("bytes")
    axes.set_ylabel(label)
    axes.grid(alpha=0.3)
    axes.legend()
