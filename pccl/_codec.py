# SPDX-License-Identifier: MIT
"""Quantized payloads as the C library has them: typed wrappers of that part of csrc/pccl.h. It knows no peers and waits
for nothing; the GIL is released in every call."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pccl._cffi import ffi, lib
from pccl.errors import PCCLError, error_for

Pointer = Any
"""Of a pccl_quantization; what it points to lives as long as it."""

BLOCK_UNIT = 32
BLOCK_MAX = 65536


class Memory(NamedTuple):
    """Of values: an address that somebody else keeps alive, dtype, count."""

    address: int
    dtype: int
    elements: int


def quantization(**fields: int) -> Pointer:
    """A pccl_quantization with these fields, the others 0."""
    return ffi.new("pccl_quantization *", fields)


def floats(of: Any) -> Pointer:
    """The memory of a float32 array, which lives as long as what is returned."""
    return ffi.from_buffer("float[]", of, require_writable=True)


def check(quantization: Pointer, dtype: int) -> None:
    """Raises InvalidArgument where values of `dtype` cannot be quantized so."""
    error = ffi.new("pccl_error *")
    if lib.pccl_quantization_check(quantization, dtype, error):
        raise _failure(error)


def wire_bytes(quantization: Pointer, count: int) -> int:
    """What `count` values take on the wire."""
    return int(lib.pccl_quantized_bytes(quantization, count))


def quantize(quantization: Pointer, values: Memory) -> NDArray[np.uint8]:
    """Raises InvalidArgument; QuantizationError where a value cannot be encoded."""
    wire = np.empty(wire_bytes(quantization, values.elements), np.uint8)
    source, error = ffi.cast("void *", values.address), ffi.new("pccl_error *")
    if lib.pccl_quantize(quantization, values.dtype, source, values.elements, ffi.from_buffer(wire), error):
        raise _failure(error)
    return wire


def dequantize(quantization: Pointer, wire: NDArray[np.uint8], values: Memory) -> None:
    """Any bytes will do, as many as `wire_bytes`. Raises InvalidArgument."""
    assert wire.nbytes == wire_bytes(quantization, values.elements)
    target, error = ffi.cast("void *", values.address), ffi.new("pccl_error *")
    if lib.pccl_dequantize(quantization, values.dtype, ffi.from_buffer(wire), values.elements, target, error):
        raise _failure(error)


def _failure(error: Any) -> PCCLError:
    return error_for(error.status, ffi.string(error.message).decode(errors="replace"))
