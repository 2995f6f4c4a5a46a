# SPDX-License-Identifier: MIT
"""Tensors on a GPU, which go by way of the host: results, and what order of streams their users may count on."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from tests.torch.ranks import Rank, Ranks

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here"),
]

LARGE = 3_000_001
"""Elements that go in several pieces, of which the last is short."""


def values(rank: int, count: int) -> Tensor:
    return (torch.arange(count) * (rank + 2) % 1013).float()


def all_reduce(x: Tensor, rank: int, world: int) -> Tensor:
    dist.all_reduce(x)
    return x


def transposed(x: Tensor, rank: int, world: int) -> Tensor:
    table = x[: len(x) // 4 * 4].view(4, -1).t()
    dist.all_reduce(table, op=dist.ReduceOp.MAX)
    return table


def broadcast(x: Tensor, rank: int, world: int) -> Tensor:
    dist.broadcast(x, 1)
    return x


def reduce(x: Tensor, rank: int, world: int) -> Tensor:
    dist.reduce(x, 1)
    return x


def all_gather(x: Tensor, rank: int, world: int) -> Tensor:
    parts = [torch.zeros_like(x) for _ in range(world)]
    dist.all_gather(parts, x)
    return torch.cat(parts)


def into_tensor(x: Tensor, rank: int, world: int) -> Tensor:
    whole = x.new_zeros(len(x) * world)
    dist.all_gather_into_tensor(whole, x)
    return whole


def reduce_scatter(x: Tensor, rank: int, world: int) -> Tensor:
    part = x.new_zeros(len(x) // world)
    dist.reduce_scatter_tensor(part, x[: len(part) * world])
    return part


def all_to_all(x: Tensor, rank: int, world: int) -> Tensor:
    x = x[: len(x) // world * world]
    into = torch.zeros_like(x)
    dist.all_to_all_single(into, x)
    return into


def gather(x: Tensor, rank: int, world: int) -> Tensor:
    parts = [torch.zeros_like(x) for _ in range(world)] if rank == 0 else None
    dist.gather(x, parts, 0)
    return torch.cat(parts) if parts else x


def scatter(x: Tensor, rank: int, world: int) -> Tensor:
    into = torch.zeros_like(x)
    dist.scatter(into, [x * it for it in range(world)] if rank == 0 else None, 0)
    return into


def exchange(x: Tensor, rank: int, world: int) -> Tensor:
    into = torch.zeros_like(x)
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, x, (rank + 1) % world),
            dist.P2POp(dist.irecv, into, (rank - 1) % world),
        ]
    )
    for work in works:
        work.wait()
    return into


def asynchronous(x: Tensor, rank: int, world: int) -> Tensor:
    """The stream of who waits goes on behind the results, and they see what it had been given before the call."""
    x = x * 2
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    y = x + 1
    return y + dist.all_reduce(y, async_op=True).get_future().wait()[0]


OPERATIONS: list[Callable[[Tensor, int, int], Tensor]] = [
    all_reduce,
    transposed,
    broadcast,
    reduce,
    all_gather,
    into_tensor,
    reduce_scatter,
    all_to_all,
    gather,
    scatter,
    exchange,
    asynchronous,
]


def as_on_the_host(rank: Rank) -> None:
    with rank.group():
        for operation in OPERATIONS:
            for count in (1000, LARGE):
                x = values(rank.rank, count)
                expected = operation(x.clone(), rank.rank, rank.world)
                found = operation(x.cuda(), rank.rank, rank.world)
                assert found.is_cuda
                assert torch.equal(found.cpu(), expected), f"{operation.__name__} of {count}"


def test_results_are_those_of_tensors_on_the_host(ranks: Ranks, form: str) -> None:
    ranks.run(as_on_the_host, 2, form)
