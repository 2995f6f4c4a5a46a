# SPDX-License-Identifier: MIT
"""What other backends compute wrong: sums at the borders of a format, means that are sums."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

from tests.torch.ranks import Rank, Ranks

pytestmark = pytest.mark.process

PAIRWISE: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "SUM": torch.add,
    "PRODUCT": torch.mul,
    "MIN": torch.minimum,
    "MAX": torch.maximum,
}


def every_half(rank: Rank) -> None:
    """All bit patterns, against a permutation of them."""
    patterns = torch.arange(65536, dtype=torch.int32).to(torch.uint16)
    shuffled = patterns.view(torch.int16)[torch.randperm(65536, generator=torch.Generator().manual_seed(1))]
    with rank.group():
        for dtype in (torch.float16, torch.bfloat16):
            both = patterns.view(dtype), shuffled.view(dtype)
            for name, reference in PAIRWISE.items():
                x = both[rank.rank].clone()
                dist.all_reduce(x, op=getattr(dist.ReduceOp, name))
                expected = reference(*both)
                real = ~expected.isnan()
                assert torch.equal(x.isnan(), ~real), (dtype, name)
                zeros = (x == 0) & (expected == 0) if name in ("MIN", "MAX") else torch.zeros_like(real)  # no order
                same = x.view(torch.int16) == expected.view(torch.int16)
                assert (same | zeros)[real].all(), (dtype, name, (~same & real).sum())


def test_halves_are_those_of_torch_bit_by_bit(ranks: Ranks, form: str) -> None:
    """B1."""
    ranks.run(every_half, 2, form)


def own(rank: int, count: int) -> torch.Tensor:
    return torch.arange(count, dtype=torch.float32) + 30 * rank


def mean_of(world: int, count: int) -> torch.Tensor:
    return torch.stack([own(it, count) for it in range(world)]).sum(0) / world


def means(rank: Rank) -> None:
    me, world, avg = rank.rank, rank.world, dist.ReduceOp.AVG
    with rank.group():
        for count in (12, 7):
            x = own(me, count)
            dist.all_reduce(x, op=avg)
            torch.testing.assert_close(x, mean_of(world, count))
            x = own(me, count)
            dist.reduce(x, 1, op=avg)
            torch.testing.assert_close(x, mean_of(world, count) if me == 1 else own(me, count))
            into, whole = torch.zeros(count), mean_of(world, count * world).view(world, count)
            dist.reduce_scatter(into, list(own(me, count * world).view(world, count).unbind()), op=avg)
            torch.testing.assert_close(into, whole[me])
            into = torch.zeros(count)
            dist.reduce_scatter_tensor(into, own(me, count * world), op=avg)
            torch.testing.assert_close(into, whole[me])
        lengths = [5, 0, 2]
        uneven = torch.zeros(lengths[me])
        dist.reduce_scatter(uneven, list(own(me, 7).split(lengths)), op=avg)
        torch.testing.assert_close(uneven, mean_of(world, 7).split(lengths)[me])
        many = [torch.zeros(2), torch.zeros(5)]
        with dist._coalescing_manager():
            for it in many:
                dist.reduce_scatter_tensor(it, own(me, it.numel() * world), op=avg)
        for it in many:
            torch.testing.assert_close(it, mean_of(world, it.numel() * world).view(world, -1)[me])
        many = [own(me, 3), own(me, 4)]
        with dist._coalescing_manager():
            for it in many:
                dist.all_reduce(it, op=avg)
        for it in many:
            torch.testing.assert_close(it, mean_of(world, it.numel()))


def test_a_mean_is_one_in_every_form(ranks: Ranks, form: str) -> None:
    """B6."""
    ranks.run(means, 3, form)
