# SPDX-License-Identifier: MIT
"""Leaving: a process keeps its own exit code, quickly, whatever is open; the others see a departure, not a timeout."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest

import pccl
from pccl.fleet import Line
from tests.process.harness import PATIENCE, Run, Stopwatch, join

pytestmark = [pytest.mark.process, pytest.mark.alone]

QUICKLY_S = 5.0 * PATIENCE


def leaving(line: Line, address: str, how: str) -> None:
    """One of two ends `how` with operations in flight and without close; the other waits in an operation."""
    comm = join(address, 2)
    comm.barrier()
    leader = comm.rank == 0
    waiting = None if leader else comm.all_reduce_async(np.ones(10), tag=77)  # before anyone can leave
    line.send(kind="ready", leader=leader)
    if waiting is not None:
        try:
            waiting.wait()
        except pccl.PeerLost as loss:
            line.send(kind="lost", text=str(loss))
        comm.close()
        return
    line.receive()
    handles = [comm.all_reduce_async(np.ones(1000 + tag), tag=tag) for tag in range(5)]
    assert not any(handle.done() for handle in handles)
    if how == "exit":
        sys.exit(3)
    if how == "raise":
        raise RuntimeError("nobody catches this")
    if how == "drop":
        del handles
        del comm
        gc.collect()
        line.receive()


@pytest.mark.parametrize(("how", "code"), [("return", 0), ("exit", 3), ("raise", 1), ("drop", 0)])
def test_a_process_ends_with_its_own_code_and_the_others_hear_of_it(tmp_path: Path, how: str, code: int) -> None:
    """B65."""
    with Run(tmp_path) as run:
        pair = [run.peer(leaving, how) for _ in range(2)]
        leaders = [run.expect(peer, "ready")["leader"] for peer in pair]
        leader, other = pair[leaders.index(True)], pair[leaders.index(False)]
        with Stopwatch() as watch:
            leader.tell(kind="go")
            assert "left" in run.expect(other, "lost")["text"]
            if how == "drop":
                leader.tell(kind="go")
            if how == "raise":
                run.expect(leader, "failed")
            assert run.ended(leader) == code
            assert run.ended(other) == 0
            assert watch.seconds < QUICKLY_S


def tell_threads() -> None:
    for thread in threading.enumerate():
        if thread.name.startswith("pccl") and thread.name != "pccl-line":  # that one is the test's
            print(f"{thread.name} still runs", file=sys.stderr)


def hosting(line: Line, address: str) -> None:
    """A master and a peer in one process, which ends without a word to either. A loop that runs on when the interpreter
    is gone takes the process down with it."""
    weakref.finalize(hosting, tell_threads)  # the first one made is the last one called
    node = pccl.MasterNode("127.0.0.1:0")
    node.run()
    comm = pccl.Communicator(node.address)
    comm.connect()
    sys.exit(3)


def test_a_master_in_the_process_does_not_hold_it_up(tmp_path: Path) -> None:
    """B65."""
    with Run(tmp_path, master=False) as run:
        peer = run.peer(hosting)
        assert run.ended(peer) == 3
        assert run.log(peer) == ""


# ---------------------------------------------------------------------------------------------- close


@pytest.fixture
def alone() -> pccl.Communicator:
    """A communicator that is a group by itself."""
    with pccl.MasterNode("127.0.0.1:0") as node:
        node.run()
        comm = pccl.Communicator(node.address, min_world_size=1)
        comm.connect()
        yield comm
        comm.close()


def test_everything_raises_after_close(alone: pccl.Communicator) -> None:
    x = np.ones(4, np.float32)
    ended = alone.all_reduce_async(x)
    assert ended.wait().world_size == 1
    alone.close()
    alone.close()
    assert ended.wait().world_size == 1
    for call in (
        alone.update_topology,
        alone.connect,
        alone.explain,
        alone.barrier,
        lambda: alone.rank,
        lambda: alone.all_reduce(x),
        lambda: alone.all_reduce_async(x),
    ):
        with pytest.raises(pccl.Closed):
            call()


def waiting(line: Line, address: str) -> None:
    """Rank 0 waits in three threads for rank 1, which never comes, until it closes the communicator."""
    comm = join(address, 2)
    if comm.rank == 1:
        line.send(kind="ready", leader=False)
        line.receive()
        return
    handle = comm.barrier_async(tag=1)
    outcomes: list[str] = []

    def note(call: object) -> None:
        try:
            call()  # type: ignore[operator]
        except pccl.PCCLError as failure:
            outcomes.append(type(failure).__name__)

    calls = [lambda: comm.barrier(tag=2), handle.wait, lambda: comm.all_reduce(np.ones(3), tag=3)]
    threads = [threading.Thread(target=note, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    line.send(kind="ready", leader=True)
    line.receive()
    comm.close()
    for thread in threads:
        thread.join()
    with pytest.raises(pccl.Closed):
        handle.wait()
    line.send(kind="outcomes", outcomes=outcomes)


def test_close_ends_the_waits_of_other_threads(tmp_path: Path) -> None:
    with Run(tmp_path) as run:
        pair = [run.peer(waiting) for _ in range(2)]
        leaders = [run.expect(peer, "ready")["leader"] for peer in pair]
        leader, other = pair[leaders.index(True)], pair[leaders.index(False)]
        leader.tell(kind="go")
        assert run.expect(leader, "outcomes")["outcomes"] == ["Closed"] * 3
        other.tell(kind="go")
        assert [run.ended(peer) for peer in pair] == [0, 0]


def test_a_handle_keeps_its_communicator_open(alone: pccl.Communicator) -> None:
    with pccl.MasterNode("127.0.0.1:0") as node:
        node.run()
        comm = pccl.Communicator(node.address, min_world_size=1)
        comm.connect()
        handle = comm.all_reduce_async(np.ones(4))
        gone = weakref.ref(comm)
        del comm
        gc.collect()
        assert gone() is not None
        assert handle.wait().world_size == 1
        del handle
        gc.collect()
        assert gone() is None
