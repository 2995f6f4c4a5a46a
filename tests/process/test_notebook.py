# SPDX-License-Identifier: MIT
"""As in a notebook: an asyncio loop runs in the main thread, cells run in it, and other threads do the work."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator

import numpy as np
import pytest

import pccl

pytestmark = pytest.mark.process


@pytest.fixture
def comm() -> Iterator[pccl.Communicator]:
    """Made before any loop runs, as at the top of a program."""
    with pccl.MasterNode("127.0.0.1:0") as node:
        node.run()
        with pccl.Communicator(node.address, min_world_size=1) as comm:
            comm.connect()
            yield comm


async def cell(address: str) -> None:
    """All of a communicator's life inside a running loop."""
    loop, policy = asyncio.get_running_loop(), type(asyncio.get_event_loop_policy())
    with pccl.Communicator(address, 1, min_world_size=1) as comm:
        comm.connect()
        x = np.ones(1000)
        assert comm.all_reduce(x).world_size == 1
        infos = await asyncio.gather(*(comm.all_reduce_async(np.ones(10), tag=tag) for tag in range(8)))
        assert [info.world_size for info in infos] == [1] * 8
        handle = comm.barrier_async(tag=9)
        assert (await handle) == (await handle)
        state = pccl.SharedState([pccl.TensorInfo.from_numpy(x, "x")])
        assert (await asyncio.to_thread(comm.sync_shared_state, state)).world_size == 1
    with pytest.raises(pccl.Closed):
        await asyncio.to_thread(comm.barrier)
    assert asyncio.get_running_loop() is loop
    assert type(asyncio.get_event_loop_policy()) is policy


def test_a_cell_in_a_running_loop() -> None:
    with pccl.MasterNode("127.0.0.1:0") as node:
        node.run()
        asyncio.run(cell(node.address))
        assert "uvloop" not in type(asyncio.get_event_loop_policy()).__module__
        assert "uvloop" in sys.modules  # ours, and for our threads only


def test_a_communicator_that_lives_in_another_thread() -> None:
    with pccl.MasterNode("127.0.0.1:0") as node:
        node.run()

        async def main() -> None:
            await asyncio.to_thread(asyncio.run, cell(node.address))

        asyncio.run(main())


def test_a_handle_may_be_awaited_in_one_loop_after_another(comm: pccl.Communicator) -> None:
    handle = comm.all_reduce_async(np.ones(10))

    async def wait() -> pccl.ReduceInfo:
        return await handle

    assert asyncio.run(wait()) == asyncio.run(wait()) == handle.wait()


def test_a_cancelled_await_leaves_the_operation_alone(comm: pccl.Communicator) -> None:
    with pccl.Communicator(str(comm._options.master), min_world_size=2) as other:

        async def main() -> None:
            connecting = asyncio.create_task(asyncio.to_thread(other.connect))
            while comm.group_world_size < 2:
                await asyncio.to_thread(comm.update_topology)
            await connecting
            mine, theirs = np.ones(10), np.ones(10)
            handle = comm.all_reduce_async(mine)
            waiting = asyncio.ensure_future(handle)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(waiting, 0.05)
            assert not handle.done()
            other.all_reduce(theirs)
            assert (await handle).world_size == 2
            assert (mine == 2).all()

        asyncio.run(main())
