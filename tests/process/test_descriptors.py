# SPDX-License-Identifier: MIT
"""A process that has almost no file descriptors left: an error that says so at once, never an abort or a wait."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import pccl
from pccl.fleet import Line
from pccl.sockets import DESCRIPTORS
from tests.process.harness import Run, gather

pytestmark = pytest.mark.process


@contextmanager
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
