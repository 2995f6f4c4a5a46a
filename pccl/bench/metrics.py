# SPDX-License-Identifier: MIT
"""From times to figures, with nccl-tests' definitions, so that tables can be laid side by side.

The time of an iteration is that of its slowest rank. algbw is size / median time; busbw multiplies it by what the
algorithm must move per byte, so that it can be compared with the link's speed at any world size
(https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pccl.bench.work import STEP

BATCH_NS = 250_000_000
ITERATIONS = (3, 2000)


@dataclass(frozen=True)
class Figures:
    """Of one collective at one size. Bandwidths in GB/s (10^9 bytes); zero for a barrier."""

    iterations: int
    min_us: float
    median_us: float
    p99_us: float
    algbw_gbs: float
    busbw_gbs: float


def slowest(times_ns: Sequence[Sequence[int]]) -> list[int]:
    """Per iteration the longest time over all ranks."""
    return [int(time) for time in np.max(np.asarray(times_ns, np.int64), axis=0)]


def figures(op: str, peers: int, size: int, times_ns: Sequence[int]) -> Figures:
    """Sums up the iterations of all rounds; `size` in bytes as nccl-tests counts it."""
    times = np.asarray(times_ns, np.float64)
    median = float(np.median(times))
    algbw = size / median
    return Figures(
        iterations=len(times),
        min_us=float(times.min()) / 1e3,
        median_us=median / 1e3,
        p99_us=float(np.percentile(times, 99)) / 1e3,
        algbw_gbs=algbw,
        busbw_gbs=algbw * bytes_per_byte(op, peers),
    )


def bytes_per_byte(op: str, peers: int) -> float:
    """What the busiest rank must send or receive for each byte of the size. nccl-tests knows no scans: all but one rank
    must send, and all but one receive, the whole vector. A pair's bytes go there and then back, over one link. A
    training step averages the gradients."""
    share = (peers - 1) / peers
    if op in ("all_reduce", STEP):
        return 2 * share
    if op in ("reduce_scatter", "all_gather", "all_to_all", "gather", "scatter"):
        return share
    return {"barrier": 0.0, "send_recv": 2.0}.get(op, 1.0)


def iterations_for(warm_up_ns: Sequence[int]) -> int:
    """So many that a batch of the slowest contender takes about a quarter of a second."""
    low, high = ITERATIONS
    return max(low, min(high, BATCH_NS // max(1, *warm_up_ns)))
