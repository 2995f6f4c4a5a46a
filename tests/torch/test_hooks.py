# SPDX-License-Identifier: MIT
"""Hooks without a group: what goes out, what is kept back, and what happens when a reduction fails. With real groups
they are scenarios of `test_comparison.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pccl.torch import hooks


class Bucket:
    """As DDP hands it to a hook."""

    def __init__(self, *gradients: list[float]) -> None:
        self._parameters = [torch.nn.Parameter(torch.zeros(len(it))) for it in gradients]
        self._buffer = torch.tensor([value for it in gradients for value in it])

    def buffer(self) -> torch.Tensor:
        return self._buffer

    def set_buffer(self, buffer: torch.Tensor) -> None:
        self._buffer = buffer

    def fill(self, *values: float) -> None:
        self._buffer = torch.tensor(values)

    def parameters(self) -> list[torch.nn.Parameter]:
        return self._parameters


class Group:
    """Of so many ranks, which all bring the same."""

    def __init__(self, ranks: int, failure: Exception | None = None) -> None:
        self.ranks = ranks
        self.failure = failure

    def size(self) -> int:
        return self.ranks

    def all_reduce(self, tensor: torch.Tensor, group: Any, async_op: bool = False) -> Any:
        assert group is self
        done: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future()
        if self.failure is not None:
            done.set_exception(self.failure)
        else:
            tensor.mul_(self.ranks)
            done.set_result([tensor])
        self.get_future: Callable[[], Any] = lambda: done
        return self

    def reduce_scatter(self, received: torch.Tensor, sent: torch.Tensor, group: Any) -> None:
        assert group is self
        received.copy_(sent.chunk(self.ranks)[1] * self.ranks)


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Group:
    made = Group(2)
    monkeypatch.setattr(hooks.dist, "all_reduce", made.all_reduce)
    monkeypatch.setattr(hooks.dist, "reduce_scatter_single", made.reduce_scatter, raising=False)
    return made


FINE = 1 + 2**-9  # bf16 takes it for 1
KEPT = 2**-9


def test_what_rounding_keeps_back_goes_out_with_the_next_step(group: Group) -> None:
    compression, bucket = hooks.Compression("bf16", group), Bucket([FINE], [2.0])
    first, second = bucket.parameters()
    sums = torch.zeros(2)
    for kept in (1, 2, -1, 0):  # in steps of 2**-9; a residual of 3 is sent as a whole step of the format, which has 4
        bucket.fill(FINE, 2.0)
        sums += hooks.all_reduce(compression, bucket).wait()
        assert compression.residual(first).tolist() == [kept * KEPT]
        assert compression.residual(second).tolist() == [0]
    assert sums.tolist() == [4 * FINE, 8.0]


def test_without_feedback_nothing_is_kept_back(group: Group) -> None:
    compression, bucket = hooks.Compression("bf16", group, error_feedback=False), Bucket([FINE])
    assert hooks.all_reduce(compression, bucket).wait().tolist() == [1]
    assert compression.residual(bucket.parameters()[0]) is None


def test_a_failed_reduction_leaves_residuals_as_they_were(group: Group) -> None:
    compression, bucket = hooks.Compression("bf16", group), Bucket([FINE])
    hooks.all_reduce(compression, bucket).wait()
    before = compression.residual(bucket.parameters()[0])
    group.failure = RuntimeError("rank 1 is lost")
    bucket.fill(FINE)
    with pytest.raises(RuntimeError, match="rank 1 is lost"):
        hooks.all_reduce(compression, bucket).wait()
    assert torch.equal(compression.residual(bucket.parameters()[0]), before)
    assert bucket.buffer().tolist() == [FINE]


def test_the_residual_does_not_depend_on_how_many_ranks_there_are(group: Group) -> None:
    compression, bucket = hooks.Compression("bf16", group), Bucket([FINE])
    hooks.all_reduce(compression, bucket).wait()
    assert compression.residual(bucket.parameters()[0]).tolist() == [KEPT]
    group.ranks = 4
    bucket.fill(FINE)
    hooks.all_reduce(compression, bucket).wait()
    assert compression.residual(bucket.parameters()[0]).tolist() == [2 * KEPT]


def test_what_is_not_finite_goes_out_and_is_not_kept(group: Group) -> None:
    compression, bucket = hooks.Compression("fp16", group), Bucket([1e6, float("nan"), float("inf"), 1.0])
    result = hooks.all_reduce(compression, bucket).wait()
    assert [str(it) for it in result.tolist()] == ["inf", "nan", "inf", "1.0"]
    assert compression.residual(bucket.parameters()[0]).tolist() == [0, 0, 0, 0]


def test_a_step_can_be_taken_back(group: Group) -> None:
    compression, bucket = hooks.Compression("bf16", group), Bucket([FINE])
    hooks.all_reduce(compression, bucket).wait()
    compression.settle()
    bucket.fill(FINE)
    hooks.all_reduce(compression, bucket).wait()
    compression.undo()
    assert compression.residual(bucket.parameters()[0]).tolist() == [KEPT]


def test_around_another_hook(group: Group) -> None:
    compression, bucket, seen = hooks.Compression("bf16"), Bucket([FINE]), []

    def inner(state: str, bucket: Bucket) -> torch.futures.Future[torch.Tensor]:
        seen.append((state, bucket.buffer().dtype, bucket.buffer().tolist()))
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        done.set_result(bucket.buffer() * 3)
        return done

    outer = bucket.buffer()
    result = compression.around(inner)("state", bucket).wait()
    assert seen == [("state", torch.bfloat16, [1.0])]
    assert result is outer
    assert result.tolist() == [3.0]
    assert compression.residual(bucket.parameters()[0]).tolist() == [KEPT]


def test_reduce_scatter_scales_as_it_is_told(group: Group) -> None:
    for op, scale in ((hooks.dist.ReduceOp.AVG, 0.5), (hooks.dist.ReduceOp.SUM, 1.0)):
        call = hooks.ReduceScatter(hooks.Compression("bf16"))
        target = call.allocate((1,), dtype=torch.float32, device=torch.device("cpu"))
        call(target, torch.tensor([2.0, FINE]), group, op)
        assert target.tolist() == [2 * scale]
        call(target, torch.tensor([2.0, FINE + 2 * KEPT]), group, op)
        assert target.tolist() == [2 * scale * (1 + 4 * KEPT)]


def test_reduce_scatter_refuses_what_it_cannot_do(group: Group) -> None:
    call, target = hooks.ReduceScatter(hooks.Compression("bf16")), torch.zeros(1)
    with pytest.raises(ValueError, match="is a sum"):
        call(target, torch.zeros(2), group, hooks.dist.ReduceOp.MAX)
    with pytest.raises(ValueError, match="async_op must be False"):
        call(target, torch.zeros(2), group, hooks.dist.ReduceOp.SUM, async_op=True)


def test_a_model_that_is_not_sharded_is_refused() -> None:
    with pytest.raises(ValueError, match="fully_shard was called for no module"):
        hooks.Compression("bf16").shard(torch.nn.Linear(2, 2))
