# SPDX-License-Identifier: MIT
"""DTensor, functional collectives, tensor parallelism, and the compiler."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from tests.torch.scenarios import Results, models, scenario


def _values(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@scenario()
def redistribute(rank: int, world: int) -> Results:
    """Every change of one placement into another, of sizes that nothing divides."""
    mesh = init_device_mesh("cpu", (world,))
    whole = _values(7, 5)
    rows = distribute_tensor(whole, mesh, [Shard(0)])
    sums = DTensor.from_local(_values(7, 5, seed=rank), mesh, [Partial()], run_check=False)
    changes: dict[str, tuple[Any, Any]] = {
        "rows to all": (rows, Replicate()),
        "rows to columns": (rows, Shard(1)),
        "all to columns": (distribute_tensor(whole, mesh, [Replicate()]), Shard(1)),
        "sums to rows": (sums, Shard(0)),
        "sums to columns": (sums, Shard(1)),
        "sums to all": (sums, Replicate()),
    }
    return {name: given.redistribute(mesh, [to]).full_tensor() for name, (given, to) in changes.items()}


@scenario()
def arithmetic(rank: int, world: int) -> Results:
    """Operations that communicate by themselves."""
    mesh = init_device_mesh("cpu", (world,))
    left = distribute_tensor(_values(7, 6), mesh, [Shard(1)])
    right = distribute_tensor(_values(6, 5, seed=1), mesh, [Shard(0)])
    product = left @ right
    return {"product": product.full_tensor(), "norm": torch.linalg.vector_norm(product).full_tensor()}


@scenario()
def grid(rank: int, world: int) -> Results:
    """A mesh of two dimensions, whose groups are made of ranks that do not stand side by side."""
    rows = 2 if world % 2 == 0 else 1
    mesh = init_device_mesh("cpu", (rows, world // rows), mesh_dim_names=("row", "column"))
    both = distribute_tensor(_values(7, 5), mesh, [Shard(0), Shard(1)])
    values = torch.tensor([float(rank + 1)])
    dist.all_reduce(values, group=mesh.get_group("row"))
    dist.all_reduce(values, dist.ReduceOp.PRODUCT, group=mesh.get_group("column"))
    return {"whole": both.full_tensor(), "products of sums": values}


@scenario()
def tensor_parallel(rank: int, world: int) -> Results:
    mesh = init_device_mesh("cpu", (world,))
    torch.manual_seed(4)
    model = nn.Sequential(nn.Linear(7, 4 * world), nn.ReLU(), nn.Linear(4 * world, 3))
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    models.train(model, torch.optim.SGD(model.parameters(), 0.05, foreach=False), 0, 3)
    return models.copies((name, value.full_tensor()) for name, value in model.named_parameters())


_reduce_scatter: Any = getattr(functional, "reduce_scatter_single", None) or functional.reduce_scatter_tensor


def _collectives(values: torch.Tensor, group: Any, world: int) -> tuple[torch.Tensor, ...]:
    total = functional.all_reduce(values * 2, "sum", group)
    mean = functional.all_reduce(values, "avg", group)
    gathered = functional.all_gather_tensor(values, 0, group)
    own = _reduce_scatter(gathered * total.repeat(world, 1), "sum", 0, group)
    exchanged = functional.all_to_all_single(gathered, None, None, group)
    found = total, mean, gathered, functional.all_gather_tensor(own, 0, group), exchanged
    return tuple(functional.wait_tensor(it) for it in found)


@scenario(alike=False)
def functional_collectives(rank: int, world: int) -> Results:
    found = _collectives(_values(3, 5, seed=rank), dist.group.WORLD, world)
    return {str(index): value for index, value in enumerate(found)}


@scenario(alike=False)
def compiled_collectives(rank: int, world: int) -> Results:
    """The same in one graph."""
    torch._dynamo.reset()
    compiled = torch.compile(_collectives, backend="aot_eager", fullgraph=True)
    return {
        str(index): value for index, value in enumerate(compiled(_values(3, 5, seed=rank), dist.group.WORLD, world))
    }


@scenario(native=True)
def compiled_ddp(rank: int, world: int) -> Results:
    torch._dynamo.reset()
    model = DistributedDataParallel(models.network())
    compiled = torch.compile(model, backend="aot_eager")
    models.train(compiled, torch.optim.SGD(model.parameters(), 0.05), rank, 3)
    return models.copies(model.module.named_parameters())
