# SPDX-License-Identifier: MIT
"""What gradients are sent as."""

from __future__ import annotations

import pytest
import torch

from pccl.torch import formats


@pytest.mark.parametrize("name", formats.FORMATS)
def test_packing_rounds_to_what_unpacking_tells(name: str) -> None:
    values = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    format = formats.named(name)
    back = format.unpacked(format.packed(values))
    assert back.dtype == torch.float32
    assert ((back - values).abs() <= values.abs() * torch.finfo(format.dtype).eps / 2).all()
    assert torch.equal(format.unpacked(format.packed(back)), back)


@pytest.mark.parametrize("name", formats.FORMATS)
def test_what_is_packed_shares_no_memory_with_the_values(name: str) -> None:
    format = formats.named(name)
    values = torch.ones(3, dtype=format.dtype)
    format.packed(values).zero_()
    assert values.tolist() == [1, 1, 1]


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match="no format 'int3': choose from bf16, fp16"):
        formats.named("int3")
