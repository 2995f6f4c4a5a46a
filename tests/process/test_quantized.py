# SPDX-License-Identifier: MIT
"""Quantized collectives among several members: the same bits on all, in every format and by every algorithm, also while
members die; no drift over a thousand rounds; what cannot be quantized is an error on all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies
from numpy.typing import NDArray

import pccl
from pccl import Algorithm, Collective, QuantizationAlgorithm, QuantizationOptions, ReduceOp
from pccl._native import hash128
from pccl.fleet import Line
from tests.process.harness import Run, gather
from tests.process.local import Local
from tests.quantized_sums_table import KINDS, values

pytestmark = pytest.mark.process

LARGE = 1_000_003
COUNTS = (1, 17, 4099)
SIZE = 3

Floats = NDArray[np.float32]

FORMATS: dict[str, QuantizationOptions] = {
    "bfloat16": QuantizationOptions("bfloat16"),
    "float16": QuantizationOptions("float16"),
    "uint8 min-max": QuantizationOptions("uint8"),
    "int8 min-max": QuantizationOptions("int8", QuantizationAlgorithm.MIN_MAX),
    "uint8 zero point": QuantizationOptions("uint8", QuantizationAlgorithm.ZERO_POINT_SCALE),
    "int8 zero point": QuantizationOptions("int8", QuantizationAlgorithm.ZERO_POINT_SCALE),
    "int8": QuantizationOptions("int8", QuantizationAlgorithm.BLOCK),
    "int4": QuantizationOptions("int4"),
    "int2": QuantizationOptions("int2", block=32),
    "e4m3": QuantizationOptions("float8_e4m3fn"),
    "e5m2": QuantizationOptions("float8_e5m2", block=64),
    "int4, stochastic": QuantizationOptions("int4", rounding="stochastic", seed=3),
    "int8, rotated": QuantizationOptions("int8", QuantizationAlgorithm.BLOCK, rotate=True, seed=4),
}

ALL_REDUCE = ("ring", "direct", "doubling", "halving", "star", "hierarchical", "leaders")


def normal(rank: int, count: int) -> Floats:
    return np.random.default_rng(rank).standard_normal(count, np.float32)


def bits(array: Any) -> str:
    return hash128(array).hex()


@pytest.mark.parametrize("size", range(2, 9))
def test_all_have_the_same_bits(size: int) -> None:
    """B79: every format by every algorithm, with small vectors; and each format once with a large one."""

    def call(comm: pccl.Communicator) -> list[str]:
        found = []
        for index, options in enumerate(FORMATS.values()):
            turn = ALL_REDUCE[(index + size) % len(ALL_REDUCE)]
            calls = [(count, name) for count in COUNTS for name in ALL_REDUCE] + [(LARGE, turn)]
            for count, name in calls:
                x = normal(comm.rank, count)
                comm.all_reduce(x, algorithm=Algorithm[name.upper()], quantization_options=options)
                found.append(bits(x))
        return found

    with Local(size) as local:
        results = local.all(call)
        assert all(it == results[0] for it in results)
        assert len(set(results[0])) > 2 * len(FORMATS), "results of different calls"


def bound_of_sum(options: QuantizationOptions, inputs: list[Floats], algorithm: Algorithm) -> NDArray[np.float64]:
    """As docs/quantization.md has it. What is encoded behind an error may be larger by that; so each block is taken to
    reach from end to end of what it could."""

    def bound(x: NDArray[np.float64], off: NDArray[np.float64]) -> NDArray[np.float64]:
        most = np.empty_like(x)
        for begin in range(0, x.size, options.block):
            block = slice(begin, begin + options.block)
            most[block] = (np.abs(x[block]) + off[block]).max()
            most[block][::2] *= -1
        return np.asarray(options.bound(most.astype(np.float32)), np.float64)

    total, off = np.zeros(inputs[0].size), np.zeros(inputs[0].size)
    for x in inputs:
        total += x
        off += bound(x.astype(np.float64), 0 * off)
        if algorithm == Algorithm.RING:
            off += bound(np.sum(np.abs(inputs), axis=0, dtype=np.float64), off)
    return off + bound(total, off) + 1e-5 * np.sum(np.abs(inputs), axis=0)


@pytest.mark.parametrize("name", ["bfloat16", "uint8 min-max", "uint8 zero point", "int8", "int4", "int2", "e4m3"])
@pytest.mark.parametrize("algorithm", [Algorithm.AUTO, Algorithm.STAR, Algorithm.RING])
def test_sums_keep_to_the_bound(name: str, algorithm: Algorithm) -> None:
    options = FORMATS[name]
    with Local(4) as local:

        @settings(max_examples=30, deadline=None)
        @given(strategies.sampled_from(KINDS), strategies.integers(0, 2**32), strategies.floats(-100, 100))
        def hold(kind: str, seed: int, offset: float) -> None:
            inputs = [values(kind, seed + rank, 3000) + np.float32(offset) for rank in range(4)]

            def call(comm: pccl.Communicator) -> Floats:
                x = inputs[comm.rank].copy()
                comm.all_reduce(x, algorithm=algorithm, quantization_options=options)
                return x

            results = local.all(call)
            off = np.abs(results[0] - np.sum(inputs, axis=0, dtype=np.float64))
            assert (off <= bound_of_sum(options, inputs, algorithm)).all()

        hold()


@pytest.mark.parametrize("name", FORMATS)
def test_every_collective(name: str) -> None:
    """What moves comes to all as its sender has it afterwards; what is summed up is near the exact sum."""
    options, count = FORMATS[name], 5000

    def call(comm: pccl.Communicator) -> list[str]:
        size, rank = comm.world_size, comm.rank
        mine, near = normal(rank, count), 0.9 if name.startswith("int2") else 0.3
        gathered = np.empty(size * count, np.float32)
        comm.all_gather(mine, gathered, quantization_options=options)
        in_place = np.zeros(size * count, np.float32)
        in_place[rank * count : (rank + 1) * count] = mine
        comm.all_gather(in_place[rank * count : (rank + 1) * count], in_place, quantization_options=options)
        np.testing.assert_array_equal(in_place, gathered)
        x = normal(1, count)
        if rank != 1:
            x[:] = 0
        comm.broadcast(x, 1, quantization_options=options)
        parts = [normal(10 * rank + to, count) for to in range(size)]
        received = np.empty(size * count, np.float32)
        comm.all_to_all(np.concatenate(parts), received, quantization_options=options)
        np.testing.assert_array_equal(received[rank * count : (rank + 1) * count], parts[rank])
        for source in range(size):
            got = received[source * count : (source + 1) * count]
            assert np.abs(got - normal(10 * source + rank, count)).mean() < near
        part = np.empty(count, np.float32)
        comm.reduce_scatter(np.concatenate(parts), part, op=ReduceOp.AVG, quantization_options=options)
        mean = sum(normal(10 * source + rank, count) for source in range(size)) / size
        assert np.abs(part - mean).mean() < near
        comm.reduce(mine, part, 0, quantization_options=options)
        if rank == 0:
            assert np.abs(part - sum(normal(source, count) for source in range(size))).mean() < 3 * near
        return [bits(gathered), bits(x)]

    with Local(SIZE) as local:
        results = local.all(call)
        assert all(it == results[0] for it in results)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_other_floats(dtype: str) -> None:
    def call(comm: pccl.Communicator) -> str:
        x = normal(comm.rank, 3000).astype(dtype)
        comm.all_reduce(x, op=ReduceOp.AVG, quantization_options=FORMATS["int8"])
        mean = sum(normal(rank, 3000).astype(dtype) for rank in range(SIZE)) / SIZE
        assert np.abs(x - mean).max() < 0.1
        return bits(x)

    with Local(SIZE) as local:
        assert len(set(local.all(call))) == 1


def test_many_arrays_and_uneven_parts() -> None:
    options = FORMATS["int8"]

    def call(comm: pccl.Communicator) -> list[str]:
        rank, counts = comm.rank, [100, 0, 3000]
        tensors = [normal(10 * rank + index, count) for index, count in enumerate((7, 0, 5000, 1, 1500))]
        errors = np.empty(6508, np.float32)
        comm.all_reduce_coalesced(tensors, quantization_options=options, errors=errors)
        gathered = np.empty(sum(counts), np.float32)
        comm.all_gather_v(normal(rank, counts[rank]), gathered, counts, quantization_options=options)
        part = np.empty(counts[rank], np.float32)
        lost = np.empty(sum(counts), np.float32)
        comm.reduce_scatter_v(normal(rank, 3100), counts, part, quantization_options=options, errors=lost)
        assert np.isfinite(lost).all()
        return [bits(it) for it in (*tensors, gathered)]

    with Local(SIZE) as local:
        results = local.all(call)
        assert all(it == results[0] for it in results)


@pytest.mark.parametrize("name", ["bfloat16", "uint8 min-max", "int8", "int4", "e4m3"])
def test_a_thousand_rounds_do_not_drift(name: str) -> None:
    """B81: averages of what all have the same of change nothing any more after the first round, and the first has no
    bias."""
    options = FORMATS[name]

    def call(comm: pccl.Communicator) -> tuple[float, float]:
        exact = np.mean([normal(rank, 20_000) for rank in range(comm.world_size)], axis=0)
        x = normal(comm.rank, 20_000)
        comm.all_reduce(x, op=ReduceOp.AVG, quantization_options=options)
        step = float(np.abs(x - exact).max())
        bias = float((x - exact).mean()) / step
        first = x.copy()
        for _ in range(1000):
            comm.all_reduce(x, op=ReduceOp.AVG, quantization_options=options)
        return float(np.abs(x - first).max()) / step, bias

    with Local(4) as local:
        for drift, bias in local.all(call):
            assert drift <= 1
            assert abs(bias) < 0.05


@pytest.mark.parametrize("name", ["int8", "int4", "int2", "bfloat16"])
@pytest.mark.parametrize("algorithm", ["auto", "ring"])
def test_with_feedback_sums_lose_nothing(name: str, algorithm: str) -> None:
    """Over all steps, what came out and what is still kept back add up to what went in."""
    options = FORMATS[name]

    def call(comm: pccl.Communicator) -> tuple[Floats, Floats, Floats]:
        feedback = pccl.ErrorFeedback()
        wanted, got = np.zeros(3000, np.float64), np.zeros(3000, np.float64)
        for step in range(20):
            x = normal(100 * step + comm.rank, 3000)
            wanted += x
            y = feedback.add("x", x)
            chosen = Algorithm[algorithm.upper()]
            comm.all_reduce(y, algorithm=chosen, quantization_options=options, errors=feedback.errors("x"))
            feedback.commit()
            got += y
        return wanted, got, feedback.state_dict()["x"]

    with Local(SIZE) as local:
        results = local.all(call)
        wanted, kept = sum(it[0] for it in results), sum(it[2] for it in results)
        for _, got, _ in results:
            np.testing.assert_allclose(got + kept, wanted, atol=1e-3)


def test_what_cannot_be_quantized_fails_on_all() -> None:
    options = FORMATS["uint8 min-max"]

    def call(comm: pccl.Communicator) -> str:
        x = normal(comm.rank, 4000)
        if comm.rank == 1:
            x[1234] = np.inf
        before = x.copy()
        with pytest.raises(pccl.QuantizationError, match=r"rank 1 cannot quantize its input's element 1234.*inf") as it:
            comm.all_reduce(x, quantization_options=options)
        np.testing.assert_array_equal(x, before)
        x[1234] = 0
        comm.all_reduce(x, quantization_options=options)
        assert np.isfinite(x).all()
        return str(it.value)

    with Local(SIZE) as local:
        assert len(set(local.all(call))) == 1


def test_not_finite_may_pass() -> None:
    options = QuantizationOptions("int8", QuantizationAlgorithm.BLOCK, block=64, nan="propagate")

    def call(comm: pccl.Communicator) -> str:
        x = normal(comm.rank, 4000)
        if comm.rank == 1:
            x[640] = np.inf
        comm.all_reduce(x, quantization_options=options)
        assert np.flatnonzero(np.isnan(x)).tolist() == list(range(640, 704))
        return bits(x)

    with Local(SIZE) as local:
        assert len(set(local.all(call))) == 1


def test_different_formats_are_a_mismatch() -> None:
    def reduce(name: str) -> Callable[[pccl.Communicator], object]:
        return lambda comm: comm.all_reduce(normal(0, 100), quantization_options=FORMATS[name])

    with Local(SIZE) as local:
        for text in local.refused([reduce("int8"), reduce("int8"), reduce("int4")], pccl.CollectiveMismatch):
            assert "quantization=int8_block" in text
            assert "quantization=int4_block" in text


def test_what_is_refused() -> None:
    x, options = np.zeros(8, np.float32), FORMATS["int8"]
    with Local(2) as local:
        comm = local.comms[0]
        for arguments, text in (
            ({"quantization_options": "int8"}, "is a str, not a QuantizationOptions"),
            ({"errors": x}, "errors are those of quantization"),
            ({"quantization_options": options, "errors": x[:4]}, "array of 8 float32"),
            ({"quantization_options": options, "errors": x}, "errors of all_reduce overlap its input"),
            ({"quantization_options": options, "op": ReduceOp.PROD}, "prod of all_reduce cannot be quantized"),
            ({"quantization_options": options, "deterministic": True}, "cannot be deterministic"),
            ({"quantization_options": options, "errors": x.copy(), "algorithm": Algorithm.DOUBLING}, "several members"),
        ):
            with pytest.raises(pccl.InvalidArgument, match=text):
                comm.all_reduce(x, **arguments)
        with pytest.raises(pccl.InvalidArgument, match="int32"):
            comm.all_reduce(np.zeros(8, np.int32), quantization_options=options)


def test_explain_says_whether_it_pays() -> None:
    with Local(2) as local:
        text = local.comms[0].explain_call(Collective.ALL_REDUCE, np.zeros(1 << 20, np.float32))
        assert "in full it takes" in text
        assert "int4_block takes" in text


@pytest.mark.parametrize("name", ["int8", "int4", "float16"])
def test_a_member_dies_anywhere(tmp_path: Path, name: str) -> None:
    """B79: calls without a pause; a member is killed in one of them. The survivors go on with equal bits."""
    with Run(tmp_path) as run:
        peers = [run.peer(streaming, name) for _ in range(SIZE)]
        for peer in peers:
            run.expect(peer, "begun")
        peers[1].kill()
        run.next_of(peers[1], "ended")
        sums = [run.expect(peer, "sum") for peer in (peers[0], peers[2])]
        assert sums[0] == sums[1]
        assert sums[0]["size"] == 2


def streaming(line: Line, address: str, name: str) -> None:
    """Averages until the group is smaller, and tells what that gave. All have the same number of rounds behind them, so
    each round's result is known to all."""
    with pccl.Communicator(address, min_world_size=1) as comm:
        comm.connect()
        gather(comm, SIZE)
        size = begun = 0
        while size != 2:
            x = np.random.default_rng(begun).standard_normal(LARGE, np.float32)
            before = x.copy()
            try:
                info = comm.all_reduce(x, op=ReduceOp.AVG, quantization_options=FORMATS[name])
            except pccl.PeerLost:
                np.testing.assert_array_equal(x, before)
                continue
            size, begun = info.world_size, begun + 1
            assert np.abs(x - before).max() < 1
            if begun == 1:
                line.send(kind="begun")
        line.send(kind="sum", size=size, rounds=begun, bits=bits(x))
