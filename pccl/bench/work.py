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

from pccl._native import hash128
from pccl.bench.formats import ALIKE, REDUCTIONS

Array = NDArray[Any]

ROOT = 0
# Whose larger side holds a block for each rank: the source of the first, the target of the others.
SPREADING = ("reduce_scatter", "scatter", "all_to_all")
COLLECTING = ("all_gather", "gather", "all_to_all")
# What goes between two ranks, there and back.
PAIRED = ("send_recv",)
# What is no collective, but a training step of a model with so many bytes of parameters.
STEP = "ddp"
# What only the root gives, or gets.
FROM_ROOT = ("scatter",)
TO_ROOT = ("reduce", "gather")
# An error that no format makes, relative to the range of values: something else went wrong then.
TOLERANCE = 0.5
PERIOD = 1_000_003


@dataclass(frozen=True)
class Shape:
    """What is asked for: `size` in bytes is the whole buffer of the larger side, as nccl-tests counts it, of all
    `inflight` operations together that run at a time, or of one call for all of them (`coalesced`). What is `quantized`
    is not exact: values are normally distributed, and errors are measured."""

    op: str
    size: int
    dtype: str
    in_place: bool
    peers: int
    inflight: int = 1
    coalesced: bool = False
    quantized: bool = False

    @property
    def averages(self) -> bool:
        """What is reduced again and again keeps its size so, and what is quantized must not be all zeros."""
        return self.quantized and self.op in REDUCTIONS

    @property
    def count(self) -> int:
        """Elements per rank of one operation; at least one."""
        return max(1, self.size // np.dtype(self.dtype).itemsize // self._blocks // self.inflight)

    @property
    def actual_size(self) -> int:
        """Bytes that `count` really makes, of all operations together."""
        if self.op == "barrier":
            return 0
        return self.count * self._blocks * np.dtype(self.dtype).itemsize * self.inflight

    @property
    def _blocks(self) -> int:
        return self.peers if self.op in SPREADING + COLLECTING else 1


class Work:
    """Buffers of one rank for one operation: the `part`-th of those in flight. In place, `source` and `target` overlap
    as the collective prescribes; those of a pair never do, or an answer would be checked against itself. What has no
    meaning on this rank is empty."""

    def __init__(self, shape: Shape, rank: int, part: int = 0) -> None:
        self.shape = shape
        self.rank = rank
        self.part = part
        op, count = shape.op, shape.count
        sources = count * shape.peers if op in SPREADING else count
        targets = count * shape.peers if op in COLLECTING else count
        alone = op in PAIRED and self.partner is None
        gives = (rank == ROOT or op not in FROM_ROOT) and not alone
        gets = (rank == ROOT or op != "gather") and not alone  # a reduction may need room on every rank
        self.source: Array = np.zeros(sources if gives else 0, shape.dtype)
        self.target: Array = np.zeros(targets if gets else 0, shape.dtype)
        if shape.in_place and gives and gets and op not in PAIRED:
            self._overlap(slice(rank * count, (rank + 1) * count))
        self.clear()

    @property
    def partner(self) -> int | None:
        """Ranks 0 and 1, 2 and 3, ... are pairs; of an odd number the last one has nobody."""
        other = self.rank ^ 1
        return other if other < self.shape.peers else None

    def _overlap(self, mine: slice) -> None:
        if len(self.source) > len(self.target):
            self.target = self.source[mine]
        elif len(self.source) < len(self.target):
            self.source = self.target[mine]
        else:
            self.target = self.source

    def clear(self) -> None:
        """Zeros, written to real memory: a sum in place keeps them through any number of iterations. What is quantized
        keeps its values."""
        if self.shape.quantized:
            return
        self.target.fill(0)
        self.source.fill(0)

    def fill(self, step: int) -> None:
        """This rank's contribution to a checked step; what is not part of it gets what no result equals."""
        self.target.fill(120 if self.target.itemsize <= 2 else 1_000_000)
        self.source[:] = self._values(len(self.source), self.rank, step)

    def is_right(self, step: int) -> bool:
        """True when every element of the target is exactly what the step must give. What is promised to the root only
        counts there, and an exclusive prefix of nobody is not defined."""
        op = self.shape.op
        if self.shape.quantized:
            return self.errors(step)[0] <= TOLERANCE
        if (op in TO_ROOT and self.rank != ROOT) or (op == "exscan" and self.rank == 0):
            return True
        return bool(np.array_equal(self.target, self._expected(step)))

    def errors(self, step: int) -> tuple[float, float]:
        """The largest error of the target, and the root of the mean squares, both relative to the range of what all
        ranks gave: from the smallest to the largest value."""
        given = [self._values(len(self.source), rank, step) for rank in range(self.shape.peers)]
        span = float(max(it.max() for it in given)) - float(min(it.min() for it in given))
        errors = np.abs(self.target.astype(np.float64) - self._expected(step)) / (span or 1.0)
        return float(errors.max()), float(np.sqrt(np.mean(errors**2)))

    def digest(self) -> str:
        """Of a target that has to be the same on all ranks; else empty."""
        return hash128(self.target).hex() if self.shape.op in ALIKE else ""

    def _expected(self, step: int) -> Array:
        op, count, peers = self.shape.op, self.shape.count, self.shape.peers
        mine = slice(self.rank * count, (self.rank + 1) * count)
        if op == "broadcast":
            return self._values(count, ROOT, step)
        if op in PAIRED:
            return self.source[:0] if self.partner is None else self._values(count, self.partner, step)
        if op == "scatter":
            return self._values(count * peers, ROOT, step)[mine]
        if op in ("all_gather", "gather"):
            return np.concatenate([self._values(count, rank, step) for rank in range(peers)])
        if op == "all_to_all":
            return np.concatenate([self._values(count * peers, rank, step)[mine] for rank in range(peers)])
        givers = {"scan": self.rank + 1, "exscan": self.rank}.get(op, peers)
        dtype = np.float64 if self.shape.averages else self.shape.dtype
        total = np.zeros(count * peers if op == "reduce_scatter" else count, dtype)
        for rank in range(givers):
            total += self._values(len(total), rank, step)
        if self.shape.averages:
            total /= peers
        return total[mine] if op == "reduce_scatter" else total

    def _values(self, count: int, rank: int, step: int) -> Array:
        make = normal if self.shape.quantized else values
        return make(self.shape.dtype, count, rank, step + self.part)


def values(dtype: str, count: int, rank: int, step: int) -> Array:
    """`count` whole numbers, small enough that 8 ranks' sum is exact even in int8. Ranks differ in pace, not only in
    where they begin, or blocks that two ranks exchange could be alike."""
    modulus = 13 if np.dtype(dtype).itemsize <= 2 else 1009
    pace, start = 1 + rank % (modulus - 1), rank * 5 + step * 17
    period = ((np.arange(modulus) * pace + start) % modulus).astype(dtype)
    return np.resize(period, count)


def normal(dtype: str, count: int, rank: int, step: int) -> Array:
    """`count` values as gradients have them, other ones for each rank and step."""
    period = np.random.default_rng((rank, step)).standard_normal(min(count, PERIOD), np.float32)
    return np.resize(period, count).astype(dtype)
