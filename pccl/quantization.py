# SPDX-License-Identifier: MIT
"""What floats become on the wire, as users ask for it. Which forms there are, how far each is from the exact values,
and when to use which: docs/quantization.md.

It knows no peers: options are values that calls carry, and that can be tried out on an array alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pccl import _codec, arrays, quantization_bound
from pccl._native import constants
from pccl.arguments import whole
from pccl.enums import DataType
from pccl.errors import InvalidArgument

BLOCK = 1024
"""How many values share parameters unless one says otherwise."""


class QuantizationAlgorithm(Enum):
    """How values are made smaller for the wire."""

    NONE = 0
    """Not at all."""
    MIN_MAX = 1
    """To uint8 or int8: 256 steps from the lowest to the highest value of a block, both of which are exact."""
    ZERO_POINT_SCALE = 2
    """To uint8 or int8: a step, and a code for zero. Zeros are exact, as is the value farthest from them."""
    CAST = 3
    """To bfloat16 or float16, each value by itself."""
    BLOCK = 4
    """To int8, int4, int2, float8_e4m3fn or float8_e5m2, scaled by the largest magnitude of a block, which is exact, as
    are zeros."""


_FORMATS: dict[tuple[QuantizationAlgorithm, str], int] = {
    (QuantizationAlgorithm.MIN_MAX, "uint8"): constants.PCCL_UINT8_MIN_MAX,
    (QuantizationAlgorithm.MIN_MAX, "int8"): constants.PCCL_INT8_MIN_MAX,
    (QuantizationAlgorithm.ZERO_POINT_SCALE, "uint8"): constants.PCCL_UINT8_ZERO_POINT,
    (QuantizationAlgorithm.ZERO_POINT_SCALE, "int8"): constants.PCCL_INT8_ZERO_POINT,
    (QuantizationAlgorithm.CAST, "bfloat16"): constants.PCCL_TO_BFLOAT16,
    (QuantizationAlgorithm.CAST, "float16"): constants.PCCL_TO_FLOAT16,
    (QuantizationAlgorithm.BLOCK, "int8"): constants.PCCL_INT8_BLOCK,
    (QuantizationAlgorithm.BLOCK, "int4"): constants.PCCL_INT4_BLOCK,
    (QuantizationAlgorithm.BLOCK, "int2"): constants.PCCL_INT2_BLOCK,
    (QuantizationAlgorithm.BLOCK, "float8_e4m3fn"): constants.PCCL_E4M3_BLOCK,
    (QuantizationAlgorithm.BLOCK, "float8_e5m2"): constants.PCCL_E5M2_BLOCK,
}


@dataclass(frozen=True)
class QuantizationOptions:
    """The type on the wire and how values become it. All members of a call pass the same. Raises InvalidArgument.

    `quantized_datatype` is a DataType or its name in small letters; int4 and int2 have names alone. Without an
    `algorithm` it is the first in the list above that has the type. `block` values share parameters (a multiple of 32,
    at most 65,536): short blocks keep outliers to themselves, long ones cost fewer bytes.

    `rounding` is "nearest", or "stochastic": up or down at random, so that errors average out. `rotate` sends each
    block through a random Hadamard transform, which spreads outliers over it. Both draw from `seed`; the same seed
    gives the same bits, also when a call is made again, so a program changes it from step to step.

    What is not finite, and what a cast has no value for, fails on all members with QuantizationError; with
    nan="propagate" the block that has it becomes NaN instead, or the value alone where it is cast.
    """

    quantized_datatype: DataType | str = DataType.UINT8
    algorithm: QuantizationAlgorithm | None = None
    block: int = BLOCK
    rounding: str = "nearest"
    seed: int | None = None
    nan: str = "raise"
    rotate: bool = False

    def __post_init__(self) -> None:
        name = _datatype_name(self.quantized_datatype)
        algorithm = _algorithm_of(name) if self.algorithm is None else self.algorithm
        if not isinstance(algorithm, QuantizationAlgorithm):
            raise InvalidArgument(f"algorithm is a {type(algorithm).__name__}, not a QuantizationAlgorithm")
        kind = DataType.__members__.get(name.upper())
        object.__setattr__(self, "quantized_datatype", name if kind is None else kind)
        object.__setattr__(self, "algorithm", algorithm)
        if algorithm == QuantizationAlgorithm.NONE:
            return
        if (algorithm, name) not in _FORMATS:
            fitting = ", ".join(datatype for known, datatype in _FORMATS if known == algorithm)
            raise InvalidArgument(f"{algorithm.name} gives no {name}; it gives {fitting}")
        self._check_block()
        self._check_randomness()
        if self.nan not in ("raise", "propagate"):
            raise InvalidArgument(f'nan is {self.nan!r}, neither "raise" nor "propagate"')

    def native(self) -> _codec.Pointer:
        """The pccl_quantization that calls carry."""
        return _codec.quantization(
            format=self._format(),
            block=0 if self.algorithm == QuantizationAlgorithm.CAST else int(self.block),
            stochastic=self.rounding == "stochastic",
            propagate=self.nan == "propagate",
            rotate=self.rotate,
            seed=int(self.seed or 0),
        )

    def bytes(self, count: int) -> int:
        """What `count` values take on the wire."""
        return _codec.wire_bytes(self._wire(), whole("count", count, 0, 2**62))

    def quantize(self, array: Any) -> NDArray[np.uint8]:
        """What an array (or torch CPU tensor) of floats is on the wire. Raises QuantizationError where a value cannot
        be encoded, InvalidArgument."""
        return _codec.quantize(self._wire(), _memory(arrays.borrow(array, False, "array")))

    def dequantize(
        self, wire: NDArray[np.uint8], count: int, dtype: DataType = DataType.FLOAT32, out: Any = None
    ) -> Any:
        """The `count` values that `quantize` has made bytes of, in a new array of `dtype`, or in `out`, which is
        returned. Raises InvalidArgument."""
        want = self.bytes(count)
        if not isinstance(wire, np.ndarray) or wire.dtype != np.uint8 or wire.size != want:
            raise InvalidArgument(f"{count} values of this form are an array of {want} bytes")
        out = np.empty(count, dtype.to_numpy_dtype()) if out is None else out
        values = arrays.borrow(out, True, "out")
        if values.elements != count:
            raise InvalidArgument(f"out has {arrays.describe(values)}, not {count}")
        _codec.dequantize(self._wire(), np.ascontiguousarray(wire), _memory(values))
        return out

    def round_trip(self, array: Any) -> Any:
        """What others would get of an array or tensor: a new one of the same kind."""
        values = arrays.borrow(array, False, "array")
        out = array.clone() if arrays.is_tensor(array) else array.copy()
        return self.dequantize(self.quantize(array), values.elements, out=out)

    def bound(self, array: Any) -> NDArray[np.float64]:
        """How far from each value what comes back may be: what docs/quantization.md derives. Of finite values alone."""
        self._wire()
        values = arrays.as_numpy(array)
        part = 1.0 if self.rounding == "stochastic" else 0.5
        return quantization_bound.bound(self._format(), self.block, part, self.rotate, values).reshape(values.shape)

    def _format(self) -> int:
        if self.algorithm in (None, QuantizationAlgorithm.NONE):
            return int(constants.PCCL_EXACT)
        return _FORMATS[self.algorithm, _datatype_name(self.quantized_datatype)]

    def _wire(self) -> _codec.Pointer:
        if self.algorithm == QuantizationAlgorithm.NONE:
            raise InvalidArgument("QuantizationAlgorithm.NONE has no form of its own")
        return self.native()

    def _check_block(self) -> None:
        whole("block", self.block, _codec.BLOCK_UNIT, _codec.BLOCK_MAX)
        if self.block % _codec.BLOCK_UNIT:
            raise InvalidArgument(f"block is {self.block}, no multiple of {_codec.BLOCK_UNIT}")
        if self.algorithm == QuantizationAlgorithm.CAST and (self.block != BLOCK or self.rotate):
            raise InvalidArgument("a cast has no blocks: leave block and rotate out")

    def _check_randomness(self) -> None:
        if self.rounding not in ("nearest", "stochastic"):
            raise InvalidArgument(f'rounding is {self.rounding!r}, neither "nearest" nor "stochastic"')
        if not isinstance(self.rotate, bool):
            raise InvalidArgument(f"rotate is {self.rotate!r}, not a bool")
        if self.seed is not None:
            whole("seed", self.seed, 0, 2**64 - 1)
        elif self.rounding == "stochastic" or self.rotate:
            raise InvalidArgument("stochastic rounding and rotate need a seed, the same on all members")


def _datatype_name(datatype: object) -> str:
    if isinstance(datatype, DataType):
        return datatype.name.lower()
    if isinstance(datatype, str):
        return datatype
    raise InvalidArgument(f"quantized_datatype is a {type(datatype).__name__}, not a DataType or a name")


def _algorithm_of(name: str) -> QuantizationAlgorithm:
    for algorithm, datatype in _FORMATS:
        if datatype == name:
            return algorithm
    known = ", ".join(dict.fromkeys(datatype for _, datatype in _FORMATS))
    raise InvalidArgument(f"nothing is quantized to {name}; there are {known}")


def _memory(borrowed: arrays.Borrowed) -> _codec.Memory:
    return _codec.Memory(borrowed.address, borrowed.dtype, borrowed.elements)
