# SPDX-License-Identifier: MIT
"""The ledger of what rounding has kept back."""

from __future__ import annotations

import gc

import torch

from pccl.torch.residuals import Residuals


def _bucket(*counts: int) -> tuple[list[torch.nn.Parameter], list[int]]:
    return [torch.nn.Parameter(torch.zeros(count)) for count in counts], list(counts)


def test_nothing_is_there_at_first() -> None:
    assert Residuals().of(*_bucket(2, 3)) is None


def test_a_bucket_that_stays_as_it_was_gets_its_tensor_back() -> None:
    residuals, (keys, counts), values = Residuals(), _bucket(2, 3), torch.arange(5.0)
    residuals.put(keys, counts, values)
    assert residuals.of(keys, counts) is values


def test_buckets_may_be_made_anew() -> None:
    residuals, (keys, counts) = Residuals(), _bucket(2, 3, 1)
    residuals.put(keys[:2], counts[:2], torch.arange(5.0))
    residuals.put(keys[2:], counts[2:], torch.tensor([9.0]))
    found = residuals.of(keys[::-1], counts[::-1])
    assert found is not None
    assert found.tolist() == [9, 2, 3, 4, 0, 1]


def test_who_is_new_or_has_another_size_begins_at_zero() -> None:
    residuals, (keys, counts) = Residuals(), _bucket(2, 3)
    residuals.put(keys, counts, torch.ones(5))
    other, _ = _bucket(4)
    found = residuals.of([keys[0], other[0], keys[1]], [2, 4, 2])
    assert found is not None
    assert found.tolist() == [1, 1, 0, 0, 0, 0, 0, 0]


def test_undo_goes_back_to_what_was_settled() -> None:
    residuals, (keys, counts) = Residuals(), _bucket(2)
    residuals.put(keys, counts, torch.ones(2))
    residuals.settle()
    for value in (2.0, 3.0):
        residuals.put(keys, counts, torch.full((2,), value))
    residuals.undo()
    found = residuals.of(keys, counts)
    assert found is not None
    assert found.tolist() == [1, 1]


def test_undo_goes_back_to_zero_where_nothing_was_settled() -> None:
    residuals, (keys, counts) = Residuals(), _bucket(2)
    residuals.put(keys, counts, torch.ones(2))
    residuals.undo()
    assert residuals.of(keys, counts) is None


def test_the_residual_of_a_parameter_goes_with_it() -> None:
    residuals, (keys, counts) = Residuals(), _bucket(2)
    residuals.put(keys, counts, torch.ones(2))
    del keys
    gc.collect()
    again, counts = _bucket(2)  # perhaps at the same address
    assert residuals.of(again, counts) is None
