# SPDX-License-Identifier: MIT
"""The straight line behind times over sizes, latency + size / bandwidth, and which sizes are far from it: where time
jumps or stalls at some size, a library does something there that it should not.

The line is the one with the least squares of relative errors, so that a microsecond counts as much among small sizes as
a millisecond does among large ones, and a size that stalls cannot bend it far.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pccl.bench import sizes as bench_sizes
from pccl.bench.report import Row
from pccl.bench.settings import Settings

FAR = 3.0
RAGGED = 10.0
SIZES_MIN = 3


@dataclass(frozen=True)
class Fit:
    """Of one contender. `times` is how long each size takes, by bytes, as a multiple of the line; `ragged` are sizes
    whose 99th percentile is above RAGGED times their median."""

    contender: str
    latency_us: float
    bandwidth_gbs: float
    times: dict[int, float]
    ragged: tuple[int, ...]

    @property
    def far(self) -> tuple[int, ...]:
        """Sizes that take FAR times as long as the line says, or as little."""
        return tuple(size for size, times in self.times.items() if not 1 / FAR <= times <= FAR)


def problems(settings: Settings) -> list[str]:
    """One line if there are too few sizes for a line."""
    enough = settings.op != "barrier" and len(set(settings.sizes)) >= SIZES_MIN
    return [] if enough else [f"--fit needs {SIZES_MIN} sizes or more"]


def lines(rows: Sequence[Row], *, as_json: bool) -> list[str]:
    """What is to be said of all contenders: a JSON object for each, or text."""
    found = fits(rows)
    return [json.dumps(as_object(fit)) for fit in found] if as_json else [it for fit in found for it in as_lines(fit)]


def as_lines(fit: Fit) -> list[str]:
    """For people."""
    worst = max(fit.times, key=lambda size: max(fit.times[size], 1 / fit.times[size]))
    bytes_too = f" + size / {fit.bandwidth_gbs:.3f} GB/s" if math.isfinite(fit.bandwidth_gbs) else " at any size"
    farthest = f"{bench_sizes.show(worst)}, {fit.times[worst]:.2f}x"
    told = [f"{fit.contender}: {fit.latency_us:.1f} us{bytes_too}; farthest: {farthest}"]
    told += [f"{fit.contender}: FAR from that: {bench_sizes.show(size)}, {fit.times[size]:.2f}x" for size in fit.far]
    return told + [
        f"{fit.contender}: RAGGED: {bench_sizes.show(size)}, p99 > {RAGGED:g}x median" for size in fit.ragged
    ]


def as_object(fit: Fit) -> dict[str, object]:
    """For programs."""
    return {
        "fit": fit.contender,
        "latency_us": round(fit.latency_us, 4),
        "bandwidth_gbs": round(fit.bandwidth_gbs, 4) if math.isfinite(fit.bandwidth_gbs) else None,
        "times": {str(size): round(times, 4) for size, times in fit.times.items()},
        "far": list(fit.far),
        "ragged": list(fit.ragged),
    }


def fits(rows: Sequence[Row]) -> list[Fit]:
    """One for each contender with SIZES_MIN sizes or more, in the order of the rows."""
    names = dict.fromkeys(row.contender for row in rows)
    series = [[row for row in rows if row.contender == name] for name in names]
    return [_fit(own) for own in series if len({row.bytes for row in own}) >= SIZES_MIN]


def _fit(rows: Sequence[Row]) -> Fit:
    sizes = np.array([row.bytes for row in rows], np.float64)
    times_us = np.array([row.figures.median_us for row in rows])
    latency, per_byte = line(sizes, times_us)
    expected = latency + per_byte * sizes
    return Fit(
        contender=rows[0].contender,
        latency_us=latency,
        bandwidth_gbs=math.inf if per_byte == 0 else 1e-3 / per_byte,
        times={row.bytes: float(time / at) for row, time, at in zip(rows, times_us, expected, strict=True)},
        ragged=tuple(row.bytes for row in rows if row.figures.p99_us > RAGGED * row.figures.median_us),
    )


def line(sizes: NDArray[np.float64], times: NDArray[np.float64]) -> tuple[float, float]:
    """What a size of nothing takes, and each byte; neither is negative, and not both are nothing."""
    both = np.stack([1 / times, sizes / times], axis=1)
    one = np.ones(len(sizes))
    latency, per_byte = np.linalg.lstsq(both, one, rcond=None)[0]
    if latency < 0:
        return 0.0, float(both[:, 1].sum() / (both[:, 1] ** 2).sum())
    if per_byte < 0:
        return float(both[:, 0].sum() / (both[:, 0] ** 2).sum()), 0.0
    return float(latency), float(per_byte)
