# SPDX-License-Identifier: MIT
"""Small networks and batches, the same in every process that asks for the same."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

FEATURES, CLASSES = 7, 3


def network() -> nn.Sequential:
    """Widths that no number of ranks divides."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(FEATURES, 13), nn.Tanh(), nn.Linear(13, 11), nn.Tanh(), nn.Linear(11, CLASSES))


class Branches(nn.Module):
    """Uses one of two layers, as it is told."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.trunk = nn.Linear(FEATURES, 13)
        self.left, self.right = nn.Linear(13, CLASSES), nn.Linear(13, CLASSES)

    def forward(self, inputs: torch.Tensor, side: int) -> torch.Tensor:
        hidden = torch.tanh(self.trunk(inputs))
        branch: nn.Module = self.right if side else self.left
        outputs: torch.Tensor = branch(hidden)
        return outputs


def batch(rank: int, step: int, rows: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets."""
    source = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(rows, FEATURES, generator=source), torch.randn(rows, CLASSES, generator=source)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, rank: int, steps: int) -> list[float]:
    """The losses of so many steps."""
    return [step(model, optimizer, *batch(rank, number)) for number in range(steps)]


def step(model: nn.Module, optimizer: torch.optim.Optimizer, inputs: torch.Tensor, targets: torch.Tensor) -> float:
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


def copies(parameters: Iterable[tuple[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in parameters}
