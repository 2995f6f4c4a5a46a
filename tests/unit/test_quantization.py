# SPDX-License-Identifier: MIT
"""Options as users write them: what they are refused for, and what they do to an array."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from pccl.enums import DataType
from pccl.errors import InvalidArgument, QuantizationError
from pccl.quantization import QuantizationAlgorithm, QuantizationOptions

FORMATS = [
    (QuantizationAlgorithm.MIN_MAX, "uint8"),
    (QuantizationAlgorithm.MIN_MAX, "int8"),
    (QuantizationAlgorithm.ZERO_POINT_SCALE, "uint8"),
    (QuantizationAlgorithm.ZERO_POINT_SCALE, "int8"),
    (QuantizationAlgorithm.CAST, "bfloat16"),
    (QuantizationAlgorithm.CAST, "float16"),
    (QuantizationAlgorithm.BLOCK, "int8"),
    (QuantizationAlgorithm.BLOCK, "int4"),
    (QuantizationAlgorithm.BLOCK, "int2"),
    (QuantizationAlgorithm.BLOCK, "float8_e4m3fn"),
    (QuantizationAlgorithm.BLOCK, "float8_e5m2"),
]
BITS = {"uint8": 8, "int8": 8, "bfloat16": 16, "float16": 16, "int4": 4, "int2": 2}
PARAMETERS = {
    QuantizationAlgorithm.MIN_MAX: 8,
    QuantizationAlgorithm.ZERO_POINT_SCALE: 8,
    QuantizationAlgorithm.CAST: 0,
    QuantizationAlgorithm.BLOCK: 4,
}


def normal(count: int = 5000) -> NDArray[np.float32]:
    return np.random.default_rng(1).standard_normal(count).astype(np.float32)


@pytest.mark.parametrize(("algorithm", "name"), FORMATS)
def test_an_array_becomes_as_many_bytes_as_the_form_says_and_comes_back_alike(
    algorithm: QuantizationAlgorithm, name: str
) -> None:
    options = QuantizationOptions(name, algorithm)
    for count in (0, 1, 17, 1024, 5000):
        x = normal(count)
        wire = options.quantize(x)
        assert wire.size == options.bytes(count)
        assert wire.size == -(-count // 1024) * PARAMETERS[algorithm] + -(-count * BITS.get(name, 8) // 8)
        y = options.dequantize(wire, count)
        assert y.dtype == np.float32
        assert np.array_equal(y, options.round_trip(x))
        assert np.all(np.abs(y - x) <= np.abs(x).max(initial=0) * 0.51)
        if name != "int2":
            assert count < 1000 or np.corrcoef(x, y)[0, 1] > 0.98


def test_the_algorithm_follows_from_the_type_where_one_says_nothing() -> None:
    assert QuantizationOptions() == QuantizationOptions("uint8", QuantizationAlgorithm.MIN_MAX)
    assert QuantizationOptions(DataType.INT8).algorithm == QuantizationAlgorithm.MIN_MAX
    assert QuantizationOptions("bfloat16").algorithm == QuantizationAlgorithm.CAST
    assert QuantizationOptions("int4").algorithm == QuantizationAlgorithm.BLOCK
    assert QuantizationOptions("float8_e5m2") == QuantizationOptions(DataType.FLOAT8_E5M2)


def test_what_cannot_be_is_refused_with_what_can() -> None:
    min_max, block = QuantizationAlgorithm.MIN_MAX, QuantizationAlgorithm.BLOCK
    for text, arguments in [
        ("nothing is quantized to int3; there are uint8", {"quantized_datatype": "int3"}),
        ("nothing is quantized to float32", {"quantized_datatype": DataType.FLOAT32}),
        (
            "MIN_MAX gives no int4; it gives uint8, int8",
            {"quantized_datatype": "int4", "algorithm": min_max},
        ),
        ("BLOCK gives no uint8", {"quantized_datatype": "uint8", "algorithm": block}),
        ("quantized_datatype is a int", {"quantized_datatype": 5}),
        ("algorithm is a str", {"algorithm": "MIN_MAX"}),
        ("block is 33", {"block": 33}),
        ("block must be a whole number from 32 to 65536, not 0", {"block": 0}),
        ("block must be", {"block": 65568}),
        ("a cast has no blocks", {"quantized_datatype": "float16", "block": 64}),
        ("a cast has no blocks", {"quantized_datatype": "float16", "rotate": True, "seed": 1}),
        ("need a seed", {"rounding": "stochastic"}),
        ("need a seed", {"rotate": True}),
        ("rounding is 'up'", {"rounding": "up"}),
        ("rotate is 1", {"rotate": 1}),
        ("seed must be", {"seed": -1}),
        ("seed must be", {"seed": 2**64}),
        ("nan is 'keep'", {"nan": "keep"}),
    ]:
        with pytest.raises(InvalidArgument, match=text):
            QuantizationOptions(**arguments)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="need a seed"):
        QuantizationOptions("int8", rounding="stochastic")


def test_none_is_no_form() -> None:
    options = QuantizationOptions(DataType.FLOAT, QuantizationAlgorithm.NONE)
    assert options.native().format == 0
    with pytest.raises(InvalidArgument, match="no form"):
        options.bytes(5)


def test_calls_carry_what_was_asked_for() -> None:
    native = QuantizationOptions(
        "int4", block=64, rounding="stochastic", seed=2**64 - 1, nan="propagate", rotate=True
    ).native()
    assert (native.format, native.block, native.seed) == (8, 64, 2**64 - 1)
    assert (native.stochastic, native.propagate, native.rotate) == (1, 1, 1)
    assert QuantizationOptions("float16").native().block == 0


def test_numbers_at_random_come_from_the_seed() -> None:
    x = normal()
    first = QuantizationOptions("int8", rounding="stochastic", seed=1)
    again, other = first.round_trip(x), QuantizationOptions("int8", rounding="stochastic", seed=2).round_trip(x)
    assert np.array_equal(first.round_trip(x), again)
    assert not np.array_equal(other, again)
    mean = np.mean(
        [QuantizationOptions("int8", rounding="stochastic", seed=seed).round_trip(x) for seed in range(400)], axis=0
    )
    assert np.abs(mean - x).max() < np.abs(again - x).max() / 3


def test_what_is_not_finite_is_an_error_or_makes_its_block_nan() -> None:
    x = normal(3000)
    x[1500] = np.inf
    with pytest.raises(QuantizationError, match="value 1500 of 3000 cannot be quantized to uint8_min_max"):
        QuantizationOptions().quantize(x)
    y = QuantizationOptions(nan="propagate").round_trip(x)
    assert np.array_equal(np.isnan(y), np.arange(3000) // 1024 == 1)
    with pytest.raises(QuantizationError, match="float16: it is not finite or too large"):
        QuantizationOptions("float16").quantize(np.array([1e5], np.float32))


def test_other_floats_and_outputs() -> None:
    options = QuantizationOptions("int8", QuantizationAlgorithm.BLOCK)
    wide = normal().astype(np.float64)
    assert options.round_trip(wide).dtype == np.float64
    half = options.round_trip(wide.astype(np.float16))
    assert half.dtype == np.float16
    assert np.abs(half - wide).max() < 0.03
    out = np.zeros(5000)
    assert options.dequantize(options.quantize(normal()), 5000, out=out) is out
    assert np.abs(out - wide).max() < 0.02
    with pytest.raises(InvalidArgument, match="out has 4 float32, not 5"):
        options.dequantize(options.quantize(normal(5)), 5, out=np.zeros(4, np.float32))
    with pytest.raises(InvalidArgument, match="5 values of this form are an array of 9 bytes"):
        options.dequantize(np.zeros(8, np.uint8), 5)
    with pytest.raises(InvalidArgument, match="int32 cannot be quantized to int8_block"):
        options.quantize(np.zeros(5, np.int32))
    with pytest.raises(InvalidArgument, match="not C-contiguous"):
        options.quantize(normal()[::2])


def test_tensors_stay_tensors() -> None:
    torch = pytest.importorskip("torch")
    options = QuantizationOptions("int8", QuantizationAlgorithm.BLOCK)
    x = torch.from_numpy(normal())
    y = options.round_trip(x)
    assert torch.equal(y, torch.from_numpy(options.round_trip(normal())))
    small = options.round_trip(x.bfloat16())
    assert small.dtype == torch.bfloat16
    assert (small.float() - x).abs().max() < 0.03


def test_a_rotation_keeps_ordinary_values_beside_outliers() -> None:
    x = normal(4096)
    x[::1000] *= 40
    plain = QuantizationOptions("int4").round_trip(x) - x
    rotated = QuantizationOptions("int4", rotate=True, seed=3).round_trip(x) - x
    assert np.square(rotated).mean() < np.square(plain).mean() / 4
