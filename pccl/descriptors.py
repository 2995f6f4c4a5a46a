# SPDX-License-Identifier: MIT
"""The records that pypccl describes a reduction with. New code rarely needs them: the arrays say it all."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from pccl import arrays
from pccl.enums import DataType, PremulSum, ReduceOp
from pccl.errors import InvalidArgument
from pccl.quantization import QuantizationAlgorithm, QuantizationOptions


class DistributionHint(Enum):
    """How the values are distributed; for quantizers."""

    NONE = 0
    NORMAL = 1
    UNIFORM = 2


@dataclass(frozen=True)
class ReduceOperandDescriptor:
    """What is reduced."""

    datatype: DataType
    distribution_hint: DistributionHint = DistributionHint.NONE


@dataclass(frozen=True)
class ReduceDescriptor:
    """A reduction without its memory. `count` is in elements."""

    count: int
    op: ReduceOp | PremulSum
    tag: int
    operand_descriptor: ReduceOperandDescriptor
    quantization_options: QuantizationOptions = field(
        default_factory=lambda: QuantizationOptions(algorithm=QuantizationAlgorithm.NONE)
    )


@dataclass(frozen=True)
class ReduceOpDescriptor:
    """A reduction and its memory. Holds the arrays, so they live as long as the descriptor."""

    send: Any
    recv: Any
    reduce_descriptor: ReduceDescriptor

    @staticmethod
    def from_torch(send: Any, recv: Any, reduce_descriptor: ReduceDescriptor) -> ReduceOpDescriptor:
        """Of contiguous torch CPU tensors."""
        return ReduceOpDescriptor(send, recv, reduce_descriptor)

    @staticmethod
    def from_numpy(send: Any, recv: Any, reduce_descriptor: ReduceDescriptor) -> ReduceOpDescriptor:
        """Of C-contiguous numpy arrays."""
        return ReduceOpDescriptor(send, recv, reduce_descriptor)


def check(send: Any, operand: ReduceOperandDescriptor | None) -> None:
    """Raises InvalidArgument when `operand` contradicts the array."""
    if operand is None:
        return
    if not isinstance(operand, ReduceOperandDescriptor):
        raise InvalidArgument(f"operand_descriptor is a {type(operand).__name__}, not a ReduceOperandDescriptor")
    if not isinstance(operand.datatype, DataType):
        raise InvalidArgument(f"the operand descriptor's datatype is a DataType, not {operand.datatype!r}")
    if arrays.dtype_of(send) != operand.datatype:
        raise InvalidArgument(
            f"the operand descriptor says {operand.datatype.name}, but send holds {arrays.dtype_of(send).name}"
        )
