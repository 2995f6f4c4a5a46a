# SPDX-License-Identifier: MIT
"""Many threads and many communicators in one process: results stay exact, nobody waits for the wrong one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

import pccl
from tests.process.harness import gather
from tests.process.local import Local, at_once, close, joined, outcome

pytestmark = pytest.mark.process

Shm = Literal["auto", "off"]


@pytest.fixture
def node() -> Iterator[pccl.MasterNode]:
    with pccl.MasterNode("127.0.0.1:0") as node:
        node.run()
        yield node


def reduced(comm: pccl.Communicator, thread: int, step: int, size: int) -> bool:
    """One all_reduce whose values tell rank, thread and step: whether the sum is right."""
    x = (np.arange(64) + 1000 * comm.rank + 17 * thread + step).astype(np.int64)
    comm.all_reduce(x, tag=thread)
    expected = size * (np.arange(64) + 17 * thread + step) + 1000 * (size * (size - 1) // 2)
    return bool((x == expected).all())


def test_threads_with_groups_of_their_own(node: pccl.MasterNode) -> None:
    """B71: 8 threads x 8 groups of two peers."""
    comms = joined(node.address, [group for group in range(8) for _ in range(2)], 2)

    def work(comm: pccl.Communicator, thread: int) -> bool:
        return all(reduced(comm, thread, step, 2) for step in range(10))

    assert all(at_once([partial(work, comm, thread) for comm in comms for thread in range(8)]))
    close(comms)


def test_two_threads_of_one_group(node: pccl.MasterNode) -> None:
    """B71: 1,000 operations, with a tag per thread, between them messages and objects."""
    comms = joined(node.address, [0, 0], 2)

    def work(comm: pccl.Communicator, thread: int) -> bool:
        other = 1 - comm.rank
        for step in range(500):
            assert reduced(comm, thread, step, 2)
            if step % 10 == 0:
                said, heard = np.array([comm.rank, thread, step]), np.zeros(3, np.int64)
                comm.batch_send_recv([pccl.Send(said, other, tag=thread), pccl.Recv(heard, tag=thread)])
                assert heard.tolist() == [other, thread, step]
                objects = comm.all_gather_object(said.tolist(), tag=thread)
                assert objects == [[rank, thread, step] for rank in range(2)]
        return True

    assert all(at_once([partial(work, comm, thread) for comm in comms for thread in range(2)]))
    close(comms)


def flight(comm: pccl.Communicator, thread: int, peers: int, stalled: bool) -> bool:
    """A hundred operations at a time, of all sizes and priorities, begun in an order of this rank's own; one more that
    rank 1 begins when all others have ended. Whether all are right."""
    random = np.random.default_rng(1000 * comm.rank + thread)
    sizes = np.random.default_rng(thread).choice([1, 100, 5000, 20000], 100)
    arrays = {tag: np.full(size, comm.rank + tag, np.int64) for tag, size in enumerate(sizes, 1 + 1000 * thread)}
    late = np.full(30000, comm.rank, np.int64)
    handles = {}
    if stalled and comm.rank != 1:
        handles[0] = comm.all_reduce_async(late, tag=0, priority=3)
    for tag in random.permutation(list(arrays)):
        handles[tag] = comm.all_reduce_async(arrays[tag], tag=int(tag), priority=int(random.integers(-3, 4)))
    ranks = peers * (peers - 1) // 2
    for tag in random.permutation(list(arrays)):
        handles[tag].wait()
        assert (arrays[tag] == peers * tag + ranks).all()
    if not stalled:
        return True
    if comm.rank != 1:
        assert not handles[0].done()
    comm.barrier(tag=10**6)
    if comm.rank == 1:
        handles[0] = comm.all_reduce_async(late, tag=0)
    handles[0].wait()
    return bool((late == ranks).all())


@pytest.mark.parametrize("shm", ["auto", "off"])
def test_hundreds_of_operations_at_a_time(node: pccl.MasterNode, shm: Shm) -> None:
    """B71: 3 threads of each of 3 ranks, in 2 groups; what one rank holds up stops no other."""
    comms = joined(node.address, [0, 1] * 3, 3, shm=shm)
    calls = [partial(flight, comm, thread, 3, thread == 0) for comm in comms for thread in range(3)]
    assert all(at_once(list(calls)))
    close(comms)


def test_fifty_communicators_in_one_process(node: pccl.MasterNode) -> None:
    """Each a group by itself, with the others in one run."""
    comms = joined(node.address, list(range(50)), 1)
    assert {comm.num_groups for comm in comms} == {50}
    assert all(comm.all_reduce(np.ones(3)).world_size == 1 for comm in comms)
    close(comms)


def test_communicators_of_two_runs_do_not_know_of_each_other(node: pccl.MasterNode) -> None:
    with pccl.MasterNode("127.0.0.1:0") as other:
        other.run()
        here, there = joined(node.address, [0, 0], 2), joined(other.address, [0, 0, 0], 3)
        for comms in (here, there):
            sums = [np.full(10, comm.rank + 1.0) for comm in comms]
            at_once([partial(comm.all_reduce, x) for comm, x in zip(comms, sums, strict=True)])
            assert all((x == sum(range(1, len(comms) + 1))).all() for x in sums)
        close(here)
        assert [comm.group_world_size for comm in there] == [3, 3, 3]
        close(there)


# ---------------------------------------------------------------------------------------------- races at both ends


def waited(comm: pccl.Communicator) -> pccl.ReduceInfo:
    return comm.all_reduce_async(np.ones(1000), tag=2).wait()


def test_threads_that_connect_one_communicator_make_one_peer_of_it(node: pccl.MasterNode) -> None:
    with pccl.Communicator(node.address, min_world_size=1) as comm:
        outcomes = at_once([partial(outcome, comm.connect)] * 8)
        assert sorted(set(outcomes)) == ["", "InvalidArgument"]  # type: ignore[type-var]
        assert outcomes.count("") == 1
        assert comm.global_world_size == 1


def test_close_ends_a_connect_of_another_thread_whenever_it_comes(node: pccl.MasterNode) -> None:
    for turns in range(20):
        comm = pccl.Communicator(node.address, min_world_size=1)

        def late(comm: pccl.Communicator = comm, turns: int = turns) -> str:
            for _ in range(turns * turns * 100):
                pass
            return outcome(comm.close)

        connected, closed = at_once([partial(outcome, comm.connect), late])
        assert connected in ("", "Closed")
        assert closed == ""
        assert outcome(comm.barrier) == "Closed"


def test_close_races_with_every_call_of_other_threads(node: pccl.MasterNode, tmp_path: Path) -> None:
    """Each ends well or with Closed; nothing hangs or dies."""
    for turns in range(10):
        comm = pccl.Communicator(node.address, min_world_size=1)
        comm.connect()
        state = pccl.SharedState([pccl.TensorInfo.from_numpy(np.ones(10), "x")])

        def again(call: Callable[[], object]) -> str:
            while not (ended := outcome(call)):
                pass
            return ended

        def late(comm: pccl.Communicator = comm, turns: int = turns) -> str:
            for _ in range(turns * 20_000):
                pass
            return outcome(comm.close)

        calls: list[Callable[[], object]] = [
            partial(comm.all_reduce, np.ones(1000), tag=1),
            partial(waited, comm),
            partial(comm.all_reduce_multiple_with_retry, [np.ones(10)], tag=3),
            comm.explain,
            partial(comm.sync_shared_state, state),
            comm.barrier,
            partial(comm.dump_trace, tmp_path / "trace"),
        ]
        ended = at_once([*[partial(again, call) for call in calls], late])
        assert set(ended[:-1]) <= {"Closed", "PendingOperations"}
        assert ended[-1] == ""


def test_a_handle_may_be_waited_for_by_many_threads(node: pccl.MasterNode) -> None:
    comms = joined(node.address, [0, 0], 2)
    mine, theirs = np.ones(100_000), np.ones(100_000)
    handle = comms[0].all_reduce_async(mine)
    waits = [lambda: handle.wait().world_size] * 8
    sizes = at_once([*waits, lambda: comms[1].all_reduce(theirs).world_size])
    assert sizes == [2] * 9
    assert (mine == 2).all()
    close(comms)


def test_memory_given_up_while_in_flight_is_kept_until_the_end(node: pccl.MasterNode) -> None:
    """B83: handles, arrays and views of them are dropped at once, others of the same size are made; nobody is hurt."""
    comms = joined(node.address, [0, 0], 2)
    size, count = 50_000, 16

    def careless(comm: pccl.Communicator) -> None:
        for tag in range(count):
            comm.all_reduce_async(np.full(2 * size, 7.0)[size:], tag=tag)
            np.full(size, -1.0)
        comm.barrier(tag=count)

    def careful(comm: pccl.Communicator) -> bool:
        arrays = [np.full(size, 1.0) for _ in range(count)]
        handles = [comm.all_reduce_async(array, tag=tag) for tag, array in enumerate(arrays)]
        for handle in handles:
            handle.wait()
        comm.barrier(tag=count)
        return all((array == 8).all() for array in arrays)

    _, right = at_once([lambda: careless(comms[0]), lambda: careful(comms[1])])
    assert right
    gather(comms[0], 2)
    close(comms)


def test_a_call_is_made_for_one_view(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control thread installs the next view while a caller looks at its group: epoch, size and rank are of one."""
    with Local(2) as local:
        control = local.comms[1]._control
        assert control is not None
        assert control.installed is not None
        now = control.installed
        fewer = replace(now.view, epoch=now.view.epoch + 1, members=now.view.members[1:])
        views = iter((now, replace(now, view=fewer, rank=0)))
        with monkeypatch.context() as meanwhile:
            meanwhile.setattr(type(control), "installed", property(lambda self: next(views)), raising=False)
            group = local.comms[1]._group()
        assert group == (now.view.epoch, 2, 1)
