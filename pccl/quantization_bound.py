# SPDX-License-Identifier: MIT
"""How far quantized values may be from the exact ones: the formulas of docs/quantization.md, which derives them, as
code. It knows the formats' numbers and nothing of how they are coded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pccl._native import constants

Floats = NDArray[np.float64]

PIECE = 1024
"""The longest that is rotated at once."""

_FLOAT32 = (2.0**-24, 2.0**-150)
_PLACES = {"float16": (2.0**-11, 2.0**-25), "float64": (2.0**-53, 2.0**-1075)}
"""Half the distance of neighbours, relative and of the smallest."""


@dataclass(frozen=True)
class Block:
    """What a bound depends on, of the block of each value: its range and largest magnitude. `part` is that of a step by
    which rounding is off, 1/2 to the nearest and 1 at random."""

    low: Floats
    high: Floats
    part: float

    @property
    def largest(self) -> Floats:
        """The largest magnitude."""
        return np.maximum(np.abs(self.low), np.abs(self.high))


def half_place(values: Floats, relative: float, smallest: float) -> Floats:
    """Half the distance of neighbouring floats."""
    return np.maximum(np.abs(values) * relative, smallest)


def _cast(relative: float, smallest: float) -> Callable[[Block, Floats], Floats]:
    return lambda block, values: 2 * block.part * half_place(values, relative, smallest)


def _min_max(block: Block, values: Floats) -> Floats:
    del values
    return (block.part + 2.0**-13) * ((block.high - block.low) / 255) + half_place(block.largest, *_FLOAT32)


def _zero_point(block: Block, values: Floats) -> Floats:
    del values
    return (block.part + 2.0**-12) * (np.maximum(block.high, 0) - np.minimum(block.low, 0)) / 253 + 2.0**-149


def _whole(levels: int) -> Callable[[Block, Floats], Floats]:
    return lambda block, values: (block.part + 2.0**-14) * block.largest / levels + 2.0**-149


def _float8(place: float, largest: float, smallest: float) -> Callable[[Block, Floats], Floats]:
    def bound(block: Block, values: Floats) -> Floats:
        places = np.maximum(np.abs(values) * place, block.largest / largest * smallest)
        return block.part * places + np.abs(values) * 2.0**-20 + 2.0**-149

    return bound


_BOUNDS: dict[int, Callable[[Block, Floats], Floats]] = {
    constants.PCCL_TO_BFLOAT16: _cast(2.0**-8, 2.0**-134),
    constants.PCCL_TO_FLOAT16: _cast(*_PLACES["float16"]),
    constants.PCCL_UINT8_MIN_MAX: _min_max,
    constants.PCCL_INT8_MIN_MAX: _min_max,
    constants.PCCL_UINT8_ZERO_POINT: _zero_point,
    constants.PCCL_INT8_ZERO_POINT: _zero_point,
    constants.PCCL_INT8_BLOCK: _whole(127),
    constants.PCCL_INT4_BLOCK: _whole(7),
    constants.PCCL_INT2_BLOCK: _whole(1),
    constants.PCCL_E4M3_BLOCK: _float8(2.0**-3, 448, 2.0**-9),
    constants.PCCL_E5M2_BLOCK: _float8(2.0**-2, 57344, 2.0**-16),
}


def bound(format: int, block: int, part: float, rotated: bool, values: NDArray[np.floating]) -> Floats:
    """Of each of `values`: |what comes back - the value|, in their dtype. All must be finite."""
    exact = np.asarray(values, np.float64).reshape(-1)
    narrow = exact.astype(np.float32).astype(np.float64)
    if narrow.size == 0:
        return narrow
    off = _rotated(format, block, part, narrow) if rotated else _plain(format, block, part, narrow)
    off += half_place(exact, *_FLOAT32) if values.dtype == np.float64 else 0
    return off + half_place(np.abs(exact) + off, *_PLACES.get(values.dtype.name, _FLOAT32))


def _plain(format: int, block: int, part: float, values: Floats) -> Floats:
    starts = np.arange(0, values.size, block)
    lengths = np.diff(np.append(starts, values.size))
    low, high = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
    return _BOUNDS[format](Block(np.repeat(low, lengths), np.repeat(high, lengths), part), values)


def _rotated(format: int, block: int, part: float, values: Floats) -> Floats:
    """A coefficient of the transform is at most the root mean square of its piece. Each value is a sum of all of these,
    as its error is one of their errors."""
    off = np.empty(values.size)
    for start in range(0, values.size, block):
        pieces = list(_pieces(start, min(start + block, values.size)))
        largest = max(np.sqrt(np.square(values[piece]).mean()) for piece in pieces)
        ends = np.array([largest])
        each = float(_BOUNDS[format](Block(-ends, ends, part), ends)[0])
        for piece in pieces:
            count = piece.stop - piece.start
            length = np.sqrt(np.square(values[piece]).sum())
            off[piece] = count * (each + 2.0**-139) + 2.0**-19 * length
    return off


def _pieces(start: int, end: int) -> list[slice]:
    """Powers of two, the largest first."""
    pieces = []
    while start < end:
        count = min(1 << (end - start).bit_length() - 1, PIECE)
        pieces.append(slice(start, start + count))
        start += count
    return pieces
