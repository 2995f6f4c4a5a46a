# SPDX-License-Identifier: MIT
"""The formats of quantization by name, as `pccl bench --quantize` takes them, and what they are for."""

from __future__ import annotations

from pccl.quantization import QuantizationAlgorithm, QuantizationOptions

_ALGORITHMS = {
    "": QuantizationAlgorithm.CAST,
    "_min_max": QuantizationAlgorithm.MIN_MAX,
    "_zero_point": QuantizationAlgorithm.ZERO_POINT_SCALE,
    "_block": QuantizationAlgorithm.BLOCK,
}
_DTYPES = {
    "": ("bfloat16", "float16"),
    "_min_max": ("uint8", "int8"),
    "_zero_point": ("uint8", "int8"),
    "_block": ("int8", "int4", "int2", "float8_e4m3fn", "float8_e5m2"),
}
FORMATS = {dtype + kind: (dtype, _ALGORITHMS[kind]) for kind, dtypes in _DTYPES.items() for dtype in dtypes}

COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast")
REDUCTIONS = ("all_reduce", "reduce_scatter")
ALIKE = ("all_reduce", "all_gather", "broadcast")
"""Whose results are the same on all ranks."""

ELEMENTS = ("float32", "float64", "float16")


def named(name: str) -> QuantizationOptions:
    """One of FORMATS, with the blocks that are usual."""
    dtype, algorithm = FORMATS[name]
    return QuantizationOptions(dtype, algorithm)


def problems(name: str, op: str, dtype: str) -> list[str]:
    """One line for each thing that is against it."""
    lines = []
    if name not in FORMATS:
        lines.append(f"--quantize {name}: choose from {', '.join(FORMATS)}")
    if op not in COLLECTIVES:
        lines.append(f"{op} cannot be quantized: choose from {', '.join(COLLECTIVES)}")
    if dtype not in ELEMENTS:
        lines.append(f"{dtype} cannot be quantized: choose from {', '.join(ELEMENTS)}")
    return lines
