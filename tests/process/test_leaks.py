# SPDX-License-Identifier: MIT
"""Opened and closed again and again: descriptors and threads return to where they were."""

from __future__ import annotations

import gc
import time
from pathlib import Path

import numpy as np
import pytest

import pccl
from pccl.fleet import Line
from pccl.stress.usage import release, usage
from tests.process.faults import long
from tests.process.harness import PATIENCE, Run, join

pytestmark = [pytest.mark.process, pytest.mark.alone]


LIMIT_S = 20.0

Counts = tuple[int, int]


def counts() -> Counts:
    """Descriptors and threads of this process, those of libraries included."""
    now = usage()
    return now.fds, now.threads


def back_to(before: Counts) -> bool:
    """Whether the counts return to `before`. A thread that was joined takes the kernel a moment to forget."""
    deadline = time.monotonic() + LIMIT_S
    while any(now > then for now, then in zip(counts(), before, strict=True)):
        gc.collect()
        if time.monotonic() > deadline:
            return False
    return True


def cycle(address: str, *, close: bool) -> None:
    comm = pccl.Communicator(address, min_world_size=1)
    comm.connect()
    comm.all_reduce(np.ones(4))
    if close:
        comm.close()


MEMORY_BYTES = int((20 << 20) * PATIENCE)


@pytest.mark.parametrize("close", [True, False])
@pytest.mark.parametrize("count", [50, *long(500)])
def test_communicators_that_were_closed_or_dropped_leave_nothing(count: int, close: bool) -> None:
    """B73: what is only dropped is closed by the garbage collector. `stress/leaks.py` does a thousand, and weighs."""
    with pccl.MasterNode("127.0.0.1:0") as node:
        node.run()
        cycle(node.address, close=True)
        gc.collect()
        before, memory = counts(), resident()
        for _ in range(count):
            cycle(node.address, close=close)
        gc.collect()
        assert back_to(before), f"{counts()} descriptors and threads instead of {before}"
        assert resident() - memory <= MEMORY_BYTES


def test_a_refused_connect_leaves_nothing() -> None:
    comm = pccl.Communicator("127.0.0.1:1", connect_timeout=0.05)
    with pytest.raises(pccl.MasterLost):
        comm.connect()
    before = counts()
    for _ in range(10):
        with pytest.raises(pccl.MasterLost, match=r"127\.0\.0\.1:1"):
            comm.connect()
    assert back_to(before)


def again_and_again(line: Line, address: str, lives: str) -> None:
    """Joins, reduces, leaves, at once again; the other peer does the same at its own pace."""
    before = None
    for _ in range(int(lives)):
        with join(address, 2) as comm:
            x = np.full(100, comm.rank + 1.0)
            comm.all_reduce(x)
            assert (x == 3).all()
        before = before or counts()
    line.send(kind="lived", leaks=not back_to(before or counts()))


def test_two_peers_meet_again_in_many_lives(tmp_path: Path) -> None:
    with Run(tmp_path) as run:
        pair = [run.peer(again_and_again, "20") for _ in range(2)]
        for peer in pair:
            assert run.expect(peer, "lived")["leaks"] is False
        assert [run.ended(peer) for peer in pair] == [0, 0]


def varying(line: Line, address: str) -> None:
    """Many operations, all of different sizes; says how much memory each cost."""
    comm = join(address, 2)
    base = 0
    for step in range(3500):
        size = 30_000 - 2 * step
        x = np.ones(size, np.float32)
        comm.all_reduce(x)
        if step % 3 == 0:
            comm.all_gather(x, np.empty(2 * size, np.float32))
        elif step % 3 == 1:
            comm.all_to_all(x)
        else:
            comm.reduce_scatter(x, np.empty(size // 2, np.float32))
        if step == 500:
            base = resident()
    line.send(kind="grown", bytes=resident() - base)
    comm.barrier()
    comm.close()


def resident() -> int:
    """Bytes of this process in memory."""
    release()
    return usage().rss_bytes


def test_operations_of_ever_different_sizes_do_not_add_up(tmp_path: Path) -> None:
    """B74: less than a kilobyte each."""
    with Run(tmp_path) as run:
        pair = [run.peer(varying) for _ in range(2)]
        for peer in pair:
            assert run.expect(peer, "grown")["bytes"] < 3000 * 1024
        assert [run.ended(peer) for peer in pair] == [0, 0]
