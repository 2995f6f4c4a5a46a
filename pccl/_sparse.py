# SPDX-License-Identifier: MIT
"""Sparse vectors as the C library has them: typed wrappers of csrc/pccl_sparse.h. It knows no peers and waits for
nothing; the GIL is released in every call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pccl._cffi import ffi, lib
from pccl.errors import PCCLError, error_for

Indices = NDArray[np.uint64]
Bytes = NDArray[np.uint8]

LENGTH_MAX = 2 ** int(lib.PCCL_INDICES_LENGTH_BITS)
"""Of a sparse vector."""


class Entries(NamedTuple):
    """What one vector has: sorted, distinct indices, and the bytes of as many values."""

    indices: Indices
    values: Bytes


def element_bytes(dtype: int) -> int:
    """0 for numbers that are no dtype."""
    return int(lib.pccl_dtype_bytes(dtype))


def most_bytes(count: int, length: int) -> int:
    """What `count` indices below `length` take at most when they are encoded."""
    return int(lib.pccl_indices_bytes(count, length))


def encode(indices: Indices, length: int) -> Bytes:
    """Raises InvalidArgument where they are not sorted, distinct and below `length`."""
    wire = np.empty(most_bytes(len(indices), length), np.uint8)
    size, error = ffi.new("uint64_t *"), ffi.new("pccl_error *")
    source, target = ffi.from_buffer("uint64_t[]", indices), ffi.from_buffer(wire)
    if lib.pccl_indices_encode(source, len(indices), length, target, size, error):
        raise _failure(error)
    return wire[: size[0]]


def decode(wire: Bytes, count: int, length: int) -> Indices:
    """The inverse. Raises ProtocolError where the bytes are no `count` such indices."""
    indices, error = np.empty(count, np.uint64), ffi.new("pccl_error *")
    source, target = ffi.from_buffer(wire), ffi.from_buffer("uint64_t[]", indices)
    if lib.pccl_indices_decode(source, len(wire), length, target, count, error):
        raise _failure(error)
    return indices


def add(dtype: int, vectors: Sequence[Entries], length: int) -> Entries:
    """Their sum: all indices of any of them, and for each the values added up in the order of `vectors`. Raises
    OutOfMemory; InvalidArgument for a dtype that is none of numbers with 16 bits or whole ones."""
    each = element_bytes(dtype)
    capacity = min(sum(len(it.indices) for it in vectors), length)
    indices, values = np.empty(capacity, np.uint64), np.empty(capacity * each, np.uint8)
    raw, count, error = ffi.new("pccl_sparse[]", len(vectors)), ffi.new("uint64_t *"), ffi.new("pccl_error *")
    kept = []
    for target, it in zip(raw, vectors, strict=True):
        assert it.values.nbytes == len(it.indices) * each
        kept += [ffi.from_buffer("uint64_t[]", it.indices), ffi.from_buffer(it.values)]
        target.indices, target.values, target.count = kept[-2], kept[-1], len(it.indices)
    outputs = ffi.from_buffer("uint64_t[]", indices), ffi.from_buffer(values)
    if lib.pccl_sparse_sum(dtype, raw, len(vectors), *outputs, capacity, count, error):
        raise _failure(error)
    return Entries(indices[: count[0]], values[: count[0] * each])


def _failure(error: Any) -> PCCLError:
    return error_for(error.status, ffi.string(error.message).decode(errors="replace"))
