# SPDX-License-Identifier: MIT
"""Peers of this host whose links must go over its RDMA devices, in turn: `python -m tests.rdma.collectives rxe0 rxe1`.

All collectives give what they should, bit for bit; a peer that is killed in the middle of one is noticed, and the
others go on; nothing is left on the devices. How fast large sums and small messages are is told, not judged: behind an
emulated processor that says little.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from multiprocessing.connection import Connection

import numpy as np

import pccl

PEERS = 3
LARGE = 1 << 17
PATIENCE_S = 900.0


def check_all(comm: pccl.Communicator) -> None:
    size = comm.world_size
    for count in (1, 1000, LARGE):
        x = np.arange(count, dtype=np.float32) % 1000 + comm.rank
        comm.all_reduce(x)
        assert np.array_equal(x, (np.arange(count, dtype=np.float32) % 1000) * size + sum(range(size))), count
        y = np.full(count, comm.rank, np.int64)
        comm.broadcast(y, size - 1)
        assert (y == size - 1).all()
        parts = np.empty((size, count), np.int32)
        comm.all_gather(np.full(count, comm.rank, np.int32), parts)
        assert all((parts[rank] == rank).all() for rank in range(size))
        out = np.empty((size, count), np.int32)
        comm.all_to_all(np.full((size, count), comm.rank, np.int32), out)
        assert all((out[rank] == rank).all() for rank in range(size))
        mine = np.empty(count, np.float64)
        comm.reduce_scatter(np.full((size, count), 1.5), mine)
        assert (mine == 1.5 * size).all()
    comm.barrier()
    assert set(comm.transports.values()) == {"rdma"}, comm.transports


def measure(comm: pccl.Communicator) -> str:
    x, small = np.ones(8 * LARGE, np.float32), np.ones(2, np.float32)
    begun = time.monotonic()
    for _ in range(4):
        comm.all_reduce(x)
    large_s = (time.monotonic() - begun) / 4
    begun = time.monotonic()
    for _ in range(50):
        comm.all_reduce(small)
    small_s = (time.monotonic() - begun) / 50
    rate = x.nbytes * 2 * (comm.world_size - 1) / comm.world_size / large_s
    return f"{rate / 1e6:.1f} MB/s out of each peer in sums of 4 MiB, {small_s * 1e6:.0f} us for sums of 8 bytes"


def peer(master: str, number: int, device: str, pipe: Connection) -> None:
    comm = pccl.Communicator(master, min_world_size=1, shm="off", rdma="require", rdma_device=device, place=number)
    comm.connect()
    print(f"peer {number} is in", flush=True)
    check_all(comm)
    pipe.send(measure(comm))
    pipe.recv()
    x = np.ones(32 * LARGE, np.float32)
    pipe.send("in flight")
    try:
        comm.all_reduce(x)
    except pccl.PeerLost:
        assert (x == 1).all(), "an operation that fails leaves its input as it was"
    check_all(comm)
    pipe.send("went on")
    comm.close()


def resources() -> str:
    shown = subprocess.run(["rdma", "resource", "show"], check=True, capture_output=True, text=True)
    return shown.stdout


def told(pipe: Connection) -> str:
    assert pipe.poll(PATIENCE_S), "a peer says nothing"
    return str(pipe.recv())


def main(devices: list[str]) -> None:
    before = resources()
    context = multiprocessing.get_context("spawn")
    master = pccl.MasterNode("127.0.0.1:0", founders=PEERS)
    master.run()
    try:
        pipes, children = [], []
        for number in range(PEERS):
            here, there = context.Pipe()
            device = devices[number % len(devices)]
            child = context.Process(target=peer, args=(master.address, number, device, there), daemon=True)
            child.start()
            there.close()
            pipes.append(here)
            children.append(child)
        speeds = [told(pipe) for pipe in pipes]
        print("collectives over rdma, bit for bit:", speeds[0], flush=True)
        for pipe in pipes:
            pipe.send("go")
        for pipe in pipes:
            assert told(pipe) == "in flight"
        assert children[-1].pid is not None
        os.kill(children[-1].pid, signal.SIGKILL)
        for pipe in pipes[:-1]:
            assert told(pipe) == "went on"
        print("a peer was killed in the middle, the others went on", flush=True)
        for child in children:
            child.join(PATIENCE_S)
    finally:
        master.interrupt()
    assert [child.exitcode for child in children] == [0] * (PEERS - 1) + [-signal.SIGKILL]
    assert resources() == before, resources()
    print("nothing is left on the devices", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
