# SPDX-License-Identifier: MIT
"""pccl's own hooks."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from pccl.torch import hooks
from tests.torch.scenarios import Results, models, scenario

STEPS = 6


def _parallel() -> DistributedDataParallel:
    return DistributedDataParallel(models.network(), bucket_cap_mb=0.0005)


def _bookkeeping(format: str, rank: int) -> Results:
    """The head of `hooks` says that what was sent and what is kept back make up all gradients: the parameters do not
    move here, so that those are known."""
    compression = hooks.Compression(format)
    model = _parallel()
    model.register_comm_hook(compression, hooks.all_reduce)
    alone = models.network()
    given = {name: torch.zeros_like(value) for name, value in alone.named_parameters()}
    got = {name: torch.zeros_like(value) for name, value in alone.named_parameters()}
    for number in range(STEPS):
        inputs, targets = models.batch(rank, number)
        for either in (model, alone):
            either.zero_grad()
            nn.functional.mse_loss(either(inputs), targets).backward()
        for name, value in alone.named_parameters():
            given[name] += value.grad
        for name, value in model.module.named_parameters():
            got[name] += value.grad
    own = dict(model.module.named_parameters())
    left = {name: compression.residual(own[name]).view_as(own[name]) for name in own}
    for values in (*given.values(), *left.values()):
        dist.all_reduce(values, dist.ReduceOp.SUM)
    world = dist.get_world_size()
    # Only the sums of a few values of the format have been rounded without being fed back.
    step = {"bf16": 2**-8, "fp16": 2**-11}[format]
    for name in own:
        error = (given[name] / world - got[name] - left[name] / world).abs().max()
        assert error <= STEPS * step * given[name].abs().max() / world, f"{name}: {error}"
        assert left[name].abs().max() > 0
    return got


@scenario(1e-2)
def bf16_bookkeeping(rank: int, world: int) -> Results:
    return _bookkeeping("bf16", rank)


@scenario(1e-3)
def fp16_bookkeeping(rank: int, world: int) -> Results:
    return _bookkeeping("fp16", rank)


@scenario(1e-2)
def around_power_sgd(rank: int, world: int) -> Results:
    compression = hooks.Compression("bf16")
    model = DistributedDataParallel(models.network())
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
    model.register_comm_hook(state, compression.around(powerSGD_hook.powerSGD_hook))
    models.train(model, torch.optim.SGD(model.parameters(), 0.05), rank, STEPS)
    assert compression.residual(next(model.module.parameters())) is not None
    return models.copies(model.module.named_parameters())


@scenario(1e-2)
def sharded(rank: int, world: int) -> Results:
    model: Any = models.network()
    mesh = init_device_mesh("cpu", (world,))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    hooks.Compression("bf16").shard(model)
    models.train(model, torch.optim.SGD(model.parameters(), 0.05), rank, STEPS)
    return models.copies((name, value.full_tensor()) for name, value in model.named_parameters())


@scenario(1e-2)
def replicated(rank: int, world: int) -> Results:
    """Shards within a row of the grid, replicas down its columns, of which FSDP knows nothing."""
    model: Any = models.network()
    replicas = 2 if world % 2 == 0 else world
    mesh = init_device_mesh("cpu", (replicas, world // replicas), mesh_dim_names=("replica", "shard"))
    fully_shard(model, mesh=mesh["shard"])
    hooks.Compression("bf16").replicate(model, mesh.get_group("replica"))
    models.train(model, torch.optim.SGD(model.parameters(), 0.05), rank, STEPS)
    return models.copies((name, value.full_tensor()) for name, value in model.named_parameters())


@scenario(1e-2)
def convergence(rank: int, world: int) -> Results:
    """Gradients are small beside a constant that is taken off again after the reduction: rounding hides them. With
    feedback the parameters find their place all the same, without it they do not. Each is moved by one rank alone, so
    that adding rounds nothing."""
    wanted, own = torch.linspace(-0.5, 0.5, 16), world * (torch.arange(16) % world == rank)
    constant, errors = 100.0, {}
    for feedback in (True, False):
        place = nn.Parameter(torch.zeros(16))
        model = DistributedDataParallel(_Pull(place))
        model.register_comm_hook(hooks.Compression("bf16", error_feedback=feedback), hooks.all_reduce)
        optimizer = torch.optim.SGD(model.parameters(), 0.05)
        for _ in range(200):
            optimizer.zero_grad()
            model(wanted, own, constant).backward()
            place.grad -= constant
            optimizer.step()
        errors[feedback] = float((place.detach() - wanted).abs().max())
    assert errors[True] < 0.05, errors
    assert errors[False] > 0.15, errors
    return {}


class _Pull(nn.Module):
    """Its gradient is the way from where it is wanted, and a constant."""

    def __init__(self, place: nn.Parameter) -> None:
        super().__init__()
        self.place = place

    def forward(self, wanted: torch.Tensor, weights: torch.Tensor, constant: float) -> torch.Tensor:
        return (weights * ((self.place - wanted) ** 2 / 2 + constant * self.place)).sum()
