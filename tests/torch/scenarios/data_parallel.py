# SPDX-License-Identifier: MIT
"""DistributedDataParallel in its forms."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

from tests.torch.scenarios import Results, models, scenario


def _trained(
    rank: int, steps: int = 4, hook: tuple[Any, Any] | None = None, *, bucket_cap_mb: float = 0.0005, **options: Any
) -> Results:
    """In several buckets, unless told otherwise."""
    model = DistributedDataParallel(models.network(), bucket_cap_mb=bucket_cap_mb, **options)
    if hook is not None:
        model.register_comm_hook(*hook)
    models.train(model, torch.optim.SGD(model.parameters(), 0.05, momentum=0.9), rank, steps)
    return models.copies(model.module.named_parameters())


@scenario()
def plain(rank: int, world: int) -> Results:
    return _trained(rank)


@scenario()
def bucket_views(rank: int, world: int) -> Results:
    return _trained(rank, gradient_as_bucket_view=True)


@scenario()
def static_graph(rank: int, world: int) -> Results:
    return _trained(rank, static_graph=True)


@scenario()
def unused_parameters(rank: int, world: int) -> Results:
    """A layer that some ranks use in a step and some do not, or none."""
    model = DistributedDataParallel(models.Branches(), find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    for number in range(4):
        inputs, targets = models.batch(rank, number)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs, number % 2 and (rank + number) % 2), targets).backward()
        optimizer.step()
    return models.copies(model.module.named_parameters())


@scenario()
def accumulation(rank: int, world: int) -> Results:
    """Every other step is not synchronised."""
    model = DistributedDataParallel(models.network())
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    for number in range(6):
        inputs, targets = models.batch(rank, number)
        with nullcontext() if number % 2 else model.no_sync():
            nn.functional.mse_loss(model(inputs), targets).backward()
        if number % 2:
            optimizer.step()
            optimizer.zero_grad()
    return models.copies(model.module.named_parameters())


@scenario()
def buffers(rank: int, world: int) -> Results:
    """Running averages are those of rank 0, and are sent before each step."""
    torch.manual_seed(3)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(models.FEATURES, 9), nn.BatchNorm1d(9), nn.Linear(9, 3)))
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    models.train(model, optimizer, rank, 3)
    model(models.batch(rank, 9)[0])  # sends those of the last step
    return models.copies(model.module.named_parameters())


@scenario(1e-3)
def fp16(rank: int, world: int) -> Results:
    return _trained(rank, hook=(None, default_hooks.fp16_compress_hook))


@scenario(1e-2)
def bf16(rank: int, world: int) -> Results:
    def under_another_name(state, bucket):
        """Torch lets a hook of that name only be used with NCCL."""
        return default_hooks.bf16_compress_hook(state, bucket)

    return _trained(rank, hook=(None, under_another_name))


@scenario(1e-5)
def power_sgd(rank: int, world: int) -> Results:
    """Low rank from the third step on. In one bucket: the hook starts operations when others end, and of two buckets
    those end in an order that differs between ranks, on every backend but NCCL."""
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
    return _trained(rank, 6, (state, powerSGD_hook.powerSGD_hook), bucket_cap_mb=25)


@scenario()
def uneven_inputs(rank: int, world: int) -> Results:
    """10, 7, 3, ... batches, within Join."""
    model = DistributedDataParallel(models.network())
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    with Join([model]):
        models.train(model, optimizer, rank, max(1, 10 - 3 * rank - rank // 2))
    return models.copies(model.module.named_parameters())
