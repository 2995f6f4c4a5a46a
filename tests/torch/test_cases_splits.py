# SPDX-License-Identifier: MIT
"""Parts that differ in length, down to none and up to many megabytes."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.torch.ranks import Rank, Ranks

pytestmark = pytest.mark.process


def coded(source: int, target: int, count: int) -> torch.Tensor:
    """Elements that tell whence, whither and which."""
    return torch.arange(count) + (source * 100 + target << 40)


def exchange(rank: Rank, matrix: list[list[int]]) -> None:
    me, ranks = rank.rank, range(rank.world)
    given = torch.cat([coded(me, it, matrix[me][it]) for it in ranks])
    incoming = [matrix[it][me] for it in ranks]
    into = torch.full((sum(incoming),), -1)
    dist.all_to_all_single(into, given, incoming, matrix[me])
    for it, part in enumerate(into.split(incoming)):
        assert torch.equal(part, coded(it, me, incoming[it])), (it, me)


def random_splits(rank: Rank, rounds: int, largest: int) -> None:
    draw = random.Random(rank.world)
    with rank.group():
        for _ in range(rounds):
            bound = draw.choice([0, 3, 1000, largest])
            exchange(rank, [[draw.randint(0, bound) for _ in range(rank.world)] for _ in range(rank.world)])


@pytest.mark.parametrize(("world", "rounds", "largest"), [(5, 20, 20_000), (8, 10, 5_000)])
def test_all_to_all_with_any_splits(ranks: Ranks, form: str, world: int, rounds: int, largest: int) -> None:
    """B16."""
    ranks.run(random_splits, world, form, rounds, largest)


@pytest.mark.heavy
@pytest.mark.parametrize("world", [5, 8])
def test_all_to_all_with_large_splits(ranks: Ranks, form: str, world: int) -> None:
    """B16: parts of up to 20 MB."""
    ranks.run(random_splits, world, form, 50, 2_500_000)


def nothing_for_some(rank: Rank) -> None:
    ranks = range(rank.world)
    with rank.group():
        for matrix in (
            [[0 if it == 1 else 3 for _ in ranks] for it in ranks],  # rank 1 sends nothing
            [[0 if it == 2 else 3 for it in ranks] for _ in ranks],  # rank 2 receives nothing
            [[0 for _ in ranks] for _ in ranks],
            [[7 if (it, other) == (0, 2) else 0 for other in ranks] for it in ranks],
        ):
            exchange(rank, matrix)
        into: list[torch.Tensor] = [torch.zeros(it) for it in ranks]
        dist.all_to_all(into, [torch.full((rank.rank,), float(it)) for it in ranks])
        assert [it.tolist() for it in into] == [[float(rank.rank)] * it for it in ranks]


def test_ranks_may_send_or_receive_nothing(ranks: Ranks, form: str) -> None:
    """B17."""
    ranks.run(nothing_for_some, 3, form)


def uneven(rank: Rank) -> None:
    me, lengths = rank.rank, [1, 0, 7]
    with rank.group():
        into = [torch.zeros(it) for it in lengths]
        dist.all_gather(into, torch.full((lengths[me],), float(me)))
        assert [it.tolist() for it in into] == [[float(rank)] * length for rank, length in enumerate(lengths)]
        every: list[Any] = [None] * 3
        dist.all_gather_object(every, "x" * lengths[me])
        assert every == ["x" * it for it in lengths]
        own = torch.zeros(lengths[me])
        dist.reduce_scatter(own, [torch.full((it,), float(it)) for it in lengths])
        assert own.tolist() == [3.0 * lengths[me]] * lengths[me]


def test_unequal_contributions(ranks: Ranks, form: str) -> None:
    """B18."""
    ranks.run(uneven, 3, form)
