# SPDX-License-Identifier: MIT
"""A training step of a model as a benchmark's work: forward, backward while gradients are averaged, and the optimizer.

The model is a chain of square layers, as wide as makes up the number of parameters that is asked for, and a vector for
what is left. Batches are small: what is to be measured is the reduction beside a backward pass, not the matrices.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn

from pccl.bench.work import Shape

LAYERS, ROWS = 12, 4
RATE = 1e-3
TOLERANCE = 1e-4
"""Of a gradient's largest element: ranks add in an order of their own."""


class Step:
    """One rank's model and batch. `bound` to what wraps the model, it is a function without arguments."""

    def __init__(self, shape: Shape, rank: int) -> None:
        self.shape, self.rank = shape, rank
        self.model = _Chain(shape.count)
        self.fill(0)

    def fill(self, step: int) -> None:
        """Parameters and batch of a step; the parameters are the same on all ranks."""
        self._step, source = step, torch.Generator().manual_seed(step)
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.normal_(0, 1 / math.sqrt(max(1, parameter.shape[-1])), generator=source)
        self._batch = self._inputs(self.rank)

    def clear(self) -> None:
        """Nothing is to be taken away: a step leaves finite parameters behind, any number of times."""

    def bound(self, wrapped: nn.Module) -> Callable[[], None]:
        """Does a step of the model in its wrapping."""
        optimizer = torch.optim.SGD(wrapped.parameters(), RATE)

        def call() -> None:
            optimizer.zero_grad()
            wrapped(self._batch).backward()
            optimizer.step()

        return call

    def is_right(self, step: int) -> bool:
        """True when the gradients are the averages of all ranks' own, which are computed here once more."""
        found = [parameter.grad for parameter in self.model.parameters()]
        self.fill(step)
        copies = {name: it.detach().clone().requires_grad_() for name, it in self.model.named_parameters()}
        for rank in range(self.shape.peers):
            torch.func.functional_call(self.model, copies, (self._inputs(rank),)).backward()
        return all(
            grad is not None and copy.grad is not None and _is_near(grad, copy.grad / self.shape.peers)
            for grad, copy in zip(found, copies.values(), strict=True)
        )

    def _inputs(self, rank: int) -> torch.Tensor:
        source = torch.Generator().manual_seed(1000 * self._step + rank + 1)
        return torch.randn(ROWS, self.model.width, generator=source)


class _Chain(nn.Module):
    def __init__(self, count: int) -> None:
        super().__init__()
        self.width = max(1, math.isqrt(count // LAYERS))
        layers = min(LAYERS, count // self.width**2)
        self.layers = nn.ModuleList(nn.Linear(self.width, self.width, bias=False) for _ in range(layers))
        self.rest = nn.Parameter(torch.zeros(count - layers * self.width**2))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            values = torch.tanh(layer(values))
        return values.square().mean() + self.rest.square().sum() / 2


def _is_near(value: torch.Tensor, wanted: torch.Tensor) -> bool:
    return not value.numel() or bool((value - wanted).abs().max() <= TOLERANCE * wanted.abs().max())
