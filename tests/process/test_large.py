# SPDX-License-Identifier: MIT
"""Counts and sizes above 2**31: `pytest -m heavy`, one after the other, about 11 GB of memory."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pccl
from pccl.fleet import Line
from tests.process.harness import Run, join

pytestmark = [pytest.mark.process, pytest.mark.heavy]

Array = np.ndarray[Any, Any]
PEERS = 2
STRIDE = 1 << 22
BUSY_S = 1.0
PERIOD = 61
MEMORY_TIMES = 2.2
"""Of an operation's payload, input and output together, that a process may hold at most; small things come on top."""
SMALL_BYTES = 200 << 20

CASES = [
    (collective, dtype, count)
    for dtype, count in (("int8", 2**31 + 8), ("int8", 2**31 + 7), ("float32", 590_558_004))
    for collective in ("all_reduce", "broadcast", "all_to_all")
    if collective != "all_to_all" or count % PEERS == 0
]
"""2**31 elements and some, and 2.2 GiB."""


def strides(count: int, line: Line) -> Iterator[tuple[int, int]]:
    """The whole, piece by piece, with a sign of life for each."""
    for first in range(0, count, STRIDE):
        line.send(kind="busy")
        yield first, min(first + STRIDE, count)


def pattern(first: int, end: int, rank: int, dtype: str) -> Array:
    """What a rank has at these places: small numbers, in another order than the other rank's."""
    return ((np.arange(first, end, dtype=np.int64) * (rank + 1)) % PERIOD).astype(dtype)


def expected(collective: str, first: int, end: int, rank: int, count: int, dtype: str) -> Array:
    if collective == "all_reduce":
        return pattern(first, end, 0, dtype) + pattern(first, end, 1, dtype)
    if collective == "broadcast":
        return pattern(first, end, 1, dtype)
    block = count // PEERS  # place i holds what the rank of its block had for us
    places = np.arange(first, end, dtype=np.int64)
    source, mine = places // block, places % block + rank * block
    return ((mine * (source + 1)) % PERIOD).astype(dtype)


def moving(line: Line, address: str, collective: str, dtype: str, number: str, shm: str) -> None:
    """One collective in place, looked at from the first to the last element."""
    count = int(number)
    with join(address, PEERS, shm=shm) as comm:
        x = np.empty(count, dtype)
        for first, end in strides(count, line):
            x[first:end] = pattern(first, end, comm.rank, dtype)
        call = getattr(comm, f"{collective}_async")
        handle = call(x, 1) if collective == "broadcast" else call(x)
        while not handle.done():
            line.send(kind="busy")
            with contextlib.suppress(pccl.WaitTimeout):
                handle.wait(BUSY_S)
        info = handle.wait()
        wrong = [
            first
            for first, end in strides(count, line)
            if not np.array_equal(x[first:end], expected(collective, first, end, comm.rank, count, dtype))
        ]
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        line.send(kind="moved", wrong=wrong, peak=peak, sent=info.tx_bytes, received=info.rx_bytes)
        comm.barrier()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("shm", ["auto", "off"])
@pytest.mark.parametrize(("collective", "dtype", "count"), CASES)
def test_more_than_two_to_the_thirty_first(tmp_path: Path, collective: str, dtype: str, count: int, shm: str) -> None:
    """B15: exact everywhere, no size is negative, and the memory is no more than it has to be."""
    payload = count * np.dtype(dtype).itemsize
    if os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES") < PEERS * MEMORY_TIMES * payload:
        pytest.skip("too little free memory")
    with Run(tmp_path) as run:
        peers = [run.peer(moving, collective, dtype, str(count), shm) for _ in range(PEERS)]
        for peer in peers:
            moved = run.next_of(peer, "moved")
            assert moved["wrong"] == []
            assert moved["sent"] + moved["received"] >= payload // 2
            assert moved["peak"] < MEMORY_TIMES * payload + SMALL_BYTES
        assert [run.ended(peer) for peer in peers] == [0] * PEERS
