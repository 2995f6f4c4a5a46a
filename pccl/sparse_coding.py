# SPDX-License-Identifier: MIT
"""How the values of a sparse vector travel: as they are, or quantized.

The random choices of one rank must not be those of another, or all would err in the same direction. So each rank has a
seed of its own, made of the one that members agree on; who receives knows it, too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pccl import _native, _sparse, sparse
from pccl._sparse import Bytes
from pccl.enums import DataType
from pccl.errors import InvalidArgument
from pccl.quantization import QuantizationAlgorithm, QuantizationOptions

_SEED_STEP = 0x9E3779B97F4A7C15
"""Odd, so that it takes 2^64 ranks until a seed comes again."""

_FLOATS = (DataType.FLOAT16, DataType.BFLOAT16, DataType.FLOAT32, DataType.FLOAT64)


@dataclass(frozen=True)
class Coding:
    """Values of any dtype to bytes and back. `options` are None for values as they are."""

    options: QuantizationOptions | None = None

    @classmethod
    def of(cls, options: Any, dtype: int) -> Coding:
        """As a call asks for it. Raises InvalidArgument."""
        if options is None:
            return cls()
        if not isinstance(options, QuantizationOptions):
            raise InvalidArgument(f"quantization_options is a {type(options).__name__}, not a QuantizationOptions")
        if options.algorithm == QuantizationAlgorithm.NONE:
            return cls()
        if dtype not in _FLOATS:
            raise InvalidArgument(f"values are {_native.dtype_name(dtype)}, which cannot be quantized")
        return cls(options)

    @property
    def text(self) -> str:
        """For people: empty for values as they are."""
        options = self.options
        if options is None:
            return ""
        kind, algorithm = options.quantized_datatype, options.algorithm
        name = kind.name.lower() if isinstance(kind, DataType) else kind
        words = [f"{name} {'' if algorithm is None else algorithm.name} of {options.block}"]
        words += [f"{options.rounding} from {options.seed}"] if options.seed is not None else []
        words += ["rotated"] if options.rotate else []
        words += ["nan passes"] if options.nan == "propagate" else []
        return ", ".join(words)

    @property
    def number(self) -> int:
        """Another one for each way; 0 for values as they are."""
        return int.from_bytes(_native.hash128(self.text.encode())[:8], "big") | 1 if self.options else 0

    def bytes(self, count: int, dtype: int) -> int:
        """That so many values take."""
        return count * _sparse.element_bytes(dtype) if self.options is None else self.options.bytes(count)

    def encode(self, values: Any, rank: int) -> Bytes:
        """Of an array or tensor that `rank` sends. Raises QuantizationError."""
        return sparse.raw(values) if self.options is None else self._options(rank).quantize(values)

    def decode(self, coded: Bytes, like: Any, count: int, rank: int) -> Bytes:
        """The inverse: the bytes of `count` values of the kind and dtype of `like`."""
        if self.options is None:
            return coded
        out = sparse.empty(count, like)
        self._options(rank).dequantize(np.ascontiguousarray(coded), count, out=out)
        return sparse.raw(out)

    def _options(self, rank: int) -> QuantizationOptions:
        options = self.options
        assert options is not None
        if options.seed is None:
            return options
        return replace(options, seed=(options.seed + rank * _SEED_STEP) % 2**64)
