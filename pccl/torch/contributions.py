# SPDX-License-Identifier: MIT
"""What one rank gives to one reduction: how it goes out in a format, and what that keeps back.

For `hooks`. Must not know: models, parameters, where what is kept back is kept. The one idea: a cast knows before the
reduction what it has taken, whoever adds; of what is quantized only the collective knows it, once it has succeeded.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch
import torch.distributed
from torch import Tensor

from pccl.torch import quantized
from pccl.torch.formats import Cast, Format, Quantized

# Untyped in some releases of torch, and not the same names in all.
dist: Any = torch.distributed


class Contribution(Protocol):
    """`sent` is flat. A reduction blocks, or (`async_op`) gives its Work."""

    sent: Tensor

    def all_reduce(self, group: Any, *, async_op: bool = False) -> Any:
        """In place."""

    def reduce_scatter(self, received: Tensor, group: Any) -> None:
        """Into a tensor like this rank's part of what is sent."""

    def kept_back(self) -> Tensor:
        """In float32, and in units of the gradient. To be asked for once, after the reduction has succeeded; only
        where that was asked for."""


def made(format: Format, gradient: Tensor, kept: Tensor | None, scale: float, feedback: bool) -> Contribution:
    """That of a gradient and of what was kept back before, times `scale`. Without `feedback` nothing is kept back."""
    if isinstance(format, Quantized):
        return _Encoded(format, gradient, kept, scale, feedback)
    return _Rounded(format, gradient, kept, scale, feedback)


class _Rounded:
    def __init__(self, cast: Cast, gradient: Tensor, kept: Tensor | None, scale: float, feedback: bool) -> None:
        total = gradient.flatten().to(torch.float32, copy=True)
        if kept is not None:
            total += kept
        self.sent = cast.packed(total if scale == 1.0 else total * scale)
        if feedback:
            back = cast.unpacked(self.sent)
            total -= back if scale == 1.0 else back.div_(scale)
            self._kept_back = total

    def all_reduce(self, group: Any, *, async_op: bool = False) -> Any:
        return dist.all_reduce(self.sent, group=group, async_op=async_op)

    def reduce_scatter(self, received: Tensor, group: Any) -> None:
        call = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
        call(received, self.sent, group=group)

    def kept_back(self) -> Tensor:
        return self._kept_back


class _Encoded:
    """On the CPU, wherever the gradient is: there errors are told."""

    def __init__(self, form: Quantized, gradient: Tensor, kept: Tensor | None, scale: float, feedback: bool) -> None:
        self._options, self._scale = form.options, scale
        self.sent = gradient.detach().flatten().to("cpu", torch.float32, copy=True)
        if kept is not None:
            self.sent += kept
        if scale != 1.0:
            self.sent *= scale
        self._errors = torch.empty_like(self.sent) if feedback else None

    def all_reduce(self, group: Any, *, async_op: bool = False) -> Any:
        return quantized.all_reduce(
            self.sent, group=group, async_op=async_op, quantization_options=self._options, errors=self._errors
        )

    def reduce_scatter(self, received: Tensor, group: Any) -> None:
        quantized.reduce_scatter_tensor(
            received, self.sent, group=group, quantization_options=self._options, errors=self._errors
        )

    def kept_back(self) -> Tensor:
        assert self._errors is not None
        return self._errors if self._scale == 1.0 else self._errors.div_(self._scale)
