# SPDX-License-Identifier: MIT
"""The buffers of one collective, values to put into them, and what must come out, exactly.

Values are small whole numbers that differ per element, rank and step: every sum is exact in every dtype and in any
order, and a chunk at the wrong place shows. Buffers are laid out as in NCCL (`count` per rank).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

ROOT = 0


@dataclass(frozen=True)
class Shape:
    """What is asked for: `size` in bytes is the whole buffer of the larger side, as nccl-tests counts it."""

    op: str
    size: int
    dtype: str
    in_place: bool
    peers: int

    @property
    def count(self) -> int:
        """Elements per rank; at least one."""
        parts = self.peers if self.op in ("reduce_scatter", "all_gather") else 1
        return max(1, self.size // np.dtype(self.dtype).itemsize // parts)

    @property
    def actual_size(self) -> int:
        """Bytes that `count` really makes."""
        if self.op == "barrier":
            return 0
        parts = self.peers if self.op in ("reduce_scatter", "all_gather") else 1
        return self.count * parts * np.dtype(self.dtype).itemsize


class Work:
    """Buffers of one rank. In place, `source` and `target` overlap as the collective prescribes."""

    def __init__(self, shape: Shape, rank: int) -> None:
        self.shape = shape
        self.rank = rank
        count, peers = shape.count, shape.peers
        sources = count * peers if shape.op == "reduce_scatter" else count
        targets = count * peers if shape.op == "all_gather" else count
        mine = slice(rank * count, (rank + 1) * count)
        self.source: Array = np.zeros(sources, shape.dtype)
        self.target: Array = np.zeros(targets, shape.dtype)
        if shape.in_place and shape.op == "reduce_scatter":
            self.target = self.source[mine]
        elif shape.in_place and shape.op == "all_gather":
            self.source = self.target[mine]
        elif shape.in_place:
            self.target = self.source
        self.clear()

    def clear(self) -> None:
        """Zeros, written to real memory: a sum in place keeps them through any number of iterations."""
        self.target.fill(0)
        self.source.fill(0)

    def fill(self, step: int) -> None:
        """This rank's contribution to a checked step; the target gets what no result equals."""
        if not self.shape.in_place:
            self.target.fill(77)
        self.source[:] = values(self.shape.dtype, len(self.source), self.rank, step)

    def is_right(self, step: int) -> bool:
        """True when every element of the target is exactly what the step must give."""
        return bool(np.array_equal(self.target, self._expected(step)))

    def _expected(self, step: int) -> Array:
        dtype, count, peers = self.shape.dtype, self.shape.count, self.shape.peers
        if self.shape.op == "broadcast":
            return values(dtype, count, ROOT, step)
        if self.shape.op == "all_gather":
            return np.concatenate([values(dtype, count, rank, step) for rank in range(peers)])
        total = np.zeros(len(self.source), dtype)
        for rank in range(peers):
            total += values(dtype, len(self.source), rank, step)
        return total[self.rank * count :][:count] if self.shape.op == "reduce_scatter" else total


def values(dtype: str, count: int, rank: int, step: int) -> Array:
    """`count` whole numbers, small enough that 8 ranks' sum is exact even in int8."""
    modulus = 13 if np.dtype(dtype).itemsize <= 2 else 1009
    start = (rank * 131 + step * 17) % modulus
    period = ((np.arange(modulus) * 7 + start) % modulus).astype(dtype)
    return np.resize(period, count)
