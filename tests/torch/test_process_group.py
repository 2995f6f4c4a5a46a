# SPDX-License-Identifier: MIT
"""Every operation of torch.distributed, on small tensors whose results anybody can tell, in both forms."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.torch.ranks import Rank, Ranks

pytestmark = pytest.mark.process

TELLS_OF_EXCEPTIONS = torch.__version__ >= "2.13"
"""Torch 2.9 could not hand a C++ work's exception to Python, not even that there is none."""

OPS: dict[str, Callable[[int, int], object]] = {}


def operation(function: Callable[[int, int], object]) -> Callable[[int, int], object]:
    """A check that all ranks make, one after the other, in one group."""
    OPS[function.__name__.strip("_")] = function
    return function


def own(rank: int, *shape: int) -> torch.Tensor:
    """Distinct values for each rank and place."""
    count = torch.Size(shape).numel()
    return (torch.arange(count, dtype=torch.float32) + 100 * rank).view(shape)


def equal(found: Any, expected: Any) -> None:
    assert torch.equal(torch.as_tensor(found), torch.as_tensor(expected)), f"{found} instead of {expected}"


@operation
def all_reduce(rank: int, world: int) -> None:
    x = own(rank, 4)
    dist.all_reduce(x)
    equal(x, sum(own(it, 4) for it in range(world)))
    x = own(rank, 4)
    work = dist.all_reduce(x, op=dist.ReduceOp.AVG, async_op=True)
    assert work.wait()
    assert work.is_completed()
    if TELLS_OF_EXCEPTIONS:
        assert work.exception() is None
    equal(x, sum(own(it, 4) for it in range(world)) / world)


@operation
def all_reduce_with_other_operations(rank: int, world: int) -> None:
    every = torch.stack([own(it, 4) for it in range(world)])
    for op, expected in (
        (dist.ReduceOp.MAX, every.amax(0)),
        (dist.ReduceOp.MIN, every.amin(0)),
        (dist.ReduceOp.PRODUCT, every.prod(0)),
    ):
        x = own(rank, 4)
        dist.all_reduce(x, op=op)
        equal(x, expected)
    bits = torch.tensor([1 << rank, 3])
    dist.all_reduce(bits, op=dist.ReduceOp.BOR)
    equal(bits, [(1 << world) - 1, 3])
    scaled = torch.ones(3)
    dist.all_reduce(scaled, op=dist._make_nccl_premul_sum(0.5))
    equal(scaled, torch.full((3,), world / 2))


@operation
def all_reduce_coalesced(rank: int, world: int) -> None:
    many = [own(rank, 3), own(rank, 0), own(rank, 2, 2)]
    with dist._coalescing_manager():
        for it in many:
            dist.all_reduce(it)
    for it in many:
        equal(it, sum(own(other, *it.shape) for other in range(world)))


@operation
def all_reduce_of_sparse_tensors(rank: int, world: int) -> None:
    x = torch.sparse_coo_tensor([[rank, world]], [1.0, 2.0], (world + 1,))
    dist.all_reduce(x)
    equal(x.to_dense(), [1.0] * world + [2.0 * world])


@operation
def broadcast(rank: int, world: int) -> None:
    for root in range(world):
        x = own(rank, 2, 3)
        dist.broadcast(x, root)
        equal(x, own(root, 2, 3))


@operation
def reduce(rank: int, world: int) -> None:
    x = own(rank, 5)
    dist.reduce(x, world - 1)
    equal(x, sum(own(it, 5) for it in range(world)) if rank == world - 1 else own(rank, 5))


@operation
def all_gather(rank: int, world: int) -> None:
    into = [torch.zeros(3) for _ in range(world)]
    dist.all_gather(into, own(rank, 3))
    for it in range(world):
        equal(into[it], own(it, 3))


@operation
def all_gather_of_uneven_parts(rank: int, world: int) -> None:
    lengths = [1, 0, 7, 2][:world]
    into = [torch.zeros(it) for it in lengths]
    dist.all_gather(into, own(rank, lengths[rank]))
    for it in range(world):
        equal(into[it], own(it, lengths[it]))


@operation
def all_gather_into_tensor(rank: int, world: int) -> None:
    into = torch.zeros(world, 2)
    dist.all_gather_into_tensor(into, own(rank, 2))
    equal(into, torch.stack([own(it, 2) for it in range(world)]))
    block = into[rank]  # in place
    dist.all_gather_into_tensor(into, block)
    equal(into, torch.stack([own(it, 2) for it in range(world)]))


@operation
def all_gather_coalesced(rank: int, world: int) -> None:
    into = [torch.zeros(world * 2), torch.zeros(world * 3)]
    with dist._coalescing_manager():
        dist.all_gather_into_tensor(into[0], own(rank, 2))
        dist.all_gather_into_tensor(into[1], own(rank, 3))
    equal(into[0], torch.cat([own(it, 2) for it in range(world)]))
    equal(into[1], torch.cat([own(it, 3) for it in range(world)]))


@operation
def reduce_scatter(rank: int, world: int) -> None:
    into = torch.zeros(2)
    dist.reduce_scatter(into, [own(rank, 2) + it for it in range(world)])
    equal(into, sum(own(it, 2) + rank for it in range(world)))
    lengths = [1, 0, 7, 2][:world]
    uneven = torch.zeros(lengths[rank])
    dist.reduce_scatter(uneven, [own(rank, it) for it in lengths], op=dist.ReduceOp.AVG)
    equal(uneven, sum(own(it, lengths[rank]) for it in range(world)) / world)


@operation
def reduce_scatter_tensor(rank: int, world: int) -> None:
    into = torch.zeros(2)
    dist.reduce_scatter_tensor(into, own(rank, world, 2), op=dist.ReduceOp.AVG)
    equal(into, sum(own(it, world, 2)[rank] for it in range(world)) / world)
    many = [torch.zeros(1), torch.zeros(2)]
    with dist._coalescing_manager():
        for it in many:
            dist.reduce_scatter_tensor(it, own(rank, world * it.numel()))
    for it in many:
        equal(it, sum(own(other, world, it.numel())[rank] for other in range(world)))


@operation
def gather(rank: int, world: int) -> None:
    into = [torch.zeros(3) for _ in range(world)] if rank == 1 else None
    dist.gather(own(rank, 3), into, dst=1)
    for it, tensor in enumerate(into or ()):
        equal(tensor, own(it, 3))


@operation
def scatter(rank: int, world: int) -> None:
    x = torch.zeros(3)
    dist.scatter(x, [own(it, 3) for it in range(world)] if rank == world - 1 else None, src=world - 1)
    equal(x, own(rank, 3))


@operation
def all_to_all(rank: int, world: int) -> None:
    into = [torch.zeros(it + 1) for it in range(world)]  # rank r sends r + 1 elements to everybody
    dist.all_to_all(into, [own(rank, rank + 1) + to for to in range(world)])
    for it in range(world):
        equal(into[it], own(it, it + 1) + rank)


@operation
def all_to_all_single(rank: int, world: int) -> None:
    into = torch.zeros(world, 2)
    dist.all_to_all_single(into, own(rank, world, 2))
    equal(into, torch.stack([own(it, world, 2)[rank] for it in range(world)]))
    into = torch.zeros(world * rank, 3)  # everybody sends r rows to rank r
    dist.all_to_all_single(into, own(rank, sum(range(world)), 3), [rank] * world, list(range(world)))
    begin = sum(range(rank))
    equal(into, torch.cat([own(it, sum(range(world)), 3)[begin : begin + rank] for it in range(world)]))


@operation
def send_and_recv(rank: int, world: int) -> None:
    right, left = (rank + 1) % world, (rank - 1) % world
    x = torch.zeros(4)
    work = dist.isend(own(rank, 4), right, tag=3)
    assert dist.recv(x, left, tag=3) == left
    work.wait()
    equal(x, own(left, 4))
    sent = [dist.isend(own(rank, 2), 0, tag=7)] if rank else []
    received = {}
    for _ in range(world - 1 if rank == 0 else 0):
        y = torch.zeros(2)
        received[dist.recv(y, tag=7)] = y  # from any
    for source, y in received.items():
        equal(y, own(source, 2))
    assert sorted(received) == (list(range(1, world)) if rank == 0 else [])
    for it in sent:
        it.wait()


@operation
def batched_sends(rank: int, world: int) -> None:
    right, left = (rank + 1) % world, (rank - 1) % world
    x = torch.zeros(4)
    works = dist.batch_isend_irecv([dist.P2POp(dist.irecv, x, left), dist.P2POp(dist.isend, own(rank, 4), right)])
    for it in works:
        it.wait()
    equal(x, own(left, 4))


@operation
def objects(rank: int, world: int) -> None:
    every: list[Any] = [None] * world
    dist.all_gather_object(every, {"rank": rank, "text": "x" * rank})
    assert every == [{"rank": it, "text": "x" * it} for it in range(world)]
    one = [("from", rank) if rank == 1 else None]
    dist.broadcast_object_list(one, src=1)
    assert one == [("from", 1)]
    own_part: list[Any] = [None]
    dist.scatter_object_list(own_part, [[it] for it in range(world)] if rank == 0 else None, src=0)
    assert own_part == [[rank]]


@operation
def barrier(rank: int, world: int) -> None:
    dist.barrier()
    dist.barrier(async_op=True).wait()


@operation
def monitored_barrier(rank: int, world: int) -> None:
    dist.group.WORLD.monitored_barrier()
    with pytest.raises(RuntimeError, match=f"Rank {rank} timed out in monitoredBarrier after 0 ms"):
        dist.group.WORLD.monitored_barrier(timedelta(0))


@operation
def futures(rank: int, world: int) -> None:
    x = own(rank, 4)
    doubled = dist.all_reduce(x, async_op=True).get_future().then(lambda future: future.value()[0] * 2)
    equal(doubled.wait(), 2 * sum(own(it, 4) for it in range(world)))


@operation
def futures_that_wait_for_others(rank: int, world: int) -> None:
    """As PowerSGD's hook does: in a callback, for what nobody but the thread of callbacks could complete."""

    def further(depth: int, future: torch.futures.Future[Any]) -> torch.Tensor:
        x = future.value()[0]
        if depth == 0:
            return x
        work = dist.all_reduce(x, async_op=True)
        return work.get_future().then(partial(further, depth - 1)).wait()

    x = torch.ones(2)
    found = dist.all_reduce(x, async_op=True).get_future().then(partial(further, 3)).wait()
    equal(found, torch.full((2,), float(world**4)))


@operation
def profiles(rank: int, world: int) -> None:
    with torch.profiler.profile() as profile:
        dist.all_reduce(torch.ones(2))
        dist.broadcast(torch.ones(2), 0, async_op=True).wait()
        dist.barrier()  # behind the others on this rank, so their spans have ended
    names = [it.name for it in profile.events()]
    assert "pccl:all_reduce" in names, names
    assert "pccl:broadcast" in names, names


@operation
def strided_tensors(rank: int, world: int) -> None:
    total = sum(own(it, 3, 4) for it in range(world))
    table = own(rank, 3, 4)
    dist.all_reduce(table[:, 1])
    equal(table[:, 1], total[:, 1])
    equal(table[:, [0, 2, 3]], own(rank, 3, 4)[:, [0, 2, 3]])
    table = own(rank, 3, 4)
    dist.broadcast(table.t(), 1)
    equal(table, own(1, 3, 4))
    every = torch.zeros(8, world)[::2]
    dist.all_gather_into_tensor(every.t(), own(rank, 8)[::2])
    equal(every, torch.stack([own(it, 8)[::2] for it in range(world)], 1))
    with pytest.raises(ValueError, match="share memory"):
        dist.broadcast(torch.zeros(1).expand(4), 0)


@operation
def empty_tensors(rank: int, world: int) -> None:
    x = torch.zeros(1, 0, 2)
    dist.all_reduce(x)
    dist.broadcast(x, 0)
    dist.all_gather([torch.zeros(1, 0, 2) for _ in range(world)], x)
    dist.all_to_all_single(torch.zeros(0, 2), torch.zeros(0, 2))
    dist.reduce_scatter_tensor(torch.zeros(0), torch.zeros(0))
    assert x.shape == (1, 0, 2)


@operation
def dtypes(rank: int, world: int) -> None:
    for dtype in (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16):
        x = torch.full((5,), rank + 1).to(dtype)
        dist.all_reduce(x)
        equal(x, torch.full((5,), world * (world + 1) // 2).to(dtype))
    x = torch.full((3,), complex(rank, 1), dtype=torch.complex64)
    dist.all_reduce(x)
    equal(x, torch.full((3,), complex(world * (world - 1) // 2, world), dtype=torch.complex64))
    flags = torch.tensor([rank == 1, False])
    dist.all_reduce(flags, op=dist.ReduceOp.MAX)
    equal(flags, [True, False])
    for dtype in (
        torch.uint16,
        torch.uint64,
        torch.float8_e4m3fn,
        torch.float8_e4m3fnuz,
        torch.float8_e5m2,
        torch.bool,
    ):
        raw = torch.arange(64, dtype=torch.uint8) % 2 if dtype == torch.bool else torch.arange(64, dtype=torch.uint8)
        into = torch.zeros(64 * world, dtype=torch.uint8).view(dtype)
        dist.all_gather_into_tensor(into, raw.view(dtype))
        equal(into.view(torch.uint8), raw.repeat(world))
    with pytest.raises((TypeError, ValueError)):
        dist.all_reduce(torch.zeros(4).to(torch.float8_e4m3fn))


@operation
def wrong_arguments(rank: int, world: int) -> None:
    with pytest.raises(ValueError, match="rows"):
        dist.all_to_all_single(torch.zeros(world), torch.zeros(world), [world + 1] + [0] * (world - 1), [1] * world)
    with pytest.raises(ValueError, match=r"output|recv"):
        dist.all_gather_into_tensor(torch.zeros(world * 3), torch.zeros(2))


@operation
def sequence_numbers(rank: int, world: int) -> None:
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))  # torch up to 2.13 does not ask it for the group's
    before = backend._get_sequence_number_for_group()
    dist.barrier()
    assert backend._get_sequence_number_for_group() > before


def all_operations(rank: Rank) -> None:
    """They stop at the first that fails, since the others would meet what it has left."""
    with rank.group():
        for name, check in OPS.items():
            try:
                check(rank.rank, rank.world)
            except Exception as failure:
                raise AssertionError(name) from failure


@pytest.mark.parametrize("world", [2, 3, 4])
def test_all_operations(ranks: Ranks, form: str, world: int) -> None:
    ranks.run(all_operations, world, form)
