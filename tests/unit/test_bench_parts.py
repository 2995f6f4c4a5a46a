# SPDX-License-Identifier: MIT
"""The bench without processes: sizes, figures, how rows are shown."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from pccl.bench import chart, metrics, sizes
from pccl.bench.report import JsonReport, Quantized, Row, TableReport


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


@pytest.mark.parametrize(
    ("factor", "ops"),
    [
        (1.5, ["all_reduce"]),
        (0.75, ["reduce_scatter", "all_gather", "all_to_all", "gather", "scatter"]),
        (1.0, ["broadcast", "reduce", "scan", "exscan"]),
        (2.0, ["send_recv"]),
        (0.0, ["barrier"]),
    ],
)
def test_bus_bandwidth_has_the_factors_of_nccl_tests(factor: float, ops: list[str]) -> None:
    assert {op: metrics.bytes_per_byte(op, 4) for op in ops} == dict.fromkeys(ops, pytest.approx(factor))


def test_iterations_fill_a_batch_within_bounds() -> None:
    assert metrics.iterations_for([1_000_000, 2_500_000]) == 100
    assert metrics.iterations_for([1]) == metrics.ITERATIONS[1]
    assert metrics.iterations_for([10**12]) == metrics.ITERATIONS[0]


def rows() -> list[Row]:
    own = metrics.figures("all_reduce", 2, 4096, [1000, 2000, 3000])
    other = metrics.figures("all_reduce", 2, 4096, [5000, 6000, 7000])
    return [
        Row("all_reduce", name, 2, 4096, "float32", True, 1, False, 0, 0, "each", exact, via, algorithm, figures)
        for name, exact, via, algorithm, figures in (
            ("pccl", True, "shm", "ring", own),
            ("gloo", False, "tcp", "", other),
        )
    ]


def test_the_table_shows_ratios_and_what_was_wrong() -> None:
    lines: list[str] = []
    report = TableReport(lines.append)
    report.begin("all_reduce", ["pccl", "gloo"])
    report.rows(rows())
    assert lines[0].split()[:3] == ["all_reduce", "median", "us"]
    assert lines[1].split()[:2] == ["4K", "2.0"]
    assert lines[1][: lines[0].index("via") + 3].split()[-1] == "shm"
    assert lines[1][: lines[0].index("algorithm") + 9].split()[-1] == "ring"
    assert lines[1].split()[-4:] == ["6.0", "3.00x", "WRONG:", "gloo"]


def test_a_ratio_far_below_one_is_shown_all_the_same() -> None:
    lines: list[str] = []
    first, second = rows()
    TableReport(lines.append).rows([second, replace(first, figures=metrics.figures("all_reduce", 2, 4096, [12, 12]))])
    assert lines[0].split()[-3] == "0.0020x"


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
    assert (own["inflight"], own["transport"], own["algorithm"]) == (1, "shm", "ring")
    assert "speedup" not in own
    assert other["speedup"] == 3.0


def test_what_quantization_costs_stands_beside_what_it_gains() -> None:
    lines: list[str] = []
    quantized = Quantized("int8_block", 1056, 0.00234, 0.00056, 0.75)
    own, other = rows()
    own = replace(own, quantized=quantized)
    report = TableReport(lines.append)
    report.begin("all_reduce x16 int8_block", ["pccl", "pccl-exact"], quantized=True)
    report.rows([own, replace(other, contender="pccl-exact", exact=True)])
    assert lines[1][: lines[0].index("sent") + 4].split()[-1] == "1056"
    assert lines[1][: lines[0].index("max error") + 9].split()[-1] == "2.34e-03"
    assert lines[1][: lines[0].index("rms error") + 9].split()[-1] == "5.60e-04"
    assert lines[1].split()[-3:] == ["0.75", "6.0", "3.00x"]
    JsonReport(lines.append).rows([own, other])
    assert json.loads(lines[2]).items() >= {"format": "int8_block", "wire_bytes": 1056, "cpu": 0.75}.items()
    assert "format" not in json.loads(lines[3])


def test_the_chart_is_a_png(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name, drawn in (("two", rows()), ("one", rows()[:1])):
        chart.write(drawn, "a title", tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
