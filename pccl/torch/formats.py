# SPDX-License-Identifier: MIT
"""What gradients are sent as: a type of torch's, which any backend can add, or a form that pccl's collectives know.

A `Cast` rounds float32 values to those that its type can express, and says what it has rounded them to. Of what is
`Quantized` the collective tells what was lost. Neither knows who sends, or what was kept back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from pccl.errors import InvalidArgument
from pccl.quantization import QuantizationAlgorithm, QuantizationOptions


@dataclass(frozen=True)
class Cast:
    """A shorter kind of float: the collective adds values of this type."""

    name: str
    dtype: torch.dtype

    def packed(self, values: torch.Tensor) -> torch.Tensor:
        """A new tensor of what is sent for them; float32 values are rounded to nearest, ties to even."""
        return values.to(self.dtype, copy=True)

    def unpacked(self, sent: torch.Tensor) -> torch.Tensor:
        """In float32: what `packed` has rounded the values to."""
        return sent.to(torch.float32)


@dataclass(frozen=True)
class Quantized:
    """The collective adds float32 values, and sends them in this form."""

    name: str
    options: QuantizationOptions

    def reseeded(self, seed: int) -> Quantized:
        """The same with other random choices."""
        return replace(self, options=replace(self.options, seed=seed))


Format = Cast | Quantized

CASTS = {cast.name: cast for cast in (Cast("bf16", torch.bfloat16), Cast("fp16", torch.float16))}
QUANTIZED = ("bfloat16", "float16", "uint8", "int8", "int4", "int2", "float8_e4m3fn", "float8_e5m2")


def named(format: str | QuantizationOptions) -> Format:
    """That of a name, or of options. What is not finite does not fail by name: it goes on, as NaN. Raises ValueError
    that lists all, for a name that is not among them."""
    if isinstance(format, QuantizationOptions):
        if format.algorithm == QuantizationAlgorithm.NONE:
            raise InvalidArgument("QuantizationAlgorithm.NONE is no format")
        datatype = format.quantized_datatype
        return Quantized(datatype if isinstance(datatype, str) else datatype.name.lower(), format)
    if format in CASTS:
        return CASTS[format]
    if format in QUANTIZED:
        return Quantized(format, QuantizationOptions(format, nan="propagate"))
    raise ValueError(
        f"no format {format!r}: choose from {', '.join((*CASTS, *QUANTIZED))}, or pass QuantizationOptions"
    )
