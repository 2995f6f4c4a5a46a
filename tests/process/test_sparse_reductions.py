# SPDX-License-Identifier: MIT
"""Sums of sparse vectors among several members: the same bits on all, whatever each gives, also while members die."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import pccl
from pccl import SparseSum
from pccl._native import hash128
from pccl.errors import QuantizationError
from pccl.fleet import Child, Line
from pccl.quantization import QuantizationOptions
from tests.process.harness import Run, gather
from tests.process.local import Local
from tests.process.test_exchange import Halting

pytestmark = pytest.mark.process

LENGTH = 5000
SIZE = 3

Vector = tuple[np.ndarray[Any, np.dtype[np.int64]], np.ndarray[Any, Any]]


def spread(rank: int, dtype: Any = np.float32) -> Vector:
    """As many as no other rank has, here and there, in no order; none of rank 1."""
    draw = np.random.default_rng(rank)
    count = 0 if rank == 1 else 40 + 30 * rank
    indices = draw.choice(LENGTH, count, replace=False)
    values = draw.standard_normal(count) * 1000
    return indices, values.astype(dtype)


def equal(rank: int) -> Vector:
    return np.arange(7, 4000, 13), np.float32(1.1) ** np.arange(308, dtype=np.float32) * np.float32(1 + rank)


def distinct(rank: int) -> Vector:
    indices = np.arange(rank, LENGTH, 10)
    return indices, np.float32(indices) - 3


def nothing(rank: int) -> Vector:
    return np.arange(0), np.float32([])


def everything(rank: int) -> Vector:
    return np.arange(LENGTH), np.random.default_rng(rank).standard_normal(LENGTH, np.float32)


def expected(vectors: list[Vector]) -> tuple[list[int], np.ndarray[Any, Any]]:
    """All indices, and the dense sum in order of ranks."""
    dense = np.zeros(LENGTH, vectors[0][1].dtype)
    for indices, values in vectors:
        dense[indices] += values
    return sorted(set().union(*(it[0].tolist() for it in vectors))), dense


def check(got: SparseSum, vectors: list[Vector]) -> None:
    indices, dense = expected(vectors)
    assert got.indices.tolist() == indices
    np.testing.assert_array_equal(got.dense(), dense)
    assert got.values.dtype == dense.dtype
    assert got.info.world_size == len(vectors)


@pytest.mark.parametrize("size", [2, 3, 4, 5])
@pytest.mark.parametrize("commit", ["each", "deferred"])
def test_sums_are_exact_and_the_same_on_all(size: int, commit: str) -> None:
    def call(comm: pccl.Communicator) -> list[bytes]:
        bits = []
        for kind in (spread, equal, distinct, nothing, everything):
            vectors = [kind(rank) for rank in range(size)]
            got = comm.all_reduce_sparse(*vectors[comm.rank], LENGTH)
            check(got, vectors)
            bits += [got.indices.tobytes(), got.values.tobytes()]
        vectors = [nothing(rank) if rank else everything(rank) for rank in range(size)]
        check(comm.all_reduce_sparse(*vectors[comm.rank], LENGTH), vectors)
        if commit == "deferred":
            comm.commit()
        return bits

    with Local(size, commit=commit) as local:
        results = local.all(call)
        assert all(it == results[0] for it in results)


@pytest.mark.parametrize(
    "options",
    [
        QuantizationOptions("int8"),
        QuantizationOptions("int4", rounding="stochastic", seed=7),
        QuantizationOptions("bfloat16"),
        QuantizationOptions("float8_e4m3fn", block=64, rotate=True, seed=1),
    ],
)
@pytest.mark.parametrize("size", [2, 4])
def test_quantized_sums_are_the_same_on_all(size: int, options: QuantizationOptions) -> None:
    """What each lacks is in its errors: all of them and the sum are what there was."""

    def call(comm: pccl.Communicator) -> tuple[bytes, Any, Any]:
        errors = np.zeros(LENGTH, np.float32)
        got = comm.all_reduce_sparse(*spread(comm.rank), LENGTH, quantization_options=options, errors=errors)
        assert got.info.tx_bytes < 400 * size + 4000
        return got.indices.tobytes() + got.values.tobytes(), got.dense(), errors

    with Local(size) as local:
        results = local.all(call)
        indices, exact = expected([spread(rank) for rank in range(size)])
        assert len({it[0] for it in results}) == 1
        lacking = np.sum([it[2] for it in results], axis=0)
        assert 0 < np.abs(lacking).max() < 1000 * size
        np.testing.assert_allclose(results[0][1] + lacking, exact, rtol=1e-5, atol=1e-2)
        assert not np.delete(lacking, indices).any()


def test_what_cannot_be_quantized_fails_on_all() -> None:
    def call(comm: pccl.Communicator, options: QuantizationOptions) -> SparseSum:
        values = np.float32([1, np.inf if comm.rank == 1 else 2])
        return comm.all_reduce_sparse([3, 7], values, LENGTH, quantization_options=options)

    with Local(3) as local:
        texts = local.failures(partial(call, options=QuantizationOptions("int8")), QuantizationError)
        assert len(set(texts)) == 1
        assert "rank 1" in texts[0]
        for got in local.all(partial(call, options=QuantizationOptions("int8", nan="propagate"))):
            assert np.isnan(got.values).all()


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "uint64", "float16", "float64"])
def test_every_dtype(dtype: str) -> None:
    def call(comm: pccl.Communicator) -> None:
        vectors = [spread(rank, dtype) for rank in range(3)]
        got = comm.all_reduce_sparse(*vectors[comm.rank], LENGTH)
        indices, dense = expected(
            [(it[0], it[1].astype(np.float32 if dtype == "float16" else dtype)) for it in vectors]
        )
        assert got.indices.tolist() == indices
        np.testing.assert_array_equal(got.dense(), dense.astype(dtype))

    with Local(3) as local, np.errstate(invalid="ignore"):
        local.all(call)


def test_tensors_give_tensors() -> None:
    def call(comm: pccl.Communicator) -> None:
        dense = torch.arange(12, dtype=torch.bfloat16).reshape(3, 4) * (1 - 2 * comm.rank)
        indices, values = pccl.top_k(dense, 5)
        got = comm.all_reduce_sparse(torch.from_numpy(indices), values, 12)
        assert got.values.dtype == torch.bfloat16
        assert torch.equal(got.dense(), torch.zeros(12, dtype=torch.bfloat16))
        assert got.indices.tolist() == [7, 8, 9, 10, 11]

    with Local(2) as local:
        local.all(call)


def test_inputs_may_be_changed_at_once() -> None:
    def call(comm: pccl.Communicator) -> None:
        vectors = [equal(rank) for rank in range(2)]
        indices, values = equal(comm.rank)
        first = comm.all_reduce_sparse_async(indices, values, LENGTH)
        indices[:], values[:] = 0, 0
        second = comm.all_reduce_sparse_async(*vectors[comm.rank], LENGTH)
        check(second.wait(), vectors)
        check(first.wait(), vectors)

    with Local(2) as local:
        local.all(call)


def test_in_subgroups() -> None:
    def call(comm: pccl.Communicator) -> None:
        ranks = [2, 0] if comm.rank in (0, 2) else [1, 3]
        group = comm.subgroup(ranks)
        vectors = [spread(rank) for rank in ranks]
        check(group.all_reduce_sparse(*vectors[group.rank], LENGTH), vectors)

    with Local(4) as local:
        local.all(call)


def test_calls_that_do_not_fit_together_fail_on_all() -> None:
    def sparse(length: int, dtype: Any) -> Callable[[pccl.Communicator], object]:
        return lambda comm: comm.all_reduce_sparse([1, 5], np.ones(2, dtype), length)

    def plain(comm: pccl.Communicator) -> object:
        return comm.all_gather_object("x")

    def coded(comm: pccl.Communicator) -> object:
        return comm.all_reduce_sparse([1], np.float32([1]), 10, quantization_options=QuantizationOptions("int8"))

    fits = sparse(10, np.float32)
    with Local(3) as local:
        for other, text in (
            (sparse(11, np.float32), r"length=10\), rank 2 calls .*length=11"),
            (sparse(10, np.float64), r"float32, length=10\), rank 2 calls .*float64"),
            (coded, r"length=10\), rank 2 calls .*length=10, int8 MIN_MAX of 1024\)"),
            (plain, "rank 0 calls all_reduce_sparse.*rank 2 calls all_gather_object"),
        ):
            texts = local.refused([fits, fits, other], pccl.CollectiveMismatch)
            assert texts[0] == texts[1]
            assert re.search(text, texts[0])
            assert "rank 0 calls all_reduce_sparse" in texts[2]
            local.all(fits)


def repeat(comm: pccl.Communicator, line: Line, commit: str) -> None:
    """Until it succeeds: the inputs are intact, and what is returned is right."""
    while True:
        epoch = comm.epoch
        vectors = [spread(2 + rank) for rank in range(comm.world_size)]
        indices, values = vectors[comm.rank]
        before = indices.copy(), values.copy()
        try:
            got = comm.all_reduce_sparse(indices, values, LENGTH, epoch=epoch)
            check(got, vectors)
            if commit == "deferred":
                comm.commit()
            return
        except pccl.PeerLost:
            assert (indices == before[0]).all()
            assert (values == before[1]).all()
            line.send(kind="lost")


def member(line: Line, address: str, commit: str) -> None:
    """Gathers, and calls what it is told to."""
    with Halting(line, address, commit=commit) as comm:
        comm.connect()
        while (told := line.receive()) is not None:
            if told["kind"] == "gather":
                gather(comm, SIZE)
                line.send(kind="there", rank=comm.rank)
            else:
                comm.left = told["halt"]
                repeat(comm, line, commit)
                line.send(kind="ended", size=comm.world_size)


def ranked(run: Run, peers: list[Child]) -> list[Child]:
    """All of them meet: by rank."""
    for peer in peers:
        peer.tell(kind="gather")
    ranks = [run.expect(peer, "there")["rank"] for peer in peers]
    return [peers[ranks.index(rank)] for rank in range(SIZE)]


@pytest.mark.parametrize("commit", ["each", "deferred"])
def test_a_member_dies_between_the_operations(tmp_path: Path, commit: str) -> None:
    """It has done none, one or both of them. One survivor has come as far, and goes on when the other one knows of the
    loss, if it is to."""
    with Run(tmp_path) as run:
        peers = [run.peer(member, commit) for _ in range(SIZE)]
        for done in range(3):
            peers = ranked(run, peers)
            spare = run.peer(member, commit)
            slow, victim, fast = peers
            lost = done < 2 or commit == "deferred"
            halting = [victim, slow] if done else []
            for peer in (fast, *halting):
                peer.tell(kind="call", halt=done if peer in halting else -1)
            for peer in halting:
                run.expect(peer, "halts")
            victim.kill()
            run.next_of(victim, "ended")
            if lost:
                run.expect(fast, "lost")
            slow.tell(kind="call", halt=-1)  # it goes on, or begins
            if lost and done:
                run.expect(slow, "lost")
            for peer in (slow, fast):
                assert (run.expect if done else run.next_of)(peer, "ended")["size"] in ([2] if lost else [2, 3])
            for peer in (slow, fast):
                peer.tell(kind="call", halt=-1)
            for peer in (slow, fast):
                assert run.next_of(peer, "ended")["size"] == 2
            peers = [slow, fast, spare]


def test_a_member_dies_anywhere(tmp_path: Path) -> None:
    """Calls without a pause, large enough to be killed in; whatever the survivors return is right, and the same."""
    with Run(tmp_path) as run:
        peers = [run.peer(streaming) for _ in range(SIZE)]
        for peer in peers:
            run.expect(peer, "begun")
        peers[1].kill()
        run.next_of(peers[1], "ended")
        sums = [run.expect(peer, "sum") for peer in (peers[0], peers[2])]
        assert sums[0] == sums[1]
        assert sums[0]["size"] == 2


def streaming(line: Line, address: str) -> None:
    """Calls until the group is smaller, and tells what that gave, exactly and quantized."""
    draw = np.random.default_rng(7)
    indices, values = draw.choice(10**7, 200_000, replace=False), draw.standard_normal(200_000, np.float32)
    options = QuantizationOptions("int8", rounding="stochastic", seed=9)
    with pccl.Communicator(address, min_world_size=1) as comm:
        comm.connect()
        gather(comm, SIZE)
        begun = False
        while True:
            try:
                exact = comm.all_reduce_sparse(indices, values, 10**7)
                coded = comm.all_reduce_sparse(indices, values, 10**7, quantization_options=options)
            except pccl.PeerLost:
                continue
            size = exact.info.world_size
            np.testing.assert_array_equal(exact.values, _times(values[np.argsort(indices)], size))
            np.testing.assert_array_equal(coded.indices, exact.indices)
            if size == coded.info.world_size:
                np.testing.assert_allclose(coded.values, exact.values, atol=0.1 * size)
            if coded.info.world_size < SIZE:
                break
            if not begun:
                line.send(kind="begun")
            begun = True
        line.send(kind="sum", size=coded.info.world_size, bits=hash128(coded.values.tobytes()).hex())


def _times(values: np.ndarray[Any, Any], size: int) -> np.ndarray[Any, Any]:
    """Added up one by one."""
    total = values.copy()
    for _ in range(size - 1):
        total += values
    return total
