# SPDX-License-Identifier: MIT
"""What gradients are sent as. A new format is a class like `Cast` and a line in `FORMATS`.

A format rounds float32 values to those that it can express, and it says what it has rounded them to: what error
feedback keeps is the difference. It does not know who sends, or what was kept back.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


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


FORMATS = {cast.name: cast for cast in (Cast("bf16", torch.bfloat16), Cast("fp16", torch.float16))}


def named(name: str) -> Cast:
    """Raises ValueError that lists all, for a name that is not among them."""
    if name not in FORMATS:
        raise ValueError(f"no format {name!r}: choose from {', '.join(FORMATS)}")
    return FORMATS[name]
