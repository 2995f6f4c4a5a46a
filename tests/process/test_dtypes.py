# SPDX-License-Identifier: MIT
"""Every dtype with every operation: values by formula, what there is none of, and types that are only moved."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pccl
from pccl import DataType, PremulSum, Recv, ReduceOp, Send
from pccl.enums import TORCH_ONLY
from tests.process.local import Local

pytestmark = pytest.mark.process

Array = np.ndarray[Any, Any]

COUNTS = (3, 20_000)
FACTORS = (0.5, -2.0, 3.0, 0.25)

INTEGERS = {ReduceOp.SUM, ReduceOp.AVG, ReduceOp.PROD, ReduceOp.MIN, ReduceOp.MAX}
BITS = {ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR}
POSSIBLE: dict[DataType, set[ReduceOp]] = dict.fromkeys(DataType, INTEGERS | BITS)
for _kind in (DataType.FLOAT16, DataType.BFLOAT16, DataType.FLOAT32, DataType.FLOAT64):
    POSSIBLE[_kind] = INTEGERS | {ReduceOp.PREMUL_SUM}
for _kind in (DataType.COMPLEX64, DataType.COMPLEX128):
    POSSIBLE[_kind] = {ReduceOp.SUM, ReduceOp.AVG, ReduceOp.PROD, ReduceOp.PREMUL_SUM}
for _kind in (DataType.FLOAT8_E4M3FN, DataType.FLOAT8_E5M2):
    POSSIBLE[_kind] = set()
POSSIBLE[DataType.BOOL] = BITS | INTEGERS - {ReduceOp.AVG}

COMBINE = {
    ReduceOp.SUM: np.add,
    ReduceOp.AVG: np.add,
    ReduceOp.PREMUL_SUM: np.add,
    ReduceOp.PROD: np.multiply,
    ReduceOp.MIN: np.minimum,
    ReduceOp.MAX: np.maximum,
    ReduceOp.BAND: np.bitwise_and,
    ReduceOp.BOR: np.bitwise_or,
    ReduceOp.BXOR: np.bitwise_xor,
}
"""Of booleans, numpy means by these what pccl means."""


def own(kind: DataType, rank: int, count: int) -> Array:
    """Small whole numbers: exact in every type, whatever is done with those of four members. Torch's types as float32,
    complex numbers with parts that differ; half of all booleans are true."""
    values = (rank * 11 + np.arange(count) * 5) % 7 - 3
    if kind == DataType.BOOL:
        return (np.arange(count) >> rank & 1).astype(bool)
    if kind in (DataType.COMPLEX64, DataType.COMPLEX128):
        return (values - 1j * np.roll(values, 1)).astype(kind.to_numpy_dtype())
    return values.astype("float32" if kind in TORCH_ONLY else kind.to_numpy_dtype())


def handed(kind: DataType, values: Array) -> Any:
    """A copy, as a collective takes it."""
    if kind not in TORCH_ONLY:
        return values.copy()
    import torch

    return torch.from_numpy(values.copy()).to(kind.to_torch_dtype())


def values_of(x: Any) -> Array:
    return x if isinstance(x, np.ndarray) else x.float().numpy()


def reduced(kind: DataType, op: ReduceOp, ranks: int, size: int, count: int) -> Array:
    """Of the first `ranks` members of `size`."""
    inputs = [own(kind, rank, count) for rank in range(ranks)]
    if op == ReduceOp.PREMUL_SUM:
        inputs = [(it * FACTORS[rank]).astype(it.dtype) for rank, it in enumerate(inputs)]
    total = functools.reduce(COMBINE[op], inputs)
    if op != ReduceOp.AVG:
        return total
    return (np.sign(total) * (abs(total) // size) if total.dtype.kind in "iu" else total / size).astype(total.dtype)


def operation(op: ReduceOp, rank: int) -> ReduceOp | PremulSum:
    return PremulSum(FACTORS[rank]) if op == ReduceOp.PREMUL_SUM else op


def reduce_all(comm: pccl.Communicator, kind: DataType, op: ReduceOp, count: int) -> None:
    size, rank = comm.world_size, comm.rank
    mine, how = own(kind, rank, count * size), operation(op, rank)
    total = reduced(kind, op, size, size, count * size)
    block = slice(rank * count, (rank + 1) * count)

    def check(result: Any, want: Array, what: str) -> None:
        assert np.array_equal(values_of(result), want), f"{what} {kind.name} {op.name}"
        assert kind != DataType.BOOL or result.view(np.uint8).max() <= 1, "a byte that numpy would not write"

    source, target = handed(kind, mine), handed(kind, np.zeros_like(mine))
    comm.all_reduce(source, target, op=how)
    check(target, total, "all_reduce")
    check(source, mine, "input of all_reduce")
    comm.reduce_scatter(source, target[:count], op=how)
    check(target[:count], total[block], "reduce_scatter")
    check(source, mine, "input of reduce_scatter")
    comm.reduce(source, target, size - 1, op=how)
    assert rank < size - 1 or np.array_equal(values_of(target), total)
    if op != ReduceOp.AVG:
        comm.scan(source, target, op=how)
        check(target, reduced(kind, op, rank + 1, size, count * size), "scan")
        comm.exscan(source, target, op=how)
        assert rank == 0 or np.array_equal(values_of(target), reduced(kind, op, rank, size, count * size))
        check(source, mine, "input of scans")
        inside = handed(kind, mine)
        comm.scan(inside, op=how)
        check(inside, reduced(kind, op, rank + 1, size, count * size), "scan in place")
    comm.reduce_scatter(source, source[block], op=how)
    check(source[block], total[block], "reduce_scatter in place")
    source = handed(kind, mine)
    comm.all_reduce(source, op=how)
    check(source, total, "all_reduce in place")


@pytest.mark.parametrize("kind", [kind for kind in DataType if POSSIBLE[kind]], ids=lambda kind: kind.name)
def test_every_operation_of(kind: DataType) -> None:
    if kind in TORCH_ONLY:
        pytest.importorskip("torch")
    for size, preserve in ((2, True), (4, False)):
        with Local(size, preserve_input=preserve) as local:

            def everything(comm: pccl.Communicator) -> int:
                for op in sorted(POSSIBLE[kind]):
                    for count in COUNTS:
                        reduce_all(comm, kind, op, count)
                return comm.world_size

            assert local.all(everything) == [size] * size


def patterns(kind: DataType, rank: int, count: int) -> Any:
    """Any bytes, among many those of all kinds of NaNs; of booleans only those that there are."""
    size = pccl._native.extent(pccl._native.NULL, kind, 1)[1]
    raw = np.random.default_rng([kind, rank]).integers(0, 256, count * size, np.uint8)
    if kind == DataType.BOOL:
        return raw % 2 == 1
    if kind not in TORCH_ONLY:
        return raw.view(kind.to_numpy_dtype())
    import torch

    return torch.from_numpy(raw).view(kind.to_torch_dtype())


def raw_of(x: Any) -> bytes:
    if isinstance(x, np.ndarray):
        return x.tobytes()
    import torch

    return bytes(x.view(torch.uint8).numpy())


def move_all(comm: pccl.Communicator, kind: DataType, count: int) -> None:
    size, rank = comm.world_size, comm.rank
    mine, all_of_mine = patterns(kind, rank, count), patterns(kind, rank, count * size)
    everyones = b"".join(raw_of(patterns(kind, r, count)) for r in range(size))
    block = slice(rank * count, (rank + 1) * count)
    crossed = b"".join(raw_of(patterns(kind, r, count * size)[block]) for r in range(size))
    out = patterns(kind, size, count * size)
    for move, want in (
        (lambda: comm.all_gather(mine, out), everyones),
        (lambda: comm.all_gather_v(mine, out, [count] * size), everyones),
        (lambda: comm.all_to_all(all_of_mine, out), crossed),
        (lambda: comm.all_to_all_v(all_of_mine, [count] * size, out, [count] * size), crossed),
    ):
        move()
        assert raw_of(out) == want
    comm.gather(mine, out, 0)
    assert rank > 0 or raw_of(out) == everyones
    part = patterns(kind, size, count)
    comm.scatter(all_of_mine, part, 1)
    assert raw_of(part) == raw_of(patterns(kind, 1, count * size)[block])
    comm.gather_v(mine, out, [count] * size, 2)
    assert rank != 2 or raw_of(out) == everyones
    comm.scatter_v(all_of_mine, [count] * size, part, 0)
    assert raw_of(part) == raw_of(patterns(kind, 0, count * size)[block])
    comm.batch_send_recv([Send(mine, (rank + 1) % size), Recv(part, (rank - 1) % size)])
    assert raw_of(part) == raw_of(patterns(kind, (rank - 1) % size, count))
    if rank == 0:
        comm.send(mine, 2)
    elif rank == 2:
        comm.recv(part, 0)
        assert raw_of(part) == raw_of(patterns(kind, 0, count))
    comm.broadcast(mine, 1)
    assert raw_of(mine) == raw_of(patterns(kind, 1, count))


@pytest.mark.parametrize("kind", [DataType.FLOAT16, DataType.FLOAT32, DataType.FLOAT64], ids=lambda kind: kind.name)
def test_what_is_moved_has_nans_of_all_kinds(kind: DataType) -> None:
    """Quiet and signalling ones, of both signs, with payloads that differ."""
    values = patterns(kind, 0, COUNTS[-1])
    nans = values[np.isnan(values)].view(f"u{values.itemsize}")
    quiet = 1 << (np.finfo(values.dtype).nmant - 1)
    assert {(bool(it & quiet), bool(it >> (8 * values.itemsize - 1))) for it in nans.tolist()} == {
        (is_quiet, is_negative) for is_quiet in (False, True) for is_negative in (False, True)
    }
    assert len(set(nans.tolist())) > len(nans) / 2


def test_every_type_is_moved() -> None:
    """B10: whatever its bytes say, by every collective that moves and from one member to another."""
    pytest.importorskip("torch")
    with Local(3) as local:

        def everything(comm: pccl.Communicator) -> int:
            for kind in DataType:
                for count in COUNTS:
                    move_all(comm, kind, count)
            return comm.world_size

        assert local.all(everything) == [3] * 3


def refused(text: str, call: Callable[[], object]) -> None:
    with pytest.raises(pccl.InvalidArgument, match=text):
        call()


def test_what_there_is_none_of_is_refused_by_name() -> None:
    pytest.importorskip("torch")
    with Local(1) as local:
        comm = local.comms[0]
        for kind in DataType:
            x = patterns(kind, 0, 4)
            for op in ReduceOp:
                how = operation(op, 0)
                if op in POSSIBLE[kind]:
                    assert comm.all_reduce(x, op=how).world_size == 1
                    continue
                text = f"{kind.name.lower()} has no {op.name.lower()}"
                refused("all_reduce: " + text, lambda x=x, how=how: comm.all_reduce(x, op=how))
                refused("reduce_scatter: " + text, lambda x=x, how=how: comm.reduce_scatter_async(x, x, op=how))
                refused("reduce: " + text, lambda x=x, how=how: comm.reduce(x, op=how))
                refused("scan: " + text, lambda x=x, how=how: comm.scan(x, op=how))
                refused(text, lambda x=x, how=how: comm.explain_call(pccl.Collective.ALL_REDUCE, x, op=how))
        refused("it has sum, avg, prod, premul_sum$", lambda: comm.all_reduce(np.zeros(2, complex), op=ReduceOp.MAX))
        refused("it can only be moved", lambda: comm.all_reduce(patterns(DataType.FLOAT8_E5M2, 0, 2)))
        refused("needs a factor", lambda: comm.all_reduce(np.zeros(2), op=ReduceOp.PREMUL_SUM))
        doubled = np.ones(3)
        comm.all_reduce(doubled, op=PremulSum(np.float32(2)))
        assert np.array_equal(doubled, [2, 2, 2]), "also where there is nothing to add"
        for factor in ("2", None, 1j, 10**400):
            refused("factor of a PremulSum", lambda factor=factor: comm.all_reduce(np.zeros(2), op=PremulSum(factor)))


def test_every_type_of_torch_is_moved_or_refused_by_name() -> None:
    """B10: by collectives that move and by those that reduce, before anything is sent."""
    torch = pytest.importorskip("torch")
    every = {it for it in vars(torch).values() if isinstance(it, torch.dtype)}
    moved = {kind.to_torch_dtype() for kind in DataType}
    assert moved < every
    with Local(2) as local:

        def call(comm: pccl.Communicator) -> int:
            made = 0
            for dtype in sorted(every - moved, key=str):
                try:
                    x = torch.zeros(4, dtype=torch.uint8).view(dtype)
                except (RuntimeError, TypeError):
                    continue  # no array of it can be made
                made += 1
                for wrong in (
                    lambda x=x: comm.broadcast(x),
                    lambda x=x: comm.all_gather(x, x),
                    lambda x=x: comm.all_to_all(x),
                    lambda x=x: comm.all_reduce(x),
                    lambda x=x: comm.send(x, 1 - comm.rank),
                ):
                    refused(str(dtype), wrong)
            assert comm.barrier().world_size == 2
            return made

        assert min(local.all(call)) >= len({torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.complex32})


def test_a_disagreement_names_types_and_operations() -> None:
    with Local(2) as local:
        wrong_type: list[Callable[[pccl.Communicator], object]] = [
            lambda comm: comm.all_reduce(np.ones(4, bool)),
            lambda comm: comm.all_reduce(np.ones(4, np.complex64)),
        ]
        for text in local.refused(wrong_type, pccl.CollectiveMismatch):
            assert "bool[4], op=sum" in text
            assert "complex64[4], op=sum" in text
        wrong_op: list[Callable[[pccl.Communicator], object]] = [
            lambda comm: comm.all_reduce(np.ones(4), op=PremulSum(2)),
            lambda comm: comm.all_reduce(np.ones(4)),
        ]
        for text in local.refused(wrong_op, pccl.CollectiveMismatch):
            assert "op=premul_sum" in text
            assert "op=sum" in text


def test_borders_of_complex_numbers_and_booleans() -> None:
    """A NaN in one part leaves the other alone; bytes of a boolean that numpy would not write count as true."""
    nan, infinity = float("nan"), float("inf")
    with Local(3) as local:

        def reduce(comm: pccl.Communicator) -> tuple[bytes, bytes]:
            x = np.array([complex(nan, 1), complex(infinity, 2), complex(-0.0, -0.0)], np.complex64)
            comm.all_reduce(x, op=PremulSum(-1.0) if comm.rank == 1 else PremulSum(1.0))
            y = np.array([2 << comm.rank, 0, 255 * (comm.rank == 0)], np.uint8).view(bool)
            comm.all_reduce(y, op=ReduceOp.BXOR)
            return x.tobytes(), y.tobytes()

        results = local.all(reduce)
    assert len(set(results)) == 1
    complexes = np.frombuffer(results[0][0], np.float32)
    assert np.array_equal(complexes, [nan, 1, nan, 2, 0, 0], equal_nan=True)
    assert results[0][1] == bytes([1, 0, 1])
