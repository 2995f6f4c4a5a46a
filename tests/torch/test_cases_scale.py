# SPDX-License-Identifier: MIT
"""Many ranks, many groups, few descriptors, and more elements than 32 bits count."""

from __future__ import annotations

import gc
import os
import resource
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from pccl.torch import Options
from tests.torch.ranks import PATIENCE, Rank, Ranks

pytestmark = pytest.mark.process

SET_UP_S = 5.0 * PATIENCE
GROWTH_BYTES = 20 << 20


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def _resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def twelve_ranks(rank: Rank) -> float:
    """With 20 groups, and descriptors for the peers alone."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    begun = time.monotonic()
    with rank.group(pg_options=Options(shm="off")):
        world = rank.world
        x = torch.zeros(world)
        dist.all_to_all_single(x, torch.full((world,), float(rank.rank)))  # all links
        took = time.monotonic() - begun
        assert x.tolist() == list(range(world))
        before = _descriptors()
        for number in range(20):
            members = [it for it in range(world) if (it + number) % 3]
            group = dist.new_group(members)
            if rank.rank in members:
                y = torch.ones(3)
                dist.all_reduce(y, group=group)
                assert (y == len(members)).all()
        dist.barrier()
        assert _descriptors() - before <= 2
        assert _descriptors() < 256
        return took


def test_descriptors_grow_with_peers_alone(ranks: Ranks, form: str) -> None:
    """B54."""
    assert max(ranks.run(twelve_ranks, 12, form)) < SET_UP_S


def too_few_descriptors(rank: Rank) -> str:
    """Then enough again, in the same process."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_descriptors() + 1, most))
    with pytest.raises((RuntimeError, OSError)) as raised:
        rank.init(timeout=timedelta(seconds=3))
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, most))
    with rank.group(name="another store"):
        dist.barrier()
    return str(raised.value)


def test_who_has_too_few_descriptors_is_told_and_recovers(ranks: Ranks, form: str) -> None:
    """B54."""
    ranks.run(too_few_descriptors, 2, form)


def made_and_ended(rank: Rank) -> None:
    with rank.group():
        for number in range(601):
            group = dist.new_group()
            x = torch.ones(2)
            dist.all_reduce(x, group=group)
            assert x[0] == rank.world
            dist.destroy_process_group(group)
            if number == 100:
                gc.collect()
                before = _descriptors(), len(os.listdir("/proc/self/task")), _resident()
        gc.collect()
        assert abs(_descriptors() - before[0]) <= 5
        assert len(os.listdir("/proc/self/task")) == before[1]
        assert _resident() - before[2] < GROWTH_BYTES


def test_groups_that_end_leave_nothing(ranks: Ranks, form: str) -> None:
    """B73."""
    ranks.run(made_and_ended, 2, form)


def dropped(rank: Rank) -> None:
    """Torch itself keeps what nobody destroys, so memory may grow, but nothing of the system's does."""
    with rank.group():
        dist.barrier()
        before = _descriptors(), len(os.listdir("/proc/self/task"))
        for _ in range(500):
            group = dist.new_group()
            dist.barrier(group)
            del group
        gc.collect()
        assert (_descriptors(), len(os.listdir("/proc/self/task"))) == before


def test_groups_that_are_dropped_cost_no_descriptors(ranks: Ranks, form: str) -> None:
    """B73."""
    ranks.run(dropped, 2, form)


def _places(count: int) -> torch.Tensor:
    """The first, the last, and those around 2**31 elements and bytes."""
    near = [0, 1, count - 2, count - 1]
    near += [it + off for it in (2**29, 2**31, 2**32) for off in (-1, 0, 1) if it + off < count]
    return torch.tensor(near)


def large(rank: Rank, count: int, name: str) -> None:
    dtype = getattr(torch, name)
    before, payload = _peak(), count * dtype.itemsize
    places = _places(count)
    marks = torch.arange(places.numel()).to(dtype)
    with rank.group(timeout=timedelta(minutes=5)):
        x = torch.zeros(count, dtype=dtype)
        x[places] = marks + rank.rank
        dist.all_reduce(x)
        assert torch.equal(x[places], 2 * marks + 1)
        assert x.count_nonzero() == torch.unique(places).numel(), "it is odd there, and 0 elsewhere"
        x.fill_(0)
        if rank.rank == 1:
            x[places] = marks
        dist.broadcast(x, 1)
        assert torch.equal(x[places], marks)
        y = torch.zeros_like(x)
        splits = [[1, count - 1], [count - 1, 1]]
        dist.all_to_all_single(y, x, [splits[it][rank.rank] for it in range(2)], splits[rank.rank])
        expected = torch.cat([x.split(splits[it])[rank.rank][:3] for it in range(2)])
        first = splits[0][rank.rank]
        assert torch.equal(torch.cat([y[:first][:3], y[first:][:3]]), expected)
        assert _peak() - before < 2.1 * payload, "more than two tensors at a time"


@pytest.mark.heavy
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("count", "name"), [(2**31 + 7, "int8"), ((11 << 30) // 20, "float32")])
def test_more_than_32_bits_count(ranks: Ranks, form: str, count: int, name: str) -> None:
    """B15."""
    ranks.run(large, 2, form, count, name)
