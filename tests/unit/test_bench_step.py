# SPDX-License-Identifier: MIT
"""A training step as a benchmark's work: so many parameters, and only the right gradients are right."""

from __future__ import annotations

import pytest
import torch

from pccl.bench.step import Step
from pccl.bench.work import Shape


def step(count: int, peers: int = 1) -> Step:
    return Step(Shape("ddp", 4 * count, "float32", True, peers), 0)


@pytest.mark.parametrize("count", [1, 11, 12, 5000, 100_001])
def test_the_model_has_as_many_parameters_as_are_asked_for(count: int) -> None:
    assert sum(it.numel() for it in step(count).model.parameters()) == count


def test_right_gradients_are_right_and_others_are_not() -> None:
    work = step(5000)
    call = work.bound(work.model)
    for number in (1, 2):
        work.fill(number)
        call()
        assert work.is_right(number)
    work.fill(3)
    call()
    grad = next(work.model.parameters()).grad
    assert grad is not None
    with torch.no_grad():
        grad.view(-1)[7] += 0.01
    assert not work.is_right(3)


def test_gradients_of_this_rank_alone_are_not_the_average() -> None:
    work = step(5000, peers=2)
    work.fill(1)
    work.bound(work.model)()
    assert not work.is_right(1)
