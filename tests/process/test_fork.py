# SPDX-License-Identifier: MIT
"""A fork after connecting: the child's copy is dead and harmless, the parent goes on undisturbed."""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pccl
from pccl.fleet import Line
from tests.process.harness import Run, join

pytestmark = pytest.mark.process


def square(number: int) -> int:
    return number * number


def attempt(comm: pccl.Communicator, handle: pccl.Handle) -> str:
    """What a forked child sees when it uses what it inherited; "" when each use raises Closed."""
    for name, call in {
        "all_reduce": lambda: comm.all_reduce(np.ones(3)),
        "all_reduce_async": lambda: comm.all_reduce_async(np.ones(3)),
        "update_topology": comm.update_topology,
        "wait": handle.wait,
    }.items():
        try:
            call()
        except pccl.Closed:
            continue
        except BaseException as failure:
            return f"{name}: {failure!r}"
        return f"{name} raised nothing"
    comm.close()
    return ""


def forking(line: Line, address: str, host: str) -> None:
    comm = join(f"{host}:{address.rpartition(':')[2]}", 2)
    comm.barrier()
    pending = comm.barrier_async(tag=5) if comm.rank == 0 else None
    epoch = comm.epoch
    if pending is not None:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(write, (attempt(comm, pending) or "fine").encode())
            sys.exit(7)  # the interpreter ends normally, with everything inherited
        os.close(write)
        with os.fdopen(read) as answer:
            line.send(kind="child", answer=answer.read(), status=os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        with multiprocessing.get_context("fork").Pool(2) as pool:
            assert pool.map(square, range(10)) == [square(number) for number in range(10)]
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        comm.barrier(tag=6)
        pending.wait()
    else:
        comm.barrier(tag=6)
        comm.barrier(tag=5)
    for _ in range(100):
        x = np.ones(1000, np.float32)
        assert comm.all_reduce(x).world_size == 2
        assert (x == 2).all()
    assert comm.epoch == epoch
    line.send(kind="done")
    comm.barrier()
    comm.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_fork_disturbs_nobody(tmp_path: Path, host: str) -> None:
    """B64. A name is resolved in a thread, of which the child must not know."""
    with Run(tmp_path) as run:
        pair = [run.peer(forking, host) for _ in range(2)]
        for peer in pair:
            message = run.next(peer)
            if message["kind"] == "child":
                assert message == {"kind": "child", "answer": "fine", "status": 7}
                message = run.next(peer)
            assert message == {"kind": "done"}, run.log(peer)
        assert [run.ended(peer) for peer in pair] == [0, 0]
        assert [run.log(peer) for peer in pair] == ["", ""]


class Squares:
    """A data set whose workers are forks."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> int:
        return square(index)


def loading(line: Line, address: str) -> None:
    """Reduces while the workers of a DataLoader come and go."""
    torch = importlib.import_module("torch.utils.data")
    comm = join(address, 2)
    for _ in range(3):
        loader = torch.DataLoader(Squares(), batch_size=8, num_workers=2, multiprocessing_context="fork")
        for batch in loader:
            x = batch.double()
            assert comm.all_reduce(x).world_size == 2
            assert (x == 2 * batch).all()
    comm.barrier()
    comm.close()


def test_workers_of_a_data_loader_disturb_nobody(tmp_path: Path) -> None:
    """B64."""
    pytest.importorskip("torch")
    with Run(tmp_path) as run:
        pair = [run.peer(loading) for _ in range(2)]
        assert [run.ended(peer) for peer in pair] == [0, 0]


def child_with_its_own(line: Line, address: str) -> None:
    """Forks a child that makes a communicator of its own, in a group of its own, while the parent's works."""
    with pccl.Communicator(address, min_world_size=1) as comm:
        comm.connect()
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            with pccl.Communicator(address, 1, min_world_size=1) as own:
                own.connect()
                os.write(write, bytes([own.all_reduce(np.ones(10)).world_size, own.num_groups]))
            os._exit(0)
        while comm.global_world_size < 2:
            if comm.are_peers_pending():
                comm.update_topology()
        assert os.read(read, 2) == bytes([1, 2])
        assert os.waitpid(child, 0)[1] == 0
        assert comm.all_reduce(np.ones(10)).world_size == 1
        line.send(kind="done")


def test_a_child_may_have_a_communicator_of_its_own(tmp_path: Path) -> None:
    """B64."""
    with Run(tmp_path) as run:
        peer = run.peer(child_with_its_own)
        run.expect(peer, "done")
        assert run.ended(peer) == 0


def test_what_is_executed_inherits_no_descriptor() -> None:
    """B64: also where a program is started without closing them."""
    with pccl.MasterNode("127.0.0.1:0") as node:
        before = set(os.listdir("/proc/self/fd"))
        node.run()
        with pccl.Communicator(node.address, min_world_size=1) as comm:
            comm.connect()
            for name in set(os.listdir("/proc/self/fd")) - before:
                with contextlib.suppress(OSError):  # that of the listing itself
                    assert not os.get_inheritable(int(name))


def dying_parent(line: Line, address: str) -> None:
    """Rank 0 has a child that outlives it."""
    comm = join(address, 2)
    comm.barrier()
    if comm.rank == 1:
        line.send(kind="ready", rank=1)
        try:
            while True:
                comm.all_reduce(np.ones(10))
        except (pccl.PeerLost, pccl.TooFewPeers):
            line.send(kind="lost")
        return
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, b"x")
        line.receive()
        os._exit(0)
    os.read(read, 1)
    line.send(kind="ready", rank=0)
    while True:
        comm.all_reduce(np.ones(10))


def test_a_child_does_not_hide_its_parents_death(tmp_path: Path) -> None:
    with Run(tmp_path) as run:
        pair = [run.peer(dying_parent) for _ in range(2)]
        ranks = [run.expect(peer, "ready")["rank"] for peer in pair]
        parent, other = pair[ranks.index(0)], pair[ranks.index(1)]
        killed_ns = parent.kill()
        run.expect(other, "lost")
        assert killed_ns > 0
        assert run.ended(other) == 0
