# SPDX-License-Identifier: MIT
"""Measured errors stay below the documented bounds, of all forms and over values of all kinds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from numpy.typing import NDArray

from pccl.enums import DataType
from pccl.quantization import QuantizationAlgorithm, QuantizationOptions
from tests.unit.test_quantization import FORMATS

KINDS = ("normal", "uniform", "heavy-tailed", "outliers", "negative", "offset", "constant", "mixed sizes")


def drawn(kind: str, count: int, scale: float, seed: int) -> NDArray[np.float64]:
    """Values of one kind."""
    random = np.random.default_rng(seed)
    normal = random.standard_normal(count)
    if kind == "uniform":
        normal = random.uniform(-1, 1, count)
    elif kind == "heavy-tailed":
        normal = random.standard_t(1.5, count)
    elif kind == "outliers":
        normal[random.random(count) < 0.01] *= 100
    elif kind == "negative":
        normal = -np.abs(normal) - 3
    elif kind == "offset":
        normal += 1000
    elif kind == "constant":
        normal[:] = normal[:1]
    elif kind == "mixed sizes":
        normal *= 2.0 ** random.integers(-60, 10, count)
    return scale * normal


options_of_all_kinds = some.builds(
    lambda form, block, rounding, rotate, seed: QuantizationOptions(
        form[1],
        form[0],
        block=1024 if form[0] == QuantizationAlgorithm.CAST else 32 * block,
        rounding=rounding,
        rotate=rotate and form[0] != QuantizationAlgorithm.CAST,
        seed=seed,
    ),
    some.sampled_from(FORMATS),
    some.sampled_from([1, 2, 3, 32, 33, 64]),
    some.sampled_from(["nearest", "stochastic"]),
    some.booleans(),
    some.integers(0, 2**64 - 1),
)


@given(
    options_of_all_kinds,
    some.sampled_from(KINDS),
    some.integers(1, 5000),
    some.sampled_from([1.0, 1e-30, 1e-41, 1e30]),
    some.sampled_from(["float32", "float64", "float16"]),
    some.integers(0, 2**32),
)
@settings(deadline=None, max_examples=400)
def test_no_value_is_farther_off_than_its_bound(
    options: QuantizationOptions, kind: str, count: int, scale: float, dtype: str, seed: int
) -> None:
    small = dtype == "float16" or options.quantized_datatype == DataType.FLOAT16
    x = drawn(kind, count, 1.0 if small else scale, seed).astype(dtype)
    x = np.clip(x, -2e4, 2e4) if small else x
    off = np.abs(options.round_trip(x).astype(np.float64) - x.astype(np.float64))
    bound = options.bound(x)
    worst = int(np.argmax(off - bound))
    assert off[worst] <= bound[worst], f"value {worst} of {count}: {x[worst]!r} is off by {off[worst]}"


@given(some.sampled_from(["uint8", "int8"]), some.integers(0, 2**32), some.sampled_from([0.0, 10.0, -10.0, 1000.0]))
@settings(deadline=None, max_examples=100)
def test_min_max_is_as_good_with_an_offset(name: str, seed: int, offset: float) -> None:
    options = QuantizationOptions(name, QuantizationAlgorithm.MIN_MAX)
    x = np.random.default_rng(seed).uniform(-1, 1, 5000)
    centred, moved = x.astype(np.float32), (x + offset).astype(np.float32)
    errors = [np.square(options.round_trip(it) - it).mean() for it in (centred, moved)]
    assert errors[1] <= errors[0] * 1.05 + (abs(offset) * 2.0**-23) ** 2


@pytest.mark.parametrize("name", ["int8", "int4", "float8_e4m3fn"])
def test_rotated_errors_are_bounded_together(name: str) -> None:
    """Their root mean square is that of the coefficients' errors, times the root of their count."""
    options = QuantizationOptions(name, QuantizationAlgorithm.BLOCK, rotate=True, seed=1)
    for kind in KINDS:
        x = drawn(kind, 1024, 1.0, 5).astype(np.float32)
        off = options.round_trip(x) - x
        assert np.sqrt(np.square(off, dtype=np.float64).mean()) <= options.bound(x)[0] / 32


def test_bounds_are_not_far_from_what_is_measured() -> None:
    x = drawn("normal", 100_000, 1.0, 1).astype(np.float32)
    for algorithm, name in FORMATS:
        options = QuantizationOptions(name, algorithm)
        off, bound = np.abs(options.round_trip(x) - x), options.bound(x)
        assert bound.shape == x.shape
        assert (off / bound).max() > 0.85


def test_thousand_rounds_neither_drift_nor_change_what_is_settled() -> None:
    x = drawn("normal", 3000, 1.0, 2).astype(np.float32)
    for algorithm, name in FORMATS:
        options = QuantizationOptions(name, algorithm)
        first = options.round_trip(x)
        again = first
        for _ in range(1000):
            again = options.round_trip(again)
        step = 2 * options.bound(x)
        assert np.all(np.abs(again - first) <= step)
        assert np.all(np.abs(again - x) <= 1.5 * step)
        assert abs((again - x).mean()) < 0.05 * step.max()
        if algorithm != QuantizationAlgorithm.ZERO_POINT_SCALE:
            assert np.array_equal(again, first)
