# SPDX-License-Identifier: MIT
"""Vectors of which few elements are given: the choice of the largest ones, and what a sum of them is."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pccl import arrays
from pccl._native import ReduceInfo
from pccl.arguments import whole
from pccl.errors import InvalidArgument

_SAMPLE = 1 << 14


class TopK(NamedTuple):
    """Elements of an array: where they are, in its flat form and in order, and what they are."""

    indices: NDArray[np.int64]
    values: Any


@dataclass(frozen=True)
class SparseSum:
    """Of the contributions of all members, the same bits on all."""

    indices: NDArray[np.int64]
    """Sorted: each that any member has given."""

    values: Any
    """As many, of the dtype and kind (numpy array or torch tensor) of what was given."""

    length: int
    """Of the vector."""

    info: ReduceInfo
    """Of all operations together; the algorithm is that of the last one."""

    def dense(self, out: Any = None) -> Any:
        """The whole vector, zeros included: a new one, or in `out`, an array or tensor of `length` elements and of the
        same dtype and kind, of any shape, contiguous. Raises InvalidArgument."""
        tensor = arrays.is_tensor(self.values)
        if out is None:
            zeros = _torch().zeros if tensor else np.zeros
            out = zeros(self.length, dtype=self.values.dtype)
        else:
            _check_out("out", out, self.values, self.length)
            out[...] = 0
        out.reshape(-1)[_torch().from_numpy(self.indices) if tensor else self.indices] = self.values
        return out


def top_k(array: Any, k: int, rest: Any = None) -> TopK:
    """The `k` elements of the largest magnitude, of those that are equal the ones that come first. What is not a number
    is larger than any number, so that it is never left out. `array` is a numpy array or torch CPU tensor of floats, of
    any shape; it is not changed.

    `rest`, if given, gets what is left out: a float32 array of as many elements, where those that were chosen are zero.
    Raises InvalidArgument.
    """
    tensor = arrays.is_tensor(array)
    flat: Any = array.detach().reshape(-1) if tensor else np.asarray(array).reshape(-1)
    if not (flat.is_floating_point() if tensor else flat.dtype.kind == "f"):
        raise InvalidArgument(f"array holds {flat.dtype}, not floats")
    k = whole("k", k, 0, len(flat))
    left = None if rest is None else arrays.float32("rest", rest, len(flat))
    seen = arrays.as_numpy(flat)
    indices = _largest(np.abs(seen), k)
    values = pick(flat, indices)
    if left is not None:
        left[:] = seen
        left[indices] = 0
    return TopK(indices, values)


def _largest(sizes: NDArray[Any], k: int) -> NDArray[np.int64]:
    """The indices of the `k` largest, in order. Of many, a sample tells about how large these are, and only what is as
    large is looked at more closely."""
    if k in (0, len(sizes)):
        return np.arange(k, dtype=np.int64)
    if len(sizes) >= 4 * _SAMPLE:
        sample = sizes[:: len(sizes) // _SAMPLE]
        expected = len(sample) * k / len(sizes)
        place = int(expected + 5 * math.sqrt(expected) + 10)
        if place < len(sample) // 2:
            candidates = np.flatnonzero(~(sizes < np.partition(sample, -place)[-place]))
            if k <= len(candidates) <= len(sizes) // 4 * 3:
                return candidates[_largest(sizes[candidates], k)]
    undefined = np.isnan(sizes)
    if undefined.any():
        sizes = np.where(undefined, np.inf, sizes)
    least = np.partition(sizes, -k)[-k]
    indices = np.flatnonzero(sizes >= least)
    if len(indices) > k:
        equal = np.flatnonzero(sizes[indices] == least)
        indices = np.delete(indices, equal[len(equal) - (len(indices) - k) :])
    return indices.astype(np.int64, copy=False)


def raw(array: Any) -> NDArray[np.uint8]:
    """The bytes of a contiguous one."""
    if arrays.is_tensor(array):
        return np.asarray(array.detach().view(_torch().uint8).numpy())
    return np.asarray(array).view(np.uint8)


def cooked(bytes_: NDArray[np.uint8], like: Any) -> Any:
    """The inverse: of the kind and dtype of `like`."""
    if arrays.is_tensor(like):
        return _torch().from_numpy(bytes_).view(like.dtype)
    return bytes_.view(like.dtype)


def empty(count: int, like: Any) -> Any:
    """A new one of so many elements, of the kind and dtype of `like`."""
    return _torch().empty(count, dtype=like.dtype) if arrays.is_tensor(like) else np.empty(count, like.dtype)


def pick(array: Any, indices: NDArray[np.int64]) -> Any:
    """Its elements at these."""
    return array[_torch().from_numpy(indices) if arrays.is_tensor(array) else indices]


def _check_out(name: str, out: Any, like: Any, elements: int) -> None:
    tensor = arrays.is_tensor(like)
    if arrays.is_tensor(out) != tensor or not (tensor or isinstance(out, np.ndarray)):
        raise InvalidArgument(f"{name} is a {type(out).__name__}, and values are a {type(like).__name__}")
    contiguous = out.is_contiguous() if tensor else out.flags.c_contiguous
    count = out.numel() if tensor else out.size
    if out.dtype != like.dtype or count != elements or not contiguous:
        raise InvalidArgument(f"{name} must hold {elements} contiguous {like.dtype}, not {count} {out.dtype}")


def _torch() -> Any:
    return sys.modules["torch"]
