# SPDX-License-Identifier: MIT
"""Every collective through the Python API among several processes: values by formula, roots, uneven parts, in place,
asynchronous, and what is refused or told to all when members disagree."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pccl
from pccl import Algorithm, Collective, ReduceOp
from tests.process.local import Local

pytestmark = pytest.mark.process

Array = np.ndarray[Any, Any]


def own(rank: int, count: int, dtype: str = "int64") -> Array:
    """Element i of rank r is 100 r + i."""
    return (100 * rank + np.arange(count)).astype(dtype)


def uneven(a: int, b: int) -> int:
    """How many elements pass from a to b; also none."""
    return (a + 2 * b) % 4


def with_roots(comm: pccl.Communicator) -> None:
    size, rank = comm.world_size, comm.rank
    for root in range(size):
        mine, out = own(rank, 7), np.full(7, -1, "int64")
        comm.reduce(mine, out, root)
        total = sum(own(r, 7) for r in range(size))
        assert np.array_equal(out, total if rank == root else np.full(7, -1))
        comm.reduce(mine, root=root, op=ReduceOp.MAX)
        assert np.array_equal(mine, own(size - 1 if rank == root else rank, 7)), "in place at the root only"
        table = np.full((size, 3), -1, "int64")
        comm.gather(own(rank, 3), table, root)
        rows = np.stack([own(r, 3) for r in range(size)])
        assert np.array_equal(table, rows if rank == root else np.full((size, 3), -1))
        part = np.zeros(3, "int64")
        comm.scatter(rows if rank == root else None, part, root)
        assert np.array_equal(part, own(rank, 3))


def with_prefixes(comm: pccl.Communicator) -> None:
    size, rank = comm.world_size, comm.rank
    for count in (1, 70_000):
        out = np.full(count, -1, "int64")
        comm.scan(own(rank, count), out)
        assert np.array_equal(out, sum(own(r, count) for r in range(rank + 1)))
        out[:] = -1
        comm.exscan(own(rank, count), out)
        before = sum(own(r, count) for r in range(rank))
        assert np.array_equal(out, before if rank > 0 else np.full(count, -1)), "rank 0 keeps what it had"
        inside = own(rank, count)
        comm.scan(inside)
        assert np.array_equal(inside, sum(own(r, count) for r in range(rank + 1)))
    with pytest.raises(pccl.InvalidArgument, match="average"):
        comm.scan(np.zeros(size), op=ReduceOp.AVG)


def with_everyone(comm: pccl.Communicator) -> None:
    size, rank = comm.world_size, comm.rank
    for block in (1, 50_000):
        mine = np.concatenate([own(rank, block) + 10_000_000 * to for to in range(size)])
        want = np.concatenate([own(source, block) + 10_000_000 * rank for source in range(size)])
        out = np.empty_like(mine)
        comm.all_to_all(mine, out)
        assert np.array_equal(out, want)
        comm.all_to_all(mine)
        assert np.array_equal(mine, want), "in place"
    with pytest.raises(pccl.InvalidArgument, match="equal parts"):
        comm.all_to_all(np.zeros(size + 1))


def with_uneven_parts(comm: pccl.Communicator) -> None:
    size, rank = comm.world_size, comm.rank
    sends, receives = [uneven(rank, r) for r in range(size)], [uneven(r, rank) for r in range(size)]
    mine = np.concatenate([own(rank, n) + 10_000 * to for to, n in enumerate(sends)]).astype("int32")
    out = np.empty(sum(receives), "int32")
    comm.all_to_all_v(mine, sends, out, receives)
    assert np.array_equal(out, np.concatenate([own(r, n) + 10_000 * rank for r, n in enumerate(receives)]))

    counts = [uneven(0, r) for r in range(size)]
    parts = np.concatenate([own(r, n) for r, n in enumerate(counts)])
    everything = np.empty(sum(counts), "int64")
    comm.all_gather_v(own(rank, counts[rank]), everything, counts)
    assert np.array_equal(everything, parts)
    total = np.empty(counts[rank], "int64")
    comm.reduce_scatter_v(parts, counts, total)
    assert np.array_equal(total, size * own(rank, counts[rank]))
    root = size - 1
    at_root = np.empty(sum(counts), "int64") if rank == root else None
    comm.gather_v(own(rank, counts[rank]), at_root, counts if rank == root else None, root)
    assert at_root is None or np.array_equal(at_root, parts)
    back = np.empty(counts[rank], "int64")
    comm.scatter_v(at_root, counts if rank == root else None, back, root)
    assert np.array_equal(back, own(rank, counts[rank]))


def with_disagreement(comm: pccl.Communicator) -> None:
    size, rank = comm.world_size, comm.rank
    ones, more = [1] * size, [2] + [1] * (size - 1)
    counts = more if rank == 1 else ones
    with pytest.raises(pccl.CollectiveMismatch, match=r"all_to_all\(int8\[1\], uneven.*all_to_all\(int8\[2\], uneven"):
        comm.all_to_all_v(np.zeros(size, "int8"), ones, np.zeros(sum(counts), "int8"), counts)
    with pytest.raises(pccl.CollectiveMismatch, match="uneven counts"):
        comm.all_gather_v(np.zeros(counts[rank], "int8"), np.zeros(sum(counts), "int8"), counts)
    with pytest.raises(pccl.CollectiveMismatch, match=r"root=[01].*root=[01]"):
        comm.gather(np.zeros(1), np.zeros(size), root=int(rank == 1))
    comm.barrier()


def with_wrong_arguments(comm: pccl.Communicator) -> None:
    size, rank = comm.world_size, comm.rank
    refused: list[tuple[str, Callable[[], object]]] = [
        ("root must be", lambda: comm.reduce(np.zeros(2), root=size)),
        ("must be alike", lambda: comm.reduce(np.zeros(2), np.zeros(3), root=rank)),
        (f"must hold {size} times", lambda: comm.gather(np.zeros(2), np.zeros(3), root=rank)),
        (f"must hold {size} times", lambda: comm.scatter(np.zeros(3), np.zeros(2), root=rank)),
        ("recv is a NoneType", lambda: comm.gather(np.zeros(2), root=rank)),
        ("needs recv and recv_counts", lambda: comm.gather_v(np.zeros(2), np.zeros(2), root=rank)),
        ("needs send and send_counts", lambda: comm.scatter_v(None, None, np.zeros(2), root=rank)),
        ("add up to", lambda: comm.all_gather_v(np.zeros(1), np.zeros(size + 1), [1] * size)),
        ("one count for each", lambda: comm.all_gather_v(np.zeros(1), np.zeros(1), [1])),
        ("a count of recv_counts", lambda: comm.all_gather_v(np.zeros(1), np.zeros(1), [-1] * size)),
        ("is read-only", lambda: comm.scan(np.broadcast_to(np.zeros(1), (1,)))),
    ]
    for text, call in refused:
        with pytest.raises(pccl.InvalidArgument, match=text):
            call()
    comm.barrier()


def with_handles(comm: pccl.Communicator) -> None:
    size, rank = comm.world_size, comm.rank
    blocks, out, total = own(rank, size), np.empty(size, "int64"), np.empty(2, "int64")
    first, second = comm.all_to_all_async(blocks, out, tag=1), comm.scan_async(own(rank, 2), total, tag=2)
    second.wait()
    first.wait()
    assert np.array_equal(out, [100 * r + rank for r in range(size)])
    assert np.array_equal(total, sum(own(r, 2) for r in range(rank + 1)))

    async def together() -> None:
        here, there = own(rank, 4), np.zeros((size, 4), "int64")
        await asyncio.gather(comm.reduce_async(here, root=0, tag=3), comm.gather_async(own(rank, 4), there, 0, tag=4))
        assert rank > 0 or np.array_equal(here, sum(own(r, 4) for r in range(size)))
        assert rank > 0 or np.array_equal(there, np.stack([own(r, 4) for r in range(size)]))

    asyncio.run(together())


def with_explanations(comm: pccl.Communicator) -> None:
    for collective in Collective:
        data = None if collective in (Collective.BARRIER, Collective.COMMIT) else np.zeros(64 * comm.world_size)
        said = comm.explain_call(collective, data)
        assert ":" in said
        if data is not None and collective not in (Collective.SEND, Collective.RECV):
            # What moves is all parts together, of which `send` is one where they are gathered.
            parts = comm.world_size if collective in (Collective.ALL_GATHER, Collective.GATHER) else 1
            assert f"times {data.nbytes * parts} bytes" in said
    with pytest.raises(pccl.InvalidArgument, match="equal parts"):
        comm.explain_call(Collective.ALL_TO_ALL, np.zeros(64 * comm.world_size + 1))


ALL = (
    with_roots,
    with_prefixes,
    with_everyone,
    with_uneven_parts,
    with_disagreement,
    with_wrong_arguments,
    with_handles,
    with_explanations,
)


def test_members_of_two_hosts_reduce_within_each_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three members on one host and two on another, as far as they know."""
    spread = itertools.cycle((1, 2))
    monkeypatch.setattr("pccl.system.host_id", lambda: next(spread))

    def reduce(comm: pccl.Communicator) -> None:
        size, rank = comm.world_size, comm.rank
        for count in (1, 2, 7, 200_000):
            x = own(rank, count, "int32")
            info = comm.all_reduce(x, algorithm=Algorithm.HIERARCHICAL)
            assert info.algorithm == Algorithm.HIERARCHICAL
            assert np.array_equal(x, sum(own(r, count, "int32") for r in range(size)))
        out = np.empty_like(x)
        assert comm.all_reduce(x, out).algorithm == Algorithm.HIERARCHICAL
        assert np.array_equal(out, size * x)
        assert comm.explain_call(Collective.ALL_REDUCE, x).startswith("hierarchical: ")

    with Local(5) as local:
        local.all(reduce)


def test_members_of_one_host_reduce_in_two_rounds() -> None:
    """Where a wish is followed at any size, the choice is for those between few bytes and many."""

    def reduce(comm: pccl.Communicator) -> None:
        size, rank = comm.world_size, comm.rank
        for count in (1, 3, 4, 7, 200_000):
            x = own(rank, count, "int32")
            assert comm.all_reduce(x, algorithm=Algorithm.DIRECT).algorithm == Algorithm.DIRECT
            assert np.array_equal(x, sum(own(r, count, "int32") for r in range(size)))
        assert comm.explain_call(Collective.ALL_REDUCE, x[:50_000]).startswith("direct: ")
        assert comm.all_reduce(x[:50_000]).algorithm == Algorithm.DIRECT
        assert comm.all_reduce(x[:50_000], deterministic=True).algorithm != Algorithm.DIRECT

    with Local(4) as local:
        local.all(reduce)


@pytest.mark.parametrize("part", ALL, ids=lambda part: part.__name__)
@pytest.mark.parametrize("size", [2, 3, 5])
def test_every_collective(size: int, part: Callable[[pccl.Communicator], None]) -> None:
    with Local(size) as local:
        assert local.all(part) == [None] * size
        assert local.all(lambda comm: comm.barrier().world_size) == [size] * size, "as good as new"
