# SPDX-License-Identifier: MIT
"""Peers in processes of their own: exact results, loss, retry, mismatch, expulsion, and the user's API around them."""

from __future__ import annotations

import asyncio
import signal
import threading
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import pccl
from pccl.fleet import Child, Line
from tests.process.harness import Run, join
from tests.process.local import at_once, close, joined, outcome

pytestmark = pytest.mark.process

BIG = 4 * 1024 * 1024
"""Elements of an array whose reduction takes long enough to be interrupted."""


def values(rank: int, elements: int, dtype: str = "int64") -> np.ndarray:
    """Different for every element and rank, and small enough to stay exact in any order."""
    return (np.arange(elements) % 1009 + 1000 * rank).astype(dtype)


def total(ranks: list[int], elements: int, dtype: str = "int64") -> np.ndarray:
    return np.sum([values(rank, elements) for rank in ranks], axis=0).astype(dtype)


# ---------------------------------------------------------------------------------------------- all collectives


def every_collective(line: Line, address: str) -> None:
    with join(address, 3) as comm:
        rank, size = comm.rank, comm.group_world_size
        for dtype in ("int8", "uint16", "int32", "uint64", "float16", "float32", "float64"):
            mine, out = np.full(1001, rank + 1, dtype), np.zeros(1001, dtype)
            info = comm.all_reduce(mine, out)
            assert (out == 6).all()
            assert (mine == rank + 1).all()
            assert (info.world_size, info.rank, info.epoch) == (size, rank, comm.epoch)
        averaged = values(rank, 1000, "float64")
        comm.all_reduce(averaged, op=pccl.ReduceOp.AVG)
        assert (averaged == values(1, 1000)).all()
        block = np.zeros(5, np.int64)
        comm.reduce_scatter(values(rank, 15), block)
        assert (block == total([0, 1, 2], 15)[5 * rank : 5 * rank + 5]).all()
        gathered = np.zeros((size, 7), np.int64)
        comm.all_gather(values(rank, 7), gathered)
        assert (gathered == [values(other, 7) for other in range(size)]).all()
        sent = values(rank, 100)
        comm.broadcast(sent, root=2)
        assert (sent == values(2, 100)).all()
        comm.barrier()
        for empty in (np.zeros((1, 0, 2), np.float32), np.array(1.0, np.float32)):
            comm.all_reduce(empty)
        assert empty == 3.0
        ids = np.zeros((size, 16), np.uint8)
        comm.all_gather(np.frombuffer(bytes.fromhex(comm.peer_id), np.uint8), ids)
        line.send(kind="done", ids=[bytes(row).hex() for row in ids])
        comm.barrier()


def test_every_collective_is_exact(tmp_path: Path) -> None:
    with Run(tmp_path) as run:
        peers = [run.peer(every_collective) for _ in range(3)]
        ids = [run.expect(peer, "done")["ids"] for peer in peers]
        assert ids[0] == ids[1] == ids[2]
        assert len(set(ids[0])) == 3
        assert [run.ended(peer) for peer in peers] == [0, 0, 0]


# ---------------------------------------------------------------------------------------------- asynchronous use


def asynchronous(line: Line, address: str) -> None:
    with join(address, 2) as comm:
        arrays = [values(comm.rank, 1000 + tag) for tag in range(16)]
        handles = [comm.all_reduce_async(array, tag=tag) for tag, array in enumerate(arrays)]
        for tag in (7, 3, 15, *range(16)):
            assert handles[tag].wait().world_size == 2
            assert handles[tag].done()
        assert all((array == total([0, 1], 1000 + tag)).all() for tag, array in enumerate(arrays))

        async def awaited() -> list[pccl.ReduceInfo]:
            return await asyncio.gather(*(comm.barrier_async(tag=tag) for tag in range(8)))

        assert [info.world_size for info in asyncio.run(awaited())] == [2] * 8
        comm.all_reduce_async(values(comm.rank, BIG))  # nobody holds the array or the handle
        if comm.rank == 0:
            pending = comm.barrier_async(tag=50)
            with pytest.raises(pccl.PendingOperations):
                comm.update_topology()
            with pytest.raises(pccl.WaitTimeout):
                pending.wait(timeout=0.01)
            comm.barrier(tag=51)
            assert pending.wait().world_size == 2
        else:
            comm.barrier(tag=51)
            comm.barrier(tag=50)
        info = comm.all_reduce_multiple_with_retry(arrays[:5], op=pccl.ReduceOp.MAX, tag=100, max_in_flight=2)
        assert info.world_size == 2
        line.send(kind="done")
        comm.barrier()


def test_asynchronous_operations_overlap_and_are_awaitable(tmp_path: Path) -> None:
    with Run(tmp_path) as run:
        peers = [run.peer(asynchronous) for _ in range(2)]
        for peer in peers:
            run.expect(peer, "done")
        assert [run.ended(peer) for peer in peers] == [0, 0]


def shared_by_threads(line: Line, address: str) -> None:
    with join(address, 2) as comm:
        failures: list[BaseException] = []

        def work(thread: int) -> None:
            try:
                for step in range(50):
                    x = values(comm.rank + thread + step, 64)
                    expected = values(thread + step, 64) + values(1 + thread + step, 64)
                    comm.all_reduce(x, tag=thread)
                    assert (x == expected).all()
            except BaseException as failure:
                failures.append(failure)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        line.send(kind="done")
        comm.barrier()


def test_threads_share_a_communicator(tmp_path: Path) -> None:
    with Run(tmp_path) as run:
        peers = [run.peer(shared_by_threads) for _ in range(2)]
        for peer in peers:
            run.expect(peer, "done")
        assert [run.ended(peer) for peer in peers] == [0, 0]


# ---------------------------------------------------------------------------------------------- loss


def losing(line: Line, address: str, peers: str) -> None:
    """All but the last rank start an operation, which then needs the last one; it never comes."""
    with join(address, int(peers)) as comm:
        comm.barrier()
        victim = comm.rank == int(peers) - 1
        mine = values(comm.rank, BIG)
        x = mine.copy()
        handle = None if victim else comm.all_reduce_async(x)
        line.send(kind="ready", victim=victim)
        if handle is None:
            line.receive()
            return
        with pytest.raises(pccl.PeerLost) as caught:
            handle.wait()
        assert (x == mine).all()
        line.send(kind="lost", text=str(caught.value))
        if comm.group_world_size == 1:
            for _ in range(2):
                with pytest.raises(pccl.TooFewPeers):
                    comm.all_reduce(x)
        else:
            info = comm.all_reduce(x)
            assert info.world_size == comm.group_world_size == int(peers) - 1
            assert (x == total(list(range(info.world_size)), BIG)).all()
            comm.barrier()
        line.send(kind="went on")


def roles(run: Run, peers: list[Child]) -> tuple[Child, list[Child]]:
    """Waits until all are ready: the victim, and the others."""
    victims = [run.expect(peer, "ready")["victim"] for peer in peers]
    assert victims.count(True) == 1
    victim = peers[victims.index(True)]
    return victim, [peer for peer in peers if peer is not victim]


@pytest.mark.parametrize("count", [2, 4])
def test_survivors_of_a_kill_go_on_exactly(tmp_path: Path, count: int) -> None:
    with Run(tmp_path) as run:
        victim, survivors = roles(run, [run.peer(losing, str(count)) for _ in range(count)])
        victim.kill()
        for peer in survivors:
            assert f"rank {count - 1}" in run.expect(peer, "lost")["text"]
            run.expect(peer, "went on")
        assert [run.ended(peer) for peer in survivors] == [0] * (count - 1)


def streaming(line: Line, address: str) -> None:
    """Reduces several arrays at a time, again after each loss, until only two are left."""
    with join(address, 3) as comm:
        line.send(kind="ready", victim=comm.rank == 1)
        world_size = 3
        while world_size == 3:
            arrays = [np.full(1 << 16, 1.0) for _ in range(8)]
            world_size = comm.all_reduce_multiple_with_retry(arrays).world_size
            assert all((array == array[0]).all() and array[0] in (2, 3) for array in arrays)
        assert world_size == 2
        line.send(kind="two")
        comm.barrier()


def test_many_at_once_are_retried_until_done(tmp_path: Path) -> None:
    with Run(tmp_path) as run:
        victim, survivors = roles(run, [run.peer(streaming) for _ in range(3)])
        victim.kill()
        for peer in survivors:
            run.expect(peer, "two")
        assert [run.ended(peer) for peer in survivors] == [0, 0]


def stopped(line: Line, address: str) -> None:
    """Rank 1 is stopped while the others wait for it, expelled, and joins again."""
    comm = join(address, 3)
    comm.barrier()
    victim = comm.rank == 1
    x = np.ones(1000, np.float32)
    handle = None if victim else comm.all_reduce_async(x)
    line.send(kind="ready", victim=victim)
    if handle is None:
        line.receive()
        for _ in range(2):
            with pytest.raises(pccl.Expelled):
                comm.all_reduce(x)
        line.send(kind="expelled")
        comm.close()
        comm = pccl.Communicator(address)
        comm.connect()
    else:
        with pytest.raises(pccl.PeerLost):
            handle.wait()
        assert comm.all_reduce(x).world_size == 2
        line.send(kind="lost")
        line.receive()
    while comm.group_world_size < 3:
        if comm.are_peers_pending():
            comm.update_topology()
    y = np.ones(1000, np.float32)
    assert comm.all_reduce(y).world_size == 3
    assert (y == 3).all()
    line.send(kind="three")
    comm.barrier()
    comm.close()


def test_a_stopped_peer_is_expelled_and_may_come_back(tmp_path: Path) -> None:
    with Run(tmp_path) as run:
        victim, others = roles(run, [run.peer(stopped) for _ in range(3)])
        victim.kill(signal.SIGSTOP)
        for peer in others:
            run.expect(peer, "lost")
        victim.kill(signal.SIGCONT)
        victim.tell(kind="go")
        run.expect(victim, "expelled")
        for peer in others:
            peer.tell(kind="go")
        for peer in (victim, *others):
            run.expect(peer, "three")
        assert [run.ended(peer) for peer in (victim, *others)] == [0, 0, 0]


# ---------------------------------------------------------------------------------------------- mismatch


def mismatched(line: Line, address: str) -> None:
    with join(address, 2) as comm:
        count = 12 if comm.rank == 0 else 1
        with pytest.raises(pccl.CollectiveMismatch) as caught:
            comm.all_reduce(np.ones(count, np.float32))
        line.send(kind="mismatch", text=str(caught.value))
        x = np.full(3, 5.0, np.float32)
        comm.all_reduce(x)
        assert (x == 10).all()
        line.send(kind="done")
        comm.barrier()


def test_a_mismatch_is_an_error_on_all_and_the_next_call_works(tmp_path: Path) -> None:
    with Run(tmp_path) as run:
        peers = [run.peer(mismatched) for _ in range(2)]
        for peer in peers:
            text = run.expect(peer, "mismatch")["text"]
            assert "12" in text
            assert "1" in text.replace("12", "")
            run.expect(peer, "done")
        assert [run.ended(peer) for peer in peers] == [0, 0]


def voting_apart(line: Line, address: str) -> None:
    with join(address, 2) as comm:
        with pytest.raises(pccl.CallMismatch) as caught:
            (comm.update_topology if comm.rank == 0 else comm.optimize_topology)()
        line.send(kind="mismatch", text=str(caught.value))
        comm.barrier()
        with pytest.raises(pccl.CallMismatch):
            (comm.update_topology if comm.rank == 0 else comm.barrier)()
        comm.barrier()
        line.send(kind="done")
        comm.barrier()


def test_votes_that_cannot_meet_fail_at_once(tmp_path: Path) -> None:
    with Run(tmp_path) as run:
        peers = [run.peer(voting_apart) for _ in range(2)]
        for peer in peers:
            assert "update_topology" in run.expect(peer, "mismatch")["text"]
            run.expect(peer, "done")
        assert [run.ended(peer) for peer in peers] == [0, 0]


# ---------------------------------------------------------------------------------------------- groups


def grouped(line: Line, address: str, group: str) -> None:
    with pccl.Communicator(address, int(group)) as comm:
        comm.connect()
        while comm.global_world_size < 4 or comm.group_world_size < 2:
            if comm.are_peers_pending():
                comm.update_topology()
        x = np.full(10, comm.rank + 10 * int(group), np.int32)
        comm.all_reduce(x)
        assert (x == 20 * int(group) + 1).all()
        attributes = [comm.get_attribute(attribute) for attribute in pccl.Attribute]
        line.send(kind="done", attributes=attributes)
        comm.update_topology()


def test_groups_reduce_apart_and_know_of_each_other(tmp_path: Path) -> None:
    with Run(tmp_path) as run:
        peers = [run.peer(grouped, group) for group in ("1", "1", "2", "2")]
        for peer in peers:
            assert run.expect(peer, "done")["attributes"] == [4, 2, 2, 2]
        assert [run.ended(peer) for peer in peers] == [0, 0, 0, 0]


def test_members_count_the_run_alike_whenever_they_look() -> None:
    """B54: what happens in another group shows behind the next joint call, on all members of this one at once."""
    with pccl.MasterNode("127.0.0.1:0") as node:
        node.run()
        one, other, going, left = comms = joined(node.address, [0, 0, 7, 7], 2)
        assert one.global_world_size == 4
        going.close()
        while left.group_world_size == 2:
            left.explain()
        votes = [partial(outcome, one.update_topology), partial(outcome, other.optimize_topology)]
        assert at_once(votes) == ["CallMismatch"] * 2, "the master answers, and had more to tell"
        assert other.global_world_size == 4
        assert at_once([comm.are_peers_pending for comm in (one, other, left)]) == [False] * 3
        assert [comm.global_world_size for comm in (one, other, left)] == [3] * 3
        close(comms)


# ---------------------------------------------------------------------------------------------- deferred commit


def deferred(line: Line, address: str) -> None:
    with join(address, 2, commit="deferred") as comm:
        arrays = [values(comm.rank, 100 + tag) for tag in range(5)]
        for tag, array in enumerate(arrays):
            comm.all_reduce(array, tag=tag)
        with pytest.raises(pccl.PendingOperations):
            comm.update_topology()
        assert comm.commit().world_size == 2
        assert all((array == total([0, 1], 100 + tag)).all() for tag, array in enumerate(arrays))
        comm.update_topology()
        line.send(kind="done")
        comm.barrier()
        comm.commit()


def test_a_deferred_step_is_settled_by_commit(tmp_path: Path) -> None:
    with Run(tmp_path) as run:
        peers = [run.peer(deferred) for _ in range(2)]
        for peer in peers:
            run.expect(peer, "done")
        assert [run.ended(peer) for peer in peers] == [0, 0]
