# SPDX-License-Identifier: MIT
"""Groups of some of the ranks: they share links and threads with all others, and never meet them."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from tests.torch.ranks import Rank, Ranks

pytestmark = pytest.mark.process


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def some_of_the_ranks(rank: Rank) -> None:
    with rank.group():
        outer, inner = dist.new_group([0, 3]), dist.new_group([1, 2])
        again = dist.new_group([0, 3])
        mine, ranks = (outer, [0, 3]) if rank.rank in (0, 3) else (inner, [1, 2])
        assert dist.get_backend(mine) == "pccl"
        assert dist.get_process_group_ranks(mine) == ranks
        x = torch.full((3,), float(rank.rank))
        dist.all_reduce(x, group=mine)
        assert (x == sum(ranks)).all()
        every = torch.zeros(2)
        dist.all_gather_into_tensor(every, torch.tensor([float(rank.rank)]), group=mine)
        assert every.tolist() == ranks
        y = torch.tensor([rank.rank])
        dist.broadcast(y, ranks[1], group=mine)
        assert y.item() == ranks[1]
        if mine is outer:  # the same ranks under two names: begun in different orders
            a, b = torch.ones(2), torch.full((2,), 5.0)
            works = [dist.all_reduce(a, group=outer, async_op=True), dist.all_reduce(b, group=again, async_op=True)]
            for it in works if rank.rank == 0 else reversed(works):
                it.wait()
            assert a.tolist() == [2.0, 2.0]
            assert b.tolist() == [10.0, 10.0]
        z = torch.tensor([rank.rank * 10])
        if rank.rank == ranks[0]:
            dist.send(z, ranks[1], group=mine)
        else:
            assert dist.recv(z, group=mine) == ranks[0]
            assert z.item() == ranks[0] * 10
        dist.barrier(group=mine)
        dist.barrier()


def object_collectives(rank: Rank) -> None:
    with rank.group():
        group = dist.new_group([1, 3])
        if rank.rank in (1, 3):
            for where in ({"src": 3}, {"group_src": 1}):
                one: list[Any] = [{"from": rank.rank}]
                dist.broadcast_object_list(one, group=group, **where)
                assert one == [{"from": 3}]
            part: list[Any] = [None]
            dist.scatter_object_list(part, ["a", "b"] if rank.rank == 1 else None, src=1, group=group)
            assert part == ["a" if rank.rank == 1 else "b"]
            for where in ({"dst": 3}, {"group_dst": 1}):
                every: list[Any] | None = [None, None] if rank.rank == 3 else None
                dist.gather_object(rank.rank, every, group=group, **where)
                assert every == ([1, 3] if rank.rank == 3 else None)
        dist.barrier()


def meshes(rank: Rank) -> None:
    with rank.group():
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("outer", "inner"))
        for name, expected in (("outer", {0: 2, 1: 4}), ("inner", {0: 1, 1: 5})):
            group = mesh.get_group(name)
            assert dist.get_backend(group) == "pccl"
            x = torch.tensor([float(rank.rank)])
            dist.all_reduce(x, group=group)
            assert x.item() == expected[rank.rank % 2 if name == "outer" else rank.rank // 2]


def many_groups(rank: Rank) -> tuple[int, int]:
    with rank.group():
        dist.all_to_all_single(torch.zeros(3), torch.ones(3))  # now there are all links
        before, threads = _descriptors(), threading.active_count()
        for number in range(40):
            group = dist.new_group([0, 1 + number % 2] if number % 3 else [0, 1, 2])
            if dist.get_rank(group) >= 0:
                x = torch.full((2,), 1.0)
                dist.all_reduce(x, group=group)
                assert x[0] == dist.get_world_size(group)
            if number % 2 and dist.get_rank(group) >= 0:
                dist.destroy_process_group(group)
        dist.barrier()
        return _descriptors() - before, threading.active_count() - threads


def only_in_a_subgroup(rank: Rank) -> None:
    """The default group is another backend's: those of pccl make runtimes of their own."""
    with rank.group("gloo"):
        first, second = dist.new_group([0, 1], backend="pccl"), dist.new_group([1, 2], backend="pccl")
        nested = dist.new_group([0, 1], backend="pccl")
        for group, ranks in ((first, (0, 1)), (second, (1, 2)), (nested, (0, 1))):
            if rank.rank in ranks:
                x = torch.tensor([float(rank.rank)])
                dist.all_reduce(x, group=group)
                assert x.item() == sum(ranks)


def test_groups_of_some_ranks(ranks: Ranks, form: str) -> None:
    ranks.run(some_of_the_ranks, 4, form)


def test_object_collectives_count_ranks_as_torch_does(ranks: Ranks, form: str) -> None:
    ranks.run(object_collectives, 4, form)


def test_device_meshes(ranks: Ranks, form: str) -> None:
    ranks.run(meshes, 4, form)


def test_groups_cost_no_descriptors_and_no_threads(ranks: Ranks, form: str) -> None:
    assert ranks.run(many_groups, 3, form) == [(0, 0)] * 3


def test_groups_whose_ranks_no_runtime_spans_make_their_own(ranks: Ranks, form: str) -> None:
    ranks.run(only_in_a_subgroup, 3, form)
