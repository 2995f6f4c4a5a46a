# SPDX-License-Identifier: MIT
"""FSDP, the old one and the new one, and sharding together with replicas."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, StateDictType, fully_shard

from tests.torch.scenarios import Results, models, scenario


def _trained(rank: int, mesh: DeviceMesh, **options: Any) -> Results:
    model: Any = models.network()
    for layer in model:
        if list(layer.parameters()):
            fully_shard(layer, mesh=mesh, **options)
    fully_shard(model, mesh=mesh, **options)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for number in range(4):
        inputs, targets = models.batch(rank, number)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), targets).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
    return models.copies((name, value.full_tensor()) for name, value in model.named_parameters())


# Adam divides by the square root of squares that begin at zero: where a gradient is tiny its last bits count.
@scenario(1e-5)
def fsdp1(rank: int, world: int) -> Results:
    model = FullyShardedDataParallel(models.network(), device_id=torch.device("cpu"))
    models.train(model, torch.optim.SGD(model.parameters(), 0.05, momentum=0.9), rank, 4)
    with FullyShardedDataParallel.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        return models.copies(model.state_dict().items())


@scenario(1e-5)
def fsdp2(rank: int, world: int) -> Results:
    return _trained(rank, init_device_mesh("cpu", (world,)))


@scenario(1e-5)
def fsdp2_kept(rank: int, world: int) -> Results:
    """Parameters stay whole between forward and backward."""
    return _trained(rank, init_device_mesh("cpu", (world,)), reshard_after_forward=False)


@scenario(2e-2)
def fsdp2_mixed(rank: int, world: int) -> Results:
    """Parameters and gradients travel as bfloat16."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    return _trained(rank, init_device_mesh("cpu", (world,)), mp_policy=policy)


@scenario(1e-5)
def hsdp(rank: int, world: int) -> Results:
    """Replicas of shards: of three ranks, three replicas that are whole."""
    replicas = 2 if world % 2 == 0 else world
    return _trained(rank, init_device_mesh("cpu", (replicas, world // replicas), mesh_dim_names=("replica", "shard")))
