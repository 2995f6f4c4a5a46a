# SPDX-License-Identifier: MIT
"""The bench without processes: sizes, figures, the values that are checked, how rows are shown."""

from __future__ import annotations

import json

import numpy as np
import pytest

from pccl.bench import metrics, run, sizes
from pccl.bench.report import JsonReport, Row, TableReport
from pccl.bench.work import Shape, Work, values


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4", [4]),
        ("4,1K,2m", [4, 1024, 2 << 20]),
        ("4..64", [4, 16, 64]),
        ("1K..5K,1GiB", [1024, 4096, 1 << 30]),
        ("64KB", [65536]),
    ],
)
def test_sizes_are_read_as_people_write_them(text: str, expected: list[int]) -> None:
    assert sizes.parse(text) == expected


@pytest.mark.parametrize("text", ["", "x", "4..", "-1", "0", "1.5M", "4,,5", "\u00b2", "8..4"])
def test_what_is_no_size_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a (size|range)"):
        sizes.parse(text)


@pytest.mark.parametrize("size", [4, 1000, 1024, 1536, 65536, 64 << 20, 1 << 30])
def test_a_size_that_is_shown_can_be_read_back(size: int) -> None:
    assert sizes.parse(sizes.show(size)) == [size]


def test_figures_follow_nccl_tests() -> None:
    times = metrics.slowest([[1000, 3000, 2000], [2000, 1000, 2000]])
    assert times == [2000, 3000, 2000]
    figures = metrics.figures("all_reduce", 4, 2_000_000, times)
    assert (figures.iterations, figures.min_us, figures.median_us) == (3, 2.0, 2.0)
    assert figures.algbw_gbs == pytest.approx(1000.0)
    assert figures.busbw_gbs == pytest.approx(1500.0)
    assert metrics.bytes_per_byte("all_gather", 4) == pytest.approx(0.75)


def test_iterations_fill_a_batch_within_bounds() -> None:
    assert metrics.iterations_for([1_000_000, 2_500_000]) == 100
    assert metrics.iterations_for([1]) == metrics.ITERATIONS[1]
    assert metrics.iterations_for([10**12]) == metrics.ITERATIONS[0]


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("op", ["all_reduce", "reduce_scatter", "all_gather", "broadcast"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint64"])
def test_a_right_result_is_right_and_any_wrong_element_is_not(op: str, dtype: str, in_place: bool) -> None:
    shape = Shape(op, 240, dtype, in_place, 3)
    ranks = [Work(shape, rank) for rank in range(3)]
    for work in ranks:
        work.fill(step=7)
    results = perform(op, ranks)
    for work, result in zip(ranks, results, strict=True):
        assert not work.is_right(7) or op == "broadcast"
        work.target[:] = result
        assert work.is_right(7)
        work.target[-1] += 1
        assert not work.is_right(7)
        work.clear()
        assert not work.source.any()
        assert not work.target.any()


def perform(op: str, ranks: list[Work]) -> list[np.ndarray]:
    """The collective, spelt out."""
    sources = [work.source.copy() for work in ranks]
    total = np.sum(sources, axis=0, dtype=sources[0].dtype) if op != "all_gather" else None
    if op == "all_reduce":
        return [total] * 3
    if op == "reduce_scatter":
        return np.split(total, 3)
    if op == "all_gather":
        return [np.concatenate(sources)] * 3
    return [sources[0]] * 3


def test_values_differ_by_element_rank_and_step() -> None:
    seen = [values("float32", 100, rank, step).tobytes() for rank in range(3) for step in range(3)]
    assert len(set(seen)) == 9
    assert len(set(values("float32", 100, 0, 0))) == 100


def rows() -> list[Row]:
    own = metrics.figures("all_reduce", 2, 4096, [1000, 2000, 3000])
    other = metrics.figures("all_reduce", 2, 4096, [5000, 6000, 7000])
    return [
        Row("all_reduce", name, 2, 4096, "float32", True, "each", exact, "shm" if name == "pccl" else "", figures)
        for name, exact, figures in (("pccl", True, own), ("gloo", False, other))
    ]


def test_the_table_shows_ratios_and_what_was_wrong() -> None:
    lines: list[str] = []
    report = TableReport(lines.append)
    report.begin("all_reduce", ["pccl", "gloo"])
    report.rows(rows())
    assert lines[0].split()[:3] == ["all_reduce", "median", "us"]
    assert lines[1].split()[:2] == ["4K", "2.0"]
    assert lines[1][: lines[0].index("via") + 3].split()[-1] == "shm"
    assert lines[1].split()[-4:] == ["6.0", "3.00x", "WRONG:", "gloo"]


def test_json_has_one_object_per_contender() -> None:
    lines: list[str] = []
    JsonReport(lines.append).rows(rows())
    own, other = map(json.loads, lines)
    assert (own["op"], own["contender"], own["bytes"], own["median_us"], own["exact"]) == (
        "all_reduce",
        "pccl",
        4096,
        2.0,
        True,
    )
    assert "speedup" not in own
    assert other["speedup"] == 3.0


def test_contenders_that_cannot_run_are_explained() -> None:
    assert run.missing(["socket"]) == []
    assert "choose from gloo, mpi, socket" in run.missing(["nccl"])[0]
    assert "choose from" in run.missing(["pccl"])[0]
