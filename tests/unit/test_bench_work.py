# SPDX-License-Identifier: MIT
"""The values that the bench checks: right results of every collective pass, and any wrong element does not."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest
from numpy.typing import NDArray

from pccl.bench.formats import COLLECTIVES
from pccl.bench.work import PAIRED, ROOT, Shape, Work, values
from pccl.cli.bench import Op

PEERS = 3
OPS = [op for op in get_args(Op) if op != "barrier"]


def perform(op: str, ranks: list[Work]) -> list[NDArray[Any] | None]:
    """The collective, spelt out; None where nothing is promised."""
    sources = [work.source.copy() for work in ranks]
    if op in ("all_reduce", "reduce", "reduce_scatter"):
        total = sources[0] + sources[1] + sources[2]
        return {"all_reduce": [total] * 3, "reduce": [total, None, None], "reduce_scatter": np.split(total, 3)}[op]
    if op in ("all_gather", "gather"):
        whole = np.concatenate(sources)
        return [whole] * 3 if op == "all_gather" else [whole, None, None]
    if op == "all_to_all":
        blocks = [np.split(source, 3) for source in sources]
        return [np.concatenate([row[rank] for row in blocks]) for rank in range(3)]
    if op in ("scan", "exscan"):
        first, second = sources[0], sources[0] + sources[1]
        return [first, second, second + sources[2]] if op == "scan" else [None, first, second]
    if op in PAIRED:
        return [sources[1], sources[0], None]
    return [sources[ROOT]] * 3 if op == "broadcast" else list(np.split(sources[ROOT], 3))


@pytest.mark.parametrize("part", [0, 1])
@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint64"])
@pytest.mark.parametrize("op", OPS)
def test_a_right_result_is_right_and_any_wrong_element_is_not(op: str, dtype: str, in_place: bool, part: int) -> None:
    shape = Shape(op, 480, dtype, in_place, PEERS, inflight=2)
    ranks = [Work(shape, rank, part) for rank in range(PEERS)]
    for work in ranks:
        work.fill(step=7)
    for work, result in zip(ranks, perform(op, ranks), strict=True):
        if result is None:
            assert work.is_right(7)
            continue
        done_already = in_place and work.rank == 0 and op in ("broadcast", "scatter", "scan")
        assert work.is_right(7) == done_already
        work.target[:] = result
        assert work.is_right(7)
        assert not work.is_right(8)
        for index in (0, -1):
            work.target[index] += 1
            assert not work.is_right(7)
            work.target[index] -= 1
        work.clear()
        assert not work.source.any()
        assert not work.target.any()


@pytest.mark.parametrize("op", OPS)
def test_in_place_means_one_memory_except_in_pairs_and_out_of_place_two(op: str) -> None:
    for rank in range(PEERS):
        inside, outside = (Work(Shape(op, 240, "float32", in_place, PEERS), rank) for in_place in (True, False))
        alone = op in PAIRED or (rank != ROOT and op in ("gather", "scatter"))
        assert np.shares_memory(inside.source, inside.target) == (not alone)
        assert not np.shares_memory(outside.source, outside.target)


@pytest.mark.parametrize("op", [*OPS, "barrier"])
def test_a_size_counts_the_larger_side_of_all_operations_in_flight(op: str) -> None:
    shape = Shape(op, 1200, "float32", False, PEERS, inflight=4)
    assert shape.actual_size == (0 if op == "barrier" else 1200)
    work = Work(shape, ROOT)
    larger = max(work.source.nbytes, work.target.nbytes)
    assert 4 * larger == (shape.actual_size or 1200)
    assert Shape(op, 1, "float32", False, PEERS, inflight=4).count == 1


def test_values_differ_by_element_rank_and_step() -> None:
    seen = [values("float32", 100, rank, step).tobytes() for rank in range(3) for step in range(3)]
    assert len(set(seen)) == 9
    assert len(set(values("float32", 100, 0, 0))) == 100


@pytest.mark.parametrize("dtype", ["int8", "float32"])
def test_blocks_that_two_ranks_exchange_differ(dtype: str) -> None:
    for count in (1, 2, 3, 5, 80, 8192):
        for one in range(8):
            for other in range(one):
                sent = values(dtype, 8 * count, one, 0)[other * count :][:count]
                received = values(dtype, 8 * count, other, 0)[one * count :][:count]
                assert not np.array_equal(sent, received), (count, one, other)


@pytest.mark.parametrize("op", COLLECTIVES)
def test_errors_of_what_is_quantized_are_measured(op: str) -> None:
    """Relative to the range of values; sums are averages, and what is the same on all ranks has a digest."""
    shape = Shape(op, 48_000, "float32", False, PEERS, quantized=True)
    ranks = [Work(shape, rank) for rank in range(PEERS)]
    for work in ranks:
        work.fill(step=7)
        assert not work.is_right(7)
    span = max(it.source.max() for it in ranks) - min(it.source.min() for it in ranks)
    assert 4 < span < 20, "as gradients have them"
    for work, result in zip(ranks, perform(op, ranks), strict=True):
        assert result is not None
        work.target[:] = result / PEERS if shape.averages else result
        assert work.errors(7)[0] < 1e-6
        work.target[5] += span / 4
        largest, rms = work.errors(7)
        assert largest == pytest.approx(0.25, rel=1e-3)
        assert rms == pytest.approx(0.25 / np.sqrt(len(work.target)), rel=1e-3)
        assert work.is_right(7)
        work.clear()
        assert work.errors(7)[0] == largest, "it keeps its values"
        work.target[5] = np.nan
        assert not work.is_right(7)
    digests = {work.digest() for work in ranks}
    assert digests == {""} if op in ("reduce_scatter", "all_to_all") else len(digests) == 1
