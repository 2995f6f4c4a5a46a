# SPDX-License-Identifier: MIT
"""Arrays without elements, and arrays that share memory with each other."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import pccl
from tests.process.local import Local

pytestmark = pytest.mark.process


def reduces(comm: pccl.Communicator) -> bool:
    """A call that works on all."""
    x = np.full(5, comm.rank + 1.0)
    comm.all_reduce(x)
    return bool((x == sum(range(1, comm.group_world_size + 1))).all())


@pytest.mark.parametrize("size", [1, 2, 4])
def test_nothing_is_reduced_to_nothing(size: int) -> None:
    """B11: every collective with an empty array keeps its shape and returns, and so does the one after it."""

    def run(comm: pccl.Communicator) -> bool:
        empty = [np.zeros((1, 0, 2), np.float32) for _ in range(2)]
        calls: list[tuple[Any, Any, tuple[Any, ...]]] = [
            (comm.all_reduce, comm.all_reduce_async, (empty[0],)),
            (comm.all_reduce, comm.all_reduce_async, tuple(empty)),
            (comm.reduce_scatter, comm.reduce_scatter_async, tuple(empty)),
            (comm.all_gather, comm.all_gather_async, tuple(empty)),
            (comm.broadcast, comm.broadcast_async, (empty[0], size - 1)),
        ]
        for blocking, starting, arguments in calls:
            assert blocking(*arguments).world_size == size
            assert starting(*arguments).wait().world_size == size
            assert asyncio.run(_awaited(starting, arguments)).world_size == size
            assert all(it.shape == (1, 0, 2) for it in empty)
        return reduces(comm)

    with Local(size) as local:
        assert all(local.all(run))


async def _awaited(starting: Any, arguments: tuple[Any, ...]) -> pccl.ReduceInfo:
    info: pccl.ReduceInfo = await starting(*arguments)
    return info


def test_arrays_that_are_each_other_s_place_work() -> None:
    """B20: in place means the very block, or the very array; that is exact."""

    def run(comm: pccl.Communicator) -> bool:
        rank, size = comm.rank, comm.group_world_size
        whole = np.zeros((size, 7))
        whole[rank] = rank + 1
        comm.all_gather(whole[rank], whole)
        assert (whole == np.arange(1, size + 1)[:, None]).all()
        blocks = np.arange(size * 7.0).reshape(size, 7) * (rank + 1)
        comm.reduce_scatter(blocks, blocks[rank])
        assert (blocks[rank] == np.arange(size * 7.0).reshape(size, 7)[rank] * 6).all()
        x = np.arange(100.0)
        comm.all_reduce(x, x)
        assert (x == size * np.arange(100.0)).all()
        return reduces(comm)

    with Local(3) as local:
        assert all(local.all(run))


def test_arrays_that_overlap_otherwise_are_refused() -> None:
    """B20: any other sharing of memory is an error before any traffic, also between the arrays of one call for many."""

    def run(comm: pccl.Communicator) -> bool:
        rank, size = comm.rank, comm.group_world_size
        memory = np.arange(1000.0)
        before = memory.copy()
        calls = [
            lambda: comm.all_reduce(memory[:100], memory[50:150]),
            lambda: comm.all_gather(memory[1:8], memory[: 7 * size]),
            lambda: comm.all_gather(memory[7 * ((rank + 1) % size) :][:7], memory[: 7 * size]),
            lambda: comm.reduce_scatter(memory[: 7 * size], memory[3:10]),
            lambda: comm.all_reduce_multiple_with_retry([memory, memory]),
            lambda: comm.all_reduce_multiple_with_retry([memory[:600], memory[400:]]),
        ]
        for call in calls:
            with pytest.raises(pccl.InvalidArgument, match="overlap"):
                call()
        assert (memory == before).all()
        return reduces(comm)

    with Local(3) as local:
        assert all(local.all(run))
