# SPDX-License-Identifier: MIT
"""A network in stages, one a rank: activations go down by send and receive, and gradients come back."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from tests.torch.scenarios import Results, models, scenario

ROWS, PARTS = 8, 4


def _trained(rank: int, world: int, schedule: Any) -> Results:
    torch.manual_seed(5)
    stages = [nn.Sequential(nn.Linear(models.FEATURES, models.FEATURES), nn.Tanh()) for _ in range(world)]
    own = stages[rank]
    stage = PipelineStage(own, rank, world, torch.device("cpu"))
    run = schedule(stage, PARTS, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.SGD(own.parameters(), 0.05)
    inputs, _ = models.batch(0, 0, ROWS)
    for number in range(2):
        optimizer.zero_grad()
        wanted, losses = models.batch(1, number, ROWS)[0], []
        if rank == 0:
            run.step(inputs)
        else:
            run.step(**({"target": wanted, "losses": losses} if rank == world - 1 else {}))
        optimizer.step()
    return models.copies(own.named_parameters())


@scenario(alike=False)
def one_forward_one_backward(rank: int, world: int) -> Results:
    return _trained(rank, world, Schedule1F1B)


@scenario(alike=False)
def all_forward_all_backward(rank: int, world: int) -> Results:
    return _trained(rank, world, ScheduleGPipe)
