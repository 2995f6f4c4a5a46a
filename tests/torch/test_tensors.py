# SPDX-License-Identifier: MIT
"""How tensors are handed to the engine: as they are, staged, as bytes, or not at all."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

import pccl
from pccl.torch import tensors


def test_plain_tensors_are_taken_as_they_are() -> None:
    x = torch.arange(6.0).view(2, 3)
    assert tensors.source(x, "x").data_ptr() == x.data_ptr()
    staged = tensors.target(x, "x")
    assert staged.memory.data_ptr() == x.data_ptr()
    assert staged.finish is None


def test_strided_tensors_are_staged_and_only_their_elements_written() -> None:
    x = torch.zeros(3, 4)
    staged = tensors.target(x[:, 1], "x", keep=True)
    assert staged.finish is not None
    assert staged.memory.is_contiguous()
    staged.memory.add_(1)
    staged.finish()
    assert x.sum() == x[:, 1].sum() == 3


def test_conjugates_are_resolved() -> None:
    x = torch.tensor([1 + 2j]).conj()
    assert not tensors.source(x, "x").is_conj()
    assert tensors.source(x, "x").tolist() == [1 - 2j]


def test_unknown_dtypes_move_as_bytes() -> None:
    x = torch.arange(8, dtype=torch.uint8).view(torch.float8_e4m3fnuz)
    assert tensors.source(x, "x").dtype == torch.uint8
    y = torch.zeros(12, dtype=torch.uint8).view(torch.float8_e5m2fnuz)
    assert tensors.source(y, "y").numel() == 12
    assert tensors.counts([y, y[:1]]) == [12, 1]
    with pytest.raises(TypeError, match="moved but not reduced"):
        tensors.reducible(y, "y")


def test_lists_go_through_one_buffer() -> None:
    parts = [torch.zeros(2), torch.zeros(0), torch.zeros(2, 2).t()]
    staged = tensors.apart(parts, "parts")
    assert staged.finish is not None
    staged.memory.copy_(torch.arange(6.0))
    staged.finish()
    assert [it.tolist() for it in parts] == [[0, 1], [], [[2, 3], [4, 5]]]
    assert tensors.joined(parts, "parts").tolist() == [0, 1, 2, 3, 4, 5]
    with pytest.raises(ValueError, match=r"parts\[1\] has dtype"):
        tensors.joined([torch.zeros(1), torch.zeros(1, dtype=torch.int8)], "parts")


@pytest.mark.parametrize(
    ("tensor", "text"),
    [
        (torch.zeros(2).to_sparse(), "not a plain dense tensor"),
        (torch.zeros(2, device="meta"), "meta"),
        ([1.0], "not a tensor"),
    ],
)
def test_what_has_no_dense_memory_is_refused(tensor: torch.Tensor, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        tensors.source(tensor, "x")
    with pytest.raises(ValueError, match=text):
        tensors.target(tensor, "x")


def test_expanded_tensors_may_be_read_but_not_written() -> None:
    x = torch.ones(1).expand(4)
    assert tensors.source(x, "x").tolist() == [1] * 4
    with pytest.raises(ValueError, match="share memory"):
        tensors.target(x, "x")


def test_torch_s_operations_have_counterparts() -> None:
    assert tensors.reduction(dist.ReduceOp.AVG) is pccl.ReduceOp.AVG
    assert tensors.reduction(dist.ReduceOp(dist.ReduceOp.BXOR)) is pccl.ReduceOp.BXOR
    assert tensors.reduction(dist._make_nccl_premul_sum(0.25)) == pccl.PremulSum(0.25)
    assert tensors.reduction(dist._make_nccl_premul_sum(torch.tensor([0.5]))) == pccl.PremulSum(0.5)
