# SPDX-License-Identifier: MIT
"""Values of a sparse vector to bytes and back: all that a way to quantize depends on tells it from others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from pccl import DataType, InvalidArgument
from pccl.quantization import QuantizationAlgorithm, QuantizationOptions
from pccl.sparse_coding import Coding

BLOCK = QuantizationAlgorithm.BLOCK
WAYS = [
    {"quantized_datatype": "uint8"},
    {"quantized_datatype": "int8"},
    {"quantized_datatype": DataType.INT8, "algorithm": BLOCK},
    {"quantized_datatype": "int4"},
    {"quantized_datatype": "int4", "block": 64},
    {"quantized_datatype": "int4", "nan": "propagate"},
    {"quantized_datatype": "int4", "seed": 1},
    {"quantized_datatype": "int4", "seed": 2},
    {"quantized_datatype": "int4", "seed": 1, "rounding": "stochastic"},
    {"quantized_datatype": "int4", "seed": 1, "rotate": True},
    {"quantized_datatype": "bfloat16"},
]


def coding(**fields: Any) -> Coding:
    return Coding.of(QuantizationOptions(**fields), DataType.FLOAT32)


def test_every_way_has_a_number_and_a_text_of_its_own() -> None:
    ways = [Coding(), *(coding(**fields) for fields in WAYS)]
    assert len({it.number for it in ways}) == len({it.text for it in ways}) == len(ways)
    assert (Coding().number, Coding().text) == (0, "")
    assert all(0 < it.number < 2**64 and len(it.text) <= 88 for it in ways[1:])
    longest = {"quantized_datatype": "float8_e4m3fn", "seed": 2**64 - 1, "rounding": "stochastic", "rotate": True}
    assert len(coding(**longest, nan="propagate", block=65536).text) <= 88


@pytest.mark.parametrize("fields", WAYS)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("count", [0, 1, 1500])
def test_values_come_back_about_as_they_were(fields: dict[str, Any], dtype: Any, count: int) -> None:
    values = np.random.default_rng(1).standard_normal(count).astype(dtype)
    way = coding(**fields)
    coded = way.encode(values, 3)
    assert len(coded) == way.bytes(count, DataType.from_numpy_dtype(values.dtype))
    got = way.decode(coded, values, count, 3).view(dtype)
    assert np.sqrt(np.mean((got - values) ** 2)) <= np.abs(values).max() / 10 if count > 0 else len(coded) == 0


def test_tensors_and_exact_values() -> None:
    tensor = torch.arange(100).to(torch.bfloat16)
    for way in (Coding(), coding(quantized_datatype="bfloat16")):
        coded = way.encode(tensor, 0)
        assert len(coded) == way.bytes(100, DataType.BFLOAT16) == 200
        got = torch.from_numpy(way.decode(coded.copy(), tensor, 100, 0)).view(torch.bfloat16)
        assert torch.equal(got, tensor)


def test_ranks_draw_from_seeds_of_their_own() -> None:
    values = np.random.default_rng(1).standard_normal(500, np.float32)
    way = coding(quantized_datatype="int4", rounding="stochastic", seed=2**64 - 1, rotate=True)
    coded = [way.encode(values, rank) for rank in range(3)]
    assert len({it.tobytes() for it in coded}) == 3
    means = np.mean([way.decode(it, values, 500, rank).view(np.float32) for rank, it in enumerate(coded)], axis=0)
    assert np.abs(means - values).max() < np.abs(values).max()
    fixed = coding(quantized_datatype="int4", seed=5)
    assert fixed.encode(values, 0).tobytes() == fixed.encode(values, 1).tobytes()


def test_what_cannot_be_quantized_is_refused() -> None:
    options: Any = "int8"
    with pytest.raises(InvalidArgument, match="quantization_options is a str"):
        Coding.of(options, DataType.FLOAT32)
    with pytest.raises(InvalidArgument, match="values are int8, which cannot be quantized"):
        Coding.of(QuantizationOptions(), DataType.INT8)
    none = QuantizationOptions(algorithm=QuantizationAlgorithm.NONE)
    assert Coding.of(none, DataType.INT8) == Coding()
