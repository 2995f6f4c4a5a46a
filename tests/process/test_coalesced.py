# SPDX-License-Identifier: MIT
"""Many arrays in one all_reduce: each result is that of an all_reduce of its own, whatever their shapes; they fail
together; and what cannot be is refused before anything moves. (`test_algorithms` kills members in the middle.)"""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import pccl
from pccl import DataType, PremulSum, ReduceOp
from tests.process.harness import Run, join
from tests.process.local import Local
from tests.process.test_dtypes import FACTORS, POSSIBLE, handed, own, reduced, values_of

pytestmark = pytest.mark.process

Arrays = list[np.ndarray[Any, Any]]

SHAPES: list[tuple[int, ...]] = [(), (0,), (3,), (1, 0, 2), (2, 3, 4), (1,), (1000,), (257, 129), (1,), (70_001,), ()]
COUNTS = [int(np.prod(shape)) for shape in SHAPES]


def given(kind: DataType, rank: int) -> list[Any]:
    """All of them differ, as each is a part of one long one."""
    ends = np.cumsum(COUNTS)
    parts = np.split(own(kind, rank, int(ends[-1])), ends)
    return [handed(kind, part.reshape(shape)) for part, shape in zip(parts, SHAPES, strict=False)]


def expected(kind: DataType, op: ReduceOp, size: int) -> Arrays:
    ends = np.cumsum(COUNTS)
    rounded = values_of(handed(kind, reduced(kind, op, size, size, int(ends[-1]))))
    return np.split(rounded, ends)[:-1]


def expect(tensors: list[Any], wanted: Arrays) -> None:
    for index, (tensor, values) in enumerate(zip(tensors, wanted, strict=True)):
        assert np.array_equal(values_of(tensor).ravel(), values), f"tensor {index}"


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_every_dtype_and_operation_in_place_and_not(size: int) -> None:
    def member(comm: pccl.Communicator) -> None:
        for kind, ops in POSSIBLE.items():
            for op in sorted(ops):
                chosen = PremulSum(FACTORS[comm.rank]) if op == ReduceOp.PREMUL_SUM else op
                wanted = expected(kind, op, size)
                tensors, out = given(kind, comm.rank), given(kind, size)
                info = comm.all_reduce_coalesced(tensors, out, op=chosen)
                assert (info.world_size, info.rank) == (size, comm.rank)
                expect(out, wanted)
                expect(tensors, [values_of(it).ravel() for it in given(kind, comm.rank)])
                out[::2] = tensors[::2]  # some in place
                comm.all_reduce_coalesced(tensors, out, op=chosen)
                expect(out, wanted)
                tensors = given(kind, comm.rank)
                comm.all_reduce_coalesced(tensors, op=chosen)
                expect(tensors, wanted)

    with Local(size) as group:
        group.all(member)


@pytest.mark.parametrize("algorithm", ["RING", "DIRECT", "DOUBLING", "HALVING", "STAR", "AUTO"])
@pytest.mark.parametrize("options", [{}, {"commit": "deferred"}, {"deterministic": True}, {"shm": "off"}])
def test_every_algorithm_and_mode(algorithm: str, options: dict[str, Any]) -> None:
    if "deterministic" in options and algorithm not in ("DOUBLING", "HALVING", "AUTO"):
        pytest.skip("its order follows ring and count")

    def member(comm: pccl.Communicator) -> None:
        random = np.random.default_rng(comm.rank)
        tensors = [random.standard_normal(shape).astype(np.float32) for shape in SHAPES]
        one = np.concatenate([tensor.ravel() for tensor in tensors])
        chosen = pccl.Algorithm[algorithm]
        comm.all_reduce(one, algorithm=chosen)
        comm.all_reduce_coalesced(tensors, algorithm=chosen, priority=2, timeout=100)
        if "commit" in options:
            comm.commit()
        assert np.concatenate([tensor.ravel() for tensor in tensors]).tobytes() == one.tobytes()

    with Local(3, **options) as group:
        group.all(member)


def test_asynchronous_ones_overlap() -> None:
    def member(comm: pccl.Communicator) -> None:
        kind, size = DataType.INT64, comm.world_size
        many = [given(kind, comm.rank) for _ in range(6)]
        handles = [comm.all_reduce_coalesced_async(tensors, tag=tag) for tag, tensors in enumerate(many[:5])]

        async def awaited() -> pccl.ReduceInfo:
            return await comm.all_reduce_coalesced_async(many[5], tag=5)

        assert asyncio.run(awaited()).world_size == size
        for handle in reversed(handles):
            assert handle.wait().world_size == size
        for tensors in many:
            expect(tensors, expected(kind, ReduceOp.SUM, size))
        comm.all_reduce_coalesced_async(given(kind, comm.rank), tag=7)  # nobody holds the arrays or the handle
        comm.barrier()

    with Local(2) as group:
        group.all(member)


def test_a_great_many_and_very_small_ones() -> None:
    """As many as there may be; one more is refused."""

    def member(comm: pccl.Communicator) -> None:
        vector = np.arange(65536, dtype=np.int32) + comm.rank
        comm.all_reduce_coalesced([vector[index : index + 1] for index in reversed(range(65536))])
        assert np.array_equal(vector, 2 * np.arange(65536) + 1)
        with pytest.raises(pccl.InvalidArgument, match="takes 1 to 65536 tensors together, got 65537"):
            comm.all_reduce_coalesced([np.ones(1)] * 65537)

    with Local(2) as group:
        group.all(member)


def test_members_that_disagree_are_told() -> None:
    lists = [[3, 4, 5], [4, 3, 5], [12], [3, 4, 5, 0], [3, 4, 6]]

    def member(comm: pccl.Communicator) -> None:
        for tag, counts in enumerate(lists[1:]):
            mine = lists[0] if comm.rank == 0 else counts
            tensors = [np.full(count, comm.rank, np.int16) for count in mine]
            with pytest.raises(pccl.CollectiveMismatch) as caught:
                comm.all_reduce_coalesced(tensors, tag=tag)
            text = str(caught.value)
            assert "rank 0 called all_reduce(int16[12] in 3 tensors #" in text
            plural = "s" if len(counts) > 1 else ""
            assert f"rank 1 called all_reduce(int16[{sum(counts)}] in {len(counts)} tensor{plural} #" in text
            assert all((tensor == comm.rank).all() for tensor in tensors)
        one: Any = np.zeros(12, np.int16)
        with pytest.raises(
            pccl.CollectiveMismatch, match=r"int16\[12\] in 1 tensor #.*called all_reduce\(int16\[12\], op="
        ):
            (comm.all_reduce if comm.rank else comm.all_reduce_coalesced)(one if comm.rank else [one], tag=9)
        tensors = [np.full(count, 1, np.int16) for count in lists[0]]
        comm.all_reduce_coalesced(tensors)
        assert all((tensor == 2).all() for tensor in tensors)

    with Local(2) as group:
        group.all(member)


def test_what_cannot_be_leaves_all_as_it_was() -> None:
    x, y = np.ones(8, np.float32), np.ones(8, np.float32)
    wrong = {
        "tensors 0 and 1 overlap": ([x, x[4:]], None),
        "tensors 1 and 2 overlap": ([y, x[4:], x[:5]], None),
        "tensors 0 and 1 overlap, and": ([x[:4], x[4:]], [y[:4], y[2:6]]),
        "tensors 0 and 2 overlap": ([x[:2], x[2:4], x[4:6]], [x[4:6], y[2:4], y[4:6]]),
        "input and output of tensor 1 overlap without": ([y, x[:4]], [y, x[1:5]]),
        r"tensors\[1\] has 8 float64 and tensors\[0\] has 8 float32": ([x, np.ones(8)], None),
        r"tensors\[1\] is not C-contiguous": ([x, y[::2]], None),
        "float8_e4m3fn has no sum": ([handed(DataType.FLOAT8_E4M3FN, x)], None),
        "float32 has no band": ([x], [y], {"op": ReduceOp.BAND}),
        "no algorithm bruck": ([x], None, {"algorithm": pccl.Algorithm.BRUCK}),
        "is not deterministic": ([x], None, {"algorithm": pccl.Algorithm.RING, "deterministic": True}),
        "priority must be": ([x], None, {"priority": 9}),
        "timeout must be": ([x], None, {"timeout": -1}),
    }

    def member(comm: pccl.Communicator) -> None:
        for text, (tensors, out, *options) in wrong.items():
            for call in (comm.all_reduce_coalesced, comm.all_reduce_coalesced_async):
                with pytest.raises(pccl.InvalidArgument, match=text):
                    call(tensors, out, **(options[0] if options else {}))
        assert (x == 1).all()
        assert (y == 1).all()
        comm.all_reduce_coalesced([x[:4], x[:4], x[2:6]], [y[:4], y[4:], np.ones(4, np.float32)])  # all only read
        assert (y == comm.world_size).all()

    with Local(1) as group:
        group.all(member)


def losing(line: Any, address: str) -> None:
    """All but the last rank start, and the last one never comes. Each array is as it was, and reduced by a retry."""
    with join(address, 3) as comm:
        comm.barrier()
        for in_place in (True, False):
            tensors = given(DataType.FLOAT32, comm.rank)
            out = None if in_place else given(DataType.FLOAT32, 3)
            handle = comm.all_reduce_coalesced_async(tensors, out) if comm.rank < 2 else None
            line.send(kind="ready", last=comm.rank == 2)
            if handle is None:
                line.receive()
                return
            if comm.world_size == 3:
                with pytest.raises(pccl.PeerLost, match=r"all_reduce\(float32\[.* in 11 tensors #"):
                    handle.wait()
                expect(tensors, [values_of(it).ravel() for it in given(DataType.FLOAT32, comm.rank)])
                handle = comm.all_reduce_coalesced_async(tensors, out)
            assert handle.wait().world_size == 2
            expect(tensors if out is None else out, expected(DataType.FLOAT32, ReduceOp.SUM, 2))
        line.send(kind="done")
        comm.barrier()


def test_a_loss_leaves_every_input_for_the_retry(tmp_path: Any) -> None:
    with Run(tmp_path) as run:
        peers = [run.peer(losing) for _ in range(3)]
        last = [run.expect(peer, "ready")["last"] for peer in peers]
        peers[last.index(True)].kill()
        for peer, is_last in zip(peers, last, strict=True):
            if not is_last:
                run.expect(peer, "ready")
                run.expect(peer, "done")
                assert run.ended(peer) == 0
