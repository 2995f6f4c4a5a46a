# SPDX-License-Identifier: MIT
"""DiLoCo (Douillard et al. 2023, arXiv:2311.08105): many local steps, then one averaged step of an outer optimiser.

The pseudo-gradient is what the local steps moved away from the shared parameters. Its average over all peers goes
into SGD with Nesterov momentum. Only the outer state (parameters, momentum, round) is shared; an inner optimiser
keeps none.

Must not know: how the average comes about.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from pccl.demo import mlp
from pccl.demo.digits import Digits, batches, shard

INNER_RATE = np.float32(0.001)
OUTER_RATE = np.float32(0.7)
OUTER_MOMENTUM = np.float32(0.9)
BATCH_IMAGES = 32


@dataclass
class Outer:
    """What all peers hold in common; identical bits on all of them after every round."""

    parameters: NDArray[np.float32] = field(default_factory=lambda: mlp.initial_parameters(seed=1))
    momentum: NDArray[np.float32] = field(default_factory=lambda: np.zeros(mlp.parameter_count(), np.float32))
    round: NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, np.int64))

    def tensors(self) -> dict[str, NDArray[np.float32] | NDArray[np.int64]]:
        """By name, the arrays themselves: who writes to them writes to the state."""
        return {"parameters": self.parameters, "momentum": self.momentum, "round": self.round}

    def step(self, pseudo_gradient: NDArray[np.float32]) -> None:
        """One step of SGD with Nesterov momentum along the averaged pseudo-gradient."""
        self.momentum *= OUTER_MOMENTUM
        self.momentum += pseudo_gradient
        self.parameters -= OUTER_RATE * (pseudo_gradient + OUTER_MOMENTUM * self.momentum)
        self.round += 1

    def digest(self) -> str:
        """A hash of all bits, computed without pccl."""
        state = hashlib.blake2b(digest_size=6)
        for tensor in self.tensors().values():
            state.update(tensor.tobytes())
        return state.hexdigest()


def local_steps(
    outer: Outer, digits: Digits, rank: int, world_size: int, steps: int
) -> tuple[float, NDArray[np.float32]]:
    """Trains a copy of the parameters on this rank's shard of the round. Gives (mean loss, pseudo-gradient)."""
    round_ = int(outer.round[0])
    mine = shard(len(digits.train_labels), rank, world_size, round_)
    local = outer.parameters.copy()
    losses = []
    for batch in batches(mine, steps, BATCH_IMAGES, (round_, rank)):
        loss, gradient = mlp.loss_and_gradient(local, digits.train_images[batch], digits.train_labels[batch])
        local -= INNER_RATE * gradient
        losses.append(loss)
    return float(np.mean(losses)), outer.parameters - local
