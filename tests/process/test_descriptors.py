# SPDX-License-Identifier: MIT
"""A process that has almost no file descriptors left: an error that says so at once, never an abort or a wait."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import pccl
from pccl.fleet import Line
from pccl.sockets import DESCRIPTORS
from tests.process.harness import LIMIT_S, Run, gather, join

pytestmark = [pytest.mark.process, pytest.mark.alone]


@contextlib.contextmanager
def spare(count: int) -> Iterator[None]:
    """Within the block this process can open `count` more descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)  # those below it are all in use
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def starved(line: Line, address: str) -> None:
    """Connects with ever more descriptors to spare. Nothing is waited for: the time limits are the default ones."""
    comm = pccl.Communicator(address)
    for count in range(DESCRIPTORS):
        try:
            with spare(count):
                comm.connect()
        except pccl.SystemFailure as failure:
            line.send(kind="refused", text=str(failure))
    with spare(DESCRIPTORS):
        comm.connect()
        gather(comm, 2)
        x = np.ones(1_000_000, np.float32)
        comm.all_reduce(x)
        line.send(kind="summed", right=bool((x == 2).all()), transport=list(comm.transports.values()))
        comm.close()


def well_off(line: Line, address: str) -> None:
    """The other peer of that sum."""
    with pccl.Communicator(address) as comm:
        comm.connect()
        line.send(kind="connected")
        gather(comm, 2)
        x = np.ones(1_000_000, np.float32)
        comm.all_reduce(x)
        line.send(kind="summed", right=bool((x == 2).all()), transport=list(comm.transports.values()))


CROWD = 12
SIZES = (12, 2, 3, 4, 6, 3, 12)
"""Members of each group, in the rounds of one test: twenty groups of several sizes between two of all."""

LIMIT = 256
PER_LINK = 2
"""Descriptors that a link may take: its connection, and for a moment the memory that it is to share."""


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def crowded(line: Line, address: str) -> None:
    """One of many with few descriptors each, in another group of another size each time it is told to."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, LIMIT))
    while (command := line.receive()) is not None and command["kind"] == "meet":
        size = command["size"]
        with pccl.Communicator(address, command["group"]) as comm:
            comm.connect()
            while comm.global_world_size < CROWD:
                if comm.are_peers_pending():
                    comm.update_topology()
            assert (comm.group_world_size, comm.num_groups) == (size, CROWD // size)
            before = descriptors()
            x = np.full(size, 1.0 + comm.rank)
            comm.all_to_all(x)
            assert x.tolist() == [1.0 + rank for rank in range(size)]
            line.send(kind="met", before=before, after=descriptors())
            comm.barrier()
        line.send(kind="left", after=descriptors())


@pytest.mark.timeout(300)
def test_descriptors_grow_with_the_members_of_the_group(tmp_path: Path) -> None:
    """B54: twelve peers of one host with 256 descriptors each need some for each member of their group, and none for
    other groups, of which there may be many; all come back. Who is done in one group goes while others are still on
    their way to meet: they all count the run alike."""
    with Run(tmp_path) as run:
        peers = [run.peer(crowded) for _ in range(CROWD)]
        bases, left = set(), set()
        for size in SIZES:
            for number, peer in enumerate(peers):
                peer.tell(kind="meet", group=number // size, size=size)
            for peer in peers:
                met = run.expect(peer, "met")
                bases.add(met["before"])
                assert met["after"] - met["before"] <= PER_LINK * (size - 1)
            left |= {run.expect(peer, "left")["after"] for peer in peers}
        assert max(bases) - min(bases) <= PER_LINK * CROWD, "whatever links were made in the meantime"
        assert max(bases) + PER_LINK * CROWD < LIMIT / 2
        assert max(left) - min(left) <= 1
        for peer in peers:
            peer.tell(kind="stop")
        assert [run.ended(peer) for peer in peers] == [0] * CROWD


SPAN_S = 2.0
SHARE = 0.05
"""Of the time, in which a master without descriptors may use the processor; it takes half of it where it spins."""


def starving_master(line: Line, address: str) -> None:
    """A running master that has no descriptor left, while others dial it; then it has some again."""
    del address
    with pccl.MasterNode("127.0.0.1:0") as node:
        node.run()
        line.send(kind="address", address=node.address)
        line.receive()
        with spare(0):
            line.send(kind="starved")
            line.receive()
            begun, before = time.monotonic(), time.process_time()
            select.select([], [], [], SPAN_S)
            line.send(kind="used", share=(time.process_time() - before) / (time.monotonic() - begun))
        line.receive()


def test_a_running_master_without_descriptors_turns_away_who_comes_and_does_not_spin(tmp_path: Path) -> None:
    with Run(tmp_path, master=False) as run, contextlib.ExitStack() as stack:
        poor = run.peer(starving_master, address="127.0.0.1:1")
        where = run.expect(poor, "address")["address"]
        host, _, port = where.rpartition(":")
        poor.tell(kind="go")
        run.expect(poor, "starved")
        dialled = [socket.create_connection((host, int(port)), LIMIT_S) for _ in range(20)]
        for connection in map(stack.enter_context, dialled):
            while connection.recv(100):
                pass
        poor.tell(kind="go")
        assert run.expect(poor, "used")["share"] < SHARE
        other = run.peer(connecting, address=where)
        run.expect(other, "connected")
        poor.tell(kind="go")
        assert [run.ended(it) for it in (other, poor)] == [0, 0]


def connecting(line: Line, address: str) -> None:
    with join(address, 1, min_world_size=1):
        line.send(kind="connected")


def starved_masters(line: Line, address: str) -> None:
    """Makes masters with ever more descriptors to spare, the last of which runs."""
    del address
    pccl.MasterNode("127.0.0.1:0").destroy()  # imports what it needs
    for count in range(DESCRIPTORS):
        try:
            with spare(count):
                pccl.MasterNode("127.0.0.1:0")
        except pccl.SystemFailure as failure:
            line.send(kind="refused", text=str(failure))
    with spare(DESCRIPTORS), pccl.MasterNode("127.0.0.1:0") as node:
        node.run()
        line.send(kind="runs")


def test_a_peer_with_few_descriptors_is_refused_at_once(tmp_path: Path) -> None:
    with Run(tmp_path) as run:
        rich = run.peer(well_off)
        run.expect(rich, "connected")
        poor = run.peer(starved)
        for _ in range(DESCRIPTORS):
            assert "Too many open files" in run.expect(poor, "refused")["text"]
        for peer in (rich, poor):
            summed = run.expect(peer, "summed")
            assert (summed["right"], summed["transport"]) == (True, ["shm"])
        assert [run.ended(peer) for peer in (rich, poor)] == [0, 0]


def test_a_master_with_few_descriptors_is_refused_at_once(tmp_path: Path) -> None:
    with Run(tmp_path, master=False) as run:
        poor = run.peer(starved_masters, address="127.0.0.1:1")
        for _ in range(DESCRIPTORS):
            assert "Too many open files" in run.expect(poor, "refused")["text"]
        run.expect(poor, "runs")
        assert run.ended(poor) == 0
