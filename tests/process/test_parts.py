# SPDX-License-Identifier: MIT
"""Parts of any length between members, and what else was found wrong elsewhere in collectives that move or combine
parts: each element says where it comes from and where it belongs."""

from __future__ import annotations

import gc
import random
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import pccl
from pccl import ReduceOp
from pccl.stress.relay import Relay
from tests.process.faults import long
from tests.process.local import Local, at_once, close, joined

pytestmark = pytest.mark.process

Array = np.ndarray[Any, Any]
Counts = list[list[int]]
"""Elements from one rank to another."""


def addressed(source: int, target: int, count: int) -> Array:
    """Element i of what passes from one rank to another."""
    return (np.arange(count, dtype=np.int64) << 8) + 16 * source + target


def exchange(comm: pccl.Communicator, counts: Counts) -> None:
    """Asserts that everything arrives at its place."""
    us, everyone = comm.rank, range(comm.world_size)
    send = np.concatenate([addressed(us, to, counts[us][to]) for to in everyone])
    want = np.concatenate([addressed(source, us, counts[source][us]) for source in everyone])
    recv = np.full_like(want, -1)
    comm.all_to_all_v(send, counts[us], recv, [counts[source][us] for source in everyone])
    assert np.array_equal(recv, want)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("size", "largest", "rounds"), [(5, 50_000, 8), *long((5, 2_500_000, 50), (8, 2_500_000, 50))])
def test_random_uneven_parts_among_all(size: int, largest: int, rounds: int) -> None:
    """B16: counts of any size for each pair, up to 20 MB."""
    chance = random.Random(size)
    with Local(size) as local:
        for _ in range(rounds):
            counts = [[chance.randrange(largest) for _ in range(size)] for _ in range(size)]
            local.all(lambda comm, counts=counts: exchange(comm, counts))  # type: ignore[misc]


NOBODY_SENDS_TO_1 = [[3, 0, 2], [1, 0, 5], [4, 0, 0]]
EMPTY = {
    "one sends nothing": [[3, 1, 2], [0, 0, 0], [4, 2, 7]],
    "one receives nothing": NOBODY_SENDS_TO_1,
    "one takes no part": [[3, 0, 2], [0, 0, 0], [4, 0, 7]],
    "nothing moves": [[0] * 3] * 3,
    "everything stays": [[900_000, 0, 0], [0, 5, 0], [0, 0, 2_000_000]],
    "everything goes one way": [[0, 0, 700_000], [0, 0, 0], [0, 0, 0]],
}


@pytest.mark.parametrize("what", EMPTY)
@pytest.mark.parametrize("commit", ["each", "deferred"])
def test_parts_without_elements(what: str, commit: str) -> None:
    """B17: it ends, with the right content; through shared memory and through sockets."""
    with Local(3, commit=commit, shm="auto" if commit == "each" else "off") as local:
        local.all(lambda comm: exchange(comm, EMPTY[what]))
        local.all(lambda comm: comm.commit() if commit == "deferred" else comm.barrier())


@pytest.mark.parametrize("counts", [[1, 0, 7], [0, 0, 0], [0, 300_000, 1]])
def test_unequal_contributions(counts: list[int]) -> None:
    """B18: everyone gives as much as it has, or gets as much as it is to have; AVG (B6) means the same there."""

    def call(comm: pccl.Communicator) -> None:
        us, size = comm.rank, comm.world_size
        mine = addressed(us, 0, counts[us])
        parts = [addressed(source, 0, count) for source, count in enumerate(counts)]
        gathered = np.empty(sum(counts), np.int64)
        comm.all_gather_v(mine, gathered, counts)
        assert np.array_equal(gathered, np.concatenate(parts))
        mean = np.empty(counts[us])
        comm.reduce_scatter_v(gathered * float(us + 1), counts, mean, op=ReduceOp.AVG)
        assert np.array_equal(mean, parts[us] * ((size + 1) / 2))

    with Local(3) as local:
        local.all(call)


def test_the_mean_in_every_path() -> None:
    """B6: AVG never is the sum."""

    def call(comm: pccl.Communicator) -> None:
        us, size = comm.rank, comm.world_size
        for count in (3, 300_000):
            mine, wanted = np.full(count * size, us + 1.0), (size + 1) / 2
            for algorithm in (
                pccl.Algorithm.RING,
                pccl.Algorithm.DIRECT,
                pccl.Algorithm.DOUBLING,
                pccl.Algorithm.HALVING,
                pccl.Algorithm.STAR,
            ):
                out = np.zeros_like(mine)
                comm.all_reduce(mine, out, op=ReduceOp.AVG, algorithm=algorithm)
                assert (out == wanted).all()
            for algorithm in (pccl.Algorithm.CHAIN, pccl.Algorithm.BINOMIAL, pccl.Algorithm.STAR):
                out = np.zeros_like(mine)
                comm.reduce(mine, out, 1, op=ReduceOp.AVG, algorithm=algorithm)
                assert (out == (wanted if us == 1 else 0)).all()
            part = np.zeros(count)
            comm.reduce_scatter(mine, part, op=ReduceOp.AVG)
            assert (part == wanted).all()
            several = [mine.copy() for _ in range(5)]
            comm.all_reduce_multiple_with_retry(several, op=ReduceOp.AVG)
            assert all((it == wanted).all() for it in several)
            out = np.zeros_like(mine)
            comm.all_reduce_async(mine, out, op=ReduceOp.AVG, deterministic=True).wait()
            assert (out == wanted).all()
            for prefix in (comm.scan, comm.exscan):
                with pytest.raises(pccl.InvalidArgument, match="average"):
                    prefix(mine.copy(), op=ReduceOp.AVG)

    with Local(3) as local:
        local.all(call)


def test_views_with_gaps_are_refused_by_every_collective() -> None:
    """B13: a column, an array backwards, every n-th element, one element that counts many times: nothing is sent, and
    what lies between is left alone. A slice without gaps is as good as any other array."""

    def refuse(comm: pccl.Communicator, view: Array, good: Array, long: Array) -> None:
        size = comm.world_size
        calls: list[Callable[[], object]] = [
            lambda: comm.all_reduce(view),
            lambda: comm.all_reduce(view, good),
            lambda: comm.broadcast(view),
            lambda: comm.reduce(view, good),
            lambda: comm.scan(view),
            lambda: comm.exscan(good, view),
            lambda: comm.all_gather(view, long),
            lambda: comm.gather(view, long),
            lambda: comm.scatter(long, view),
            lambda: comm.reduce_scatter(long, view),
            lambda: comm.all_to_all(view),
            lambda: comm.all_gather_v(view, long, [2 * size] * size),
            lambda: comm.all_to_all_v(good, [2] * size, view, [2] * size),
            lambda: comm.gather_v(view, long, [2 * size] * size, comm.rank),
            lambda: comm.scatter_v(long, [2 * size] * size, view, comm.rank),
            lambda: comm.reduce_scatter_v(long, [2 * size] * size, view),
            lambda: comm.all_reduce_multiple_with_retry([good, view]),
        ]
        for wrong in calls:
            with pytest.raises(ValueError, match=r"contiguous|read-only"):
                wrong()

    def call(comm: pccl.Communicator) -> None:
        size = comm.world_size
        table = np.arange(4.0 * size * size).reshape(2 * size, 2 * size)
        before, good, long = table.copy(), np.zeros(2 * size), np.zeros(2 * size * size)
        stretched = np.broadcast_to(good[:1], good.shape)
        for view in (table[:, 1], table[0][::-1], table.reshape(-1)[:: 2 * size], stretched):
            refuse(comm, view, good, long)
        torch = pytest.importorskip("torch")
        tensor = torch.from_numpy(table)
        for view in (tensor[:, 1], tensor.reshape(-1)[:: 2 * size], torch.from_numpy(good[:1]).expand(2 * size)):
            refuse(comm, view, torch.from_numpy(good), torch.from_numpy(long))
        for transposed in (table.T, tensor.t()):
            with pytest.raises(ValueError, match="contiguous"):
                comm.all_reduce(transposed)
        assert np.array_equal(table, before)
        comm.all_reduce(table[1:3])
        assert np.array_equal(table[1:3], size * before[1:3])
        assert np.array_equal(np.delete(table, [1, 2], 0), np.delete(before, [1, 2], 0))

    with Local(3) as local:
        local.all(call)


def fly(comm: pccl.Communicator, tags: int) -> list[tuple[pccl.Handle, Array, Array]]:
    """Starts operations of all sizes and dtypes: the handles, results to be, and what they must be."""
    dtypes = ("int8", "uint16", "int64", "float32", "float64")
    us, size, flying = comm.rank, comm.world_size, []
    for tag in range(tags):
        dtype, count = dtypes[tag % len(dtypes)], tag * tag * 97 % 40_000 + 1
        x = (np.arange(count * size) % 20 + us).astype(dtype)
        out = np.zeros_like(x)
        if tag % 4:
            handle = comm.all_reduce_async(x, out, tag=tag)
            want = (size * (np.arange(count * size) % 20) + sum(range(size))).astype(dtype)
        else:
            handle = comm.all_to_all_async(x, out, tag=tag)
            mine = np.arange(us * count, (us + 1) * count) % 20
            want = np.concatenate([mine + source for source in range(size)]).astype(dtype)
        flying.append((handle, out, want))
    return flying


def test_many_of_different_kinds_at_once_waited_for_in_any_order() -> None:
    """B84: 32 operations of all sizes and dtypes are under way in one group and 8 in another; each rank waits in an
    order of its own, while the delays of all links change."""
    size, chance, landed = 3, random.Random(84), threading.Event()

    def call(here: pccl.Communicator, there: pccl.Communicator) -> None:
        flying = fly(here, 32) + fly(there, 8)
        random.Random(here.rank).shuffle(flying)
        for handle, out, want in flying:
            handle.wait()
            assert np.array_equal(out, want)

    with pccl.MasterNode("127.0.0.1:0") as node, Relay() as relay:
        node.run()
        links = [relay.before_peer() for _ in range(2 * size)]
        ways = [link.address for link in links]
        comms = joined(node.address, [0] * size + [1] * size, size, advertise=ways, shm="off")
        pairs = zip(*(sorted(part, key=lambda comm: comm.rank) for part in (comms[:size], comms[size:])), strict=True)

        def weather() -> None:
            while not landed.wait(0.005):
                chance.choice(links).set(chance.choice(("up", "down")), delay_ms=chance.choice((0, 1, 5, 20)))

        changing = threading.Thread(target=weather)
        changing.start()
        try:
            at_once([partial(call, *pair) for pair in pairs])
        finally:
            landed.set()
            changing.join()
        close(comms)


@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "all_to_all", "gather", "scan", "reduce_scatter"])
def test_arrays_that_nobody_holds_any_more(collective: str) -> None:
    """B83: a careless member drops handles and arrays at once, and makes others of the same size; all get what they
    should, the calls behind too."""
    count = 30_000

    def call(comm: pccl.Communicator) -> None:
        us, size = comm.rank, comm.world_size
        kept = []
        for tag in range(8):
            mine = np.full(count * (size if collective in ("all_to_all", "reduce_scatter") else 1), us + 1.0)
            out = np.zeros(count * (size if collective in ("all_gather", "gather", "all_to_all") else 1))
            handle = getattr(comm, collective + "_async")(mine, out, tag=tag)
            if us > 0:
                kept.append((handle, out))
            del handle, mine, out
            gc.collect()
            np.full(count * size, -1.0)
        for handle, out in kept:
            handle.wait()
            if out.size > count:
                want = np.repeat(np.arange(size) + 1.0, count)
            else:
                want = np.full(count, sum(range(us + 2 if collective == "scan" else size + 1)))
            assert collective == "gather" or np.array_equal(out, want)
        comm.barrier(tag=8)
        x = np.full(count, 1.0)
        comm.all_reduce(x)
        assert (x == size).all()

    with Local(3) as local:
        local.all(call)
