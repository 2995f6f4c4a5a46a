# SPDX-License-Identifier: MIT
"""Who waits, or has nothing to do, uses no processor; who shares one with others lets them have it."""

from __future__ import annotations

import os
import select
import time
from pathlib import Path

import numpy as np
import pytest

import pccl
from pccl.fleet import Line
from tests.process.harness import Run, join

pytestmark = [pytest.mark.process, pytest.mark.alone]

SPAN_S = 5.0
SHARE = 0.05


def waiting(line: Line, address: str) -> None:
    """Rank 0 waits in a barrier, rank 1 in nothing of pccl; both say what that cost."""
    comm = join(address, 2)
    comm.barrier(tag=1)
    before, begun = time.process_time(), time.monotonic()
    if comm.rank == 0:
        handle = comm.barrier_async(tag=2)
        with pytest.raises(pccl.WaitTimeout):
            handle.wait(SPAN_S)
    else:
        select.select([], [], [], SPAN_S)
    used = time.process_time() - before
    line.send(kind="used", share=used / (time.monotonic() - begun))
    if comm.rank == 1:
        comm.barrier(tag=2)
    else:
        handle.wait()
    comm.close()


def test_a_blocked_and_an_idle_peer_use_no_processor(tmp_path: Path) -> None:
    """B77."""
    with Run(tmp_path) as run:
        pair = [run.peer(waiting) for _ in range(2)]
        for peer in pair:
            assert run.expect(peer, "used")["share"] < SHARE
        assert [run.ended(peer) for peer in pair] == [0, 0]


def crowded(line: Line, address: str) -> None:
    """One of eight on one core."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    comm = join(address, 8)
    comm.barrier()
    begun = time.process_time()
    for _ in range(100):
        x = np.full(16, comm.rank, np.int64)
        comm.all_reduce(x)
        assert (x == 28).all()
    line.send(kind="done", seconds=time.process_time() - begun)
    comm.barrier()
    comm.close()


def test_eight_peers_on_one_core_take_turns(tmp_path: Path) -> None:
    """B77: processor time, all peers together: what the core would take with nothing else on it."""
    with Run(tmp_path) as run:
        peers = [run.peer(crowded) for _ in range(8)]
        seconds = [run.expect(peer, "done")["seconds"] for peer in peers]
        assert sum(seconds) < SPAN_S, seconds
        assert [run.ended(peer) for peer in peers] == [0] * 8
