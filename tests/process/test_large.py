# SPDX-License-Identifier: MIT
"""Counts and sizes above 2**31: `pytest -m heavy`, one after the other, about 11 GB of memory."""

from __future__ import annotations

import contextlib
import functools
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import pccl
from pccl.fleet import Line
from tests.process.harness import Run, join

pytestmark = [pytest.mark.process, pytest.mark.heavy]

Array = np.ndarray[Any, Any]
PEERS = 2
STRIDE = 1 << 22
PERIOD, PLACES = 31, 29
BUSY_S = 1.0
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


def strides(first: int, end: int) -> Iterator[tuple[int, int]]:
    """From one index to another, in pieces that end at multiples of STRIDE."""
    while first < end:
        after = min((first // STRIDE + 1) * STRIDE, end)
        yield first, after
        first = after


@functools.cache
def row(rank: int, dtype: str) -> Array:
    """The first stride."""
    return (np.arange(STRIDE) * (rank + 1) % PERIOD).astype(dtype)


def pattern(first: int, end: int, rank: int, dtype: str) -> Array:
    """What a rank has there, within a stride: small enough for a sum in int8, other for the other rank, and in the
    strides nearby."""
    begin = first // STRIDE * STRIDE
    return row(rank, dtype)[first - begin : end - begin] + row(0, dtype).dtype.type(first // STRIDE % PLACES)


def parts(collective: str, rank: int, count: int) -> list[tuple[int, int, int, tuple[int, ...]]]:
    """What has to come out: from one place on what is, or adds up, from one index to another, of some ranks."""
    if collective == "all_to_all":
        block = count // PEERS
        return [(source * block, rank * block, rank * block + block, (source,)) for source in range(PEERS)]
    return [(0, 0, count, (1,) if collective == "broadcast" else (0, 1))]


def wrong(x: Array, collective: str, rank: int, line: Line) -> list[int]:
    """Where pieces begin that are not what they should be."""
    found = []
    for place, begin, until, ranks in parts(collective, rank, len(x)):
        for first, end in strides(begin, until):
            line.send(kind="busy")
            right = sum(pattern(first, end, source, x.dtype.name) for source in ranks)
            if not np.array_equal(x[place + first - begin : place + end - begin], right):
                found.append(place + first - begin)
    return found


def moving(line: Line, address: str, collective: str, dtype: str, number: str, shm: Literal["auto", "off"]) -> None:
    """One collective in place, looked at from the first to the last element."""
    count = int(number)
    with join(address, PEERS, shm=shm) as comm:
        x = np.empty(count, dtype)
        for first, end in strides(0, count):
            line.send(kind="busy")
            x[first:end] = pattern(first, end, comm.rank, dtype)
        call = getattr(comm, f"{collective}_async")
        handle = call(x, 1) if collective == "broadcast" else call(x)
        while not handle.done():
            line.send(kind="busy")
            with contextlib.suppress(pccl.WaitTimeout):
                handle.wait(BUSY_S)
        info = handle.wait()
        faults = wrong(x, collective, comm.rank, line)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        line.send(kind="moved", wrong=faults, peak=peak, sent=info.tx_bytes, received=info.rx_bytes)
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
