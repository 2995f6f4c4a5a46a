# SPDX-License-Identifier: MIT
"""Wrapped models that go on after ranks were killed in the middle of a backward pass."""

from __future__ import annotations

import hashlib
import os
import signal
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import pccl.torch
from tests.torch.ranks import Rank, Ranks

pytestmark = pytest.mark.process

STEPS, KILLED_IN = 6, 3


def network() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(7, 13), nn.ReLU(), nn.Linear(13, 5))


def trained(rank: Rank, model: nn.Module, victims: tuple[int, ...]) -> list[float]:
    """The losses of each step; the victims die when a gradient of the step in question is there."""
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    step, losses = 0, []

    def die(gradient: torch.Tensor) -> torch.Tensor:
        if step == KILLED_IN:
            os.kill(os.getpid(), signal.SIGKILL)
        return gradient

    while step < STEPS:
        source = torch.Generator().manual_seed(step)
        inputs, targets = torch.randn(8, 7, generator=source), torch.randn(8, 5, generator=source)
        try:
            with pccl.torch.step(None, model):
                outputs = model(inputs)
                if rank.rank in victims:
                    outputs.register_hook(die)
                loss = nn.functional.mse_loss(outputs, targets)
                loss.backward()
        except pccl.torch.RankLost:
            continue
        except pccl.Unsupported as failure:
            if rank.rank in victims and "of 2 shards of the parameters 1 are left" in str(failure):
                os.kill(os.getpid(), signal.SIGKILL)
            raise
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        step += 1
    return losses


def alone() -> list[float]:
    """The same in one process: all ranks have the same data, so that the mean of any number of them is this."""
    model = network()
    optimizer, losses = torch.optim.SGD(model.parameters(), 0.1), []
    for step in range(STEPS):
        source = torch.Generator().manual_seed(step)
        inputs, targets = torch.randn(8, 7, generator=source), torch.randn(8, 5, generator=source)
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def ddp(rank: Rank, options: dict[str, Any]) -> tuple[list[float], str]:
    with rank.group(pg_options=pccl.torch.Options(elastic=True)):
        model = DistributedDataParallel(network(), **options)
        losses = trained(rank, model, (2,))
        assert dist.get_world_size() == 2
        digest = hashlib.sha256(b"".join(it.detach().numpy().tobytes() for it in model.parameters())).hexdigest()
        return losses, digest


@pytest.mark.parametrize("options", [{}, {"static_graph": True}, {"gradient_as_bucket_view": True}])
def test_ddp(ranks: Ranks, form: str, options: dict[str, Any]) -> None:
    found = ranks.survivors(ddp, 3, form, options)
    assert len(found) == 2
    assert found[0] == found[1]
    assert found[0][0] == pytest.approx(alone(), rel=1e-5)


def hsdp(rank: Rank) -> list[float]:
    with rank.group(pg_options=pccl.torch.Options(elastic=True)):
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicas", "shards"))
        model = network()
        for layer in (model[0], model[2]):
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        losses = trained(rank, model, (2, 3))
        assert mesh["replicas"].get_group().size() == 1
        assert mesh["shards"].get_group().size() == 2
        return losses


def test_a_replica_of_hsdp_goes(ranks: Ranks, form: str) -> None:
    found = ranks.survivors(hsdp, 4, form)
    assert len(found) == 2
    for losses in found:
        assert losses == pytest.approx(alone(), rel=1e-5)
