# SPDX-License-Identifier: MIT
"""Times that follow a line are near it, and one that does not is found, wherever it is."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pccl.bench import fit, metrics
from pccl.bench.report import Row

SIZES = [1 << power for power in range(10, 27)]


def row(size: int, time_us: float, contender: str = "pccl") -> Row:
    figures = metrics.figures("all_reduce", 2, size, [max(1, round(1000 * time_us))] * 3)
    return Row("all_reduce", contender, 2, size, "float32", True, 1, False, 0, 0, "each", True, "tcp", "ring", figures)


def series(latency_us: float, gbs: float, contender: str = "pccl") -> list[Row]:
    return [row(size, latency_us + size / gbs / 1e3, contender) for size in SIZES]


@given(st.floats(1, 1000), st.floats(0.05, 20))
def test_a_line_is_found(latency_us: float, gbs: float) -> None:
    (found,) = fit.fits(series(latency_us, gbs))
    assert found.latency_us == pytest.approx(latency_us, rel=0.02)
    assert found.bandwidth_gbs == pytest.approx(gbs, rel=0.02)
    assert found.far == found.ragged == ()


@pytest.mark.parametrize("place", range(len(SIZES)))
@pytest.mark.parametrize("times", [6.0, 100.0])
def test_a_size_that_stalls_is_found_and_bends_nothing(place: int, times: float) -> None:
    rows = series(10.0, 2.0)
    rows[place] = row(SIZES[place], times * rows[place].figures.median_us)
    (found,) = fit.fits(rows)
    assert found.far == (SIZES[place],)
    assert max(fit.as_object(found)["times"].values()) > fit.FAR  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("sizes", "times", "expected"),
    [([1, 2, 3], [1, 2, 3], (0, 1)), ([1, 2, 100], [1, 10, 600], (0, None)), ([1, 2, 3], [3, 2, 1], (None, 0))],
)
def test_neither_part_is_negative(
    sizes: list[float], times: list[float], expected: tuple[float | None, float | None]
) -> None:
    found = fit.line(np.array(sizes, float), np.array(times, float))
    for part, wanted in zip(found, expected, strict=True):
        assert part > 0 if wanted is None else part == pytest.approx(wanted, abs=1e-9)


def test_each_contender_has_its_own() -> None:
    ours, theirs = series(10.0, 2.0), series(300.0, 1.0, "gloo")
    ragged = replace(theirs[3], figures=replace(theirs[3].figures, p99_us=1e6))
    found = fit.fits([*(one for pair in zip(ours, [*theirs[:3], ragged, *theirs[4:]], strict=True) for one in pair)])
    assert [one.contender for one in found] == ["pccl", "gloo"]
    assert found[1].ragged == (SIZES[3],)
    assert fit.as_lines(found[0])[0].startswith("pccl: 10.0 us + size / 2.000 GB/s; farthest: ")
    assert fit.as_lines(found[1])[1:] == ["gloo: RAGGED: 8K, p99 > 10x median"]
    assert json.loads(fit.lines(theirs, as_json=True)[0])["far"] == []
    assert fit.as_object(found[1])["ragged"] == [SIZES[3]]


def test_where_size_does_not_matter_it_says_so() -> None:
    (found,) = fit.fits([row(size, 50.0 - index) for index, size in enumerate(SIZES)])
    assert "us at any size; farthest: " in fit.as_lines(found)[0]
    assert fit.as_object(found)["bandwidth_gbs"] is None


def test_too_few_sizes_have_none() -> None:
    assert fit.fits(series(1.0, 1.0)[:2]) == []
