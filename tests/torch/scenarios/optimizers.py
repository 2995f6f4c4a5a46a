# SPDX-License-Identifier: MIT
"""Optimizers whose state is shared among the ranks, or who average parameters instead of gradients."""

from __future__ import annotations

import torch
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer, ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from tests.torch.scenarios import Results, models, scenario


@scenario(1e-5)
def zero_redundancy(rank: int, world: int) -> Results:
    """Each rank keeps the state of its share."""
    model = DistributedDataParallel(models.network())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
    models.train(model, optimizer, rank, 3)
    optimizer.consolidate_state_dict(to=0)
    return models.copies(model.module.named_parameters())


@scenario()
def local_sgd(rank: int, world: int) -> Results:
    """Parameters are averaged every other step."""
    model = models.network()
    inner = torch.optim.SGD(model.parameters(), 0.05)
    averager = PeriodicModelAverager(period=2, warmup_steps=0)
    models.train(model, PostLocalSGDOptimizer(inner, averager), rank, 5)
    return models.copies(model.named_parameters())
