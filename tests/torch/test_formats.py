# SPDX-License-Identifier: MIT
"""What gradients are sent as."""

from __future__ import annotations

import pytest
import torch

from pccl import QuantizationAlgorithm, QuantizationOptions
from pccl.torch import formats


@pytest.mark.parametrize("name", formats.CASTS)
def test_packing_rounds_to_what_unpacking_tells(name: str) -> None:
    values = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    format = formats.CASTS[name]
    back = format.unpacked(format.packed(values))
    assert back.dtype == torch.float32
    assert ((back - values).abs() <= values.abs() * torch.finfo(format.dtype).eps / 2).all()
    assert torch.equal(format.unpacked(format.packed(back)), back)


@pytest.mark.parametrize("name", formats.CASTS)
def test_what_is_packed_shares_no_memory_with_the_values(name: str) -> None:
    format = formats.CASTS[name]
    values = torch.ones(3, dtype=format.dtype)
    format.packed(values).zero_()
    assert values.tolist() == [1, 1, 1]


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match="no format 'int3': choose from bf16, fp16"):
        formats.named("int3")


def test_a_name_is_that_of_options_which_let_scalers_of_losses_see_what_is_not_finite() -> None:
    for name in formats.QUANTIZED:
        assert formats.named(name) == formats.Quantized(name, QuantizationOptions(name, nan="propagate"))
    given = QuantizationOptions("int8", rounding="stochastic", seed=1)
    format = formats.named(given)
    assert isinstance(format, formats.Quantized)
    assert format == formats.Quantized("int8", given)
    assert format.reseeded(2).options == QuantizationOptions("int8", rounding="stochastic", seed=2)
    with pytest.raises(ValueError, match="NONE is no format"):
        formats.named(QuantizationOptions(algorithm=QuantizationAlgorithm.NONE))
