# SPDX-License-Identifier: MIT
"""Tensors that are empty, strided, or overlap."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

from tests.torch.ranks import Rank, Ranks

pytestmark = pytest.mark.process


def empties(rank: Rank) -> None:
    me, world = rank.rank, rank.world

    def nothing() -> torch.Tensor:
        return torch.zeros(1, 0, 2)

    def many() -> list[torch.Tensor]:
        return [nothing() for _ in range(world)]

    with rank.group():
        for waits in (False, True):
            x = nothing()
            works = [
                dist.all_reduce(x, async_op=waits),
                dist.broadcast(x, 0, async_op=waits),
                dist.reduce(x, 0, async_op=waits),
                dist.all_gather(many(), x, async_op=waits),
                dist.all_gather_into_tensor(torch.zeros(world, 0, 2), x, async_op=waits),
                dist.reduce_scatter(x, many(), async_op=waits),
                dist.reduce_scatter_tensor(x, torch.zeros(world, 0, 2), async_op=waits),
                dist.gather(x, many() if me == 0 else None, async_op=waits),
                dist.scatter(x, many() if me == 0 else None, async_op=waits),
                dist.all_to_all(many(), many(), async_op=waits),
                dist.all_to_all_single(torch.zeros(0, 2), torch.zeros(0, 2), async_op=waits),
            ]
            if world > 1:
                works += [dist.isend(x, (me + 1) % world), dist.irecv(x, (me - 1) % world)]
            for work in works:
                if work is not None:
                    work.wait()
            assert x.shape == (1, 0, 2)
            y = torch.ones(3)
            dist.all_reduce(y)
            assert (y == world).all()


@pytest.mark.parametrize("world", [1, 2, 4])
def test_empty_tensors_are_no_trouble(ranks: Ranks, form: str, world: int) -> None:
    """B11."""
    ranks.run(empties, world, form)


View = Callable[[torch.Tensor], torch.Tensor]
VIEWS: dict[str, View] = {
    "column": lambda table: table[:, 1],
    "every second": lambda table: table[::2],
    "transposed": lambda table: table.t(),
    "offset": lambda table: table[1:, 2:],
}


def check(view: View, found: torch.Tensor, expected: torch.Tensor, before: torch.Tensor) -> None:
    """`found` is the whole table: as expected in what `view` sees, and else as it was before."""
    whole = before.clone()
    view(whole).copy_(expected)
    assert torch.equal(found, whole)


def strides(rank: Rank) -> None:
    me, world = rank.rank, rank.world

    def table(whose: int) -> torch.Tensor:
        return torch.arange(24.0).view(4, 6) + 100 * whose

    def blank() -> torch.Tensor:
        return torch.full((4, 6), -1.0)

    with rank.group():
        for view in VIEWS.values():
            every = [view(table(it)).contiguous() for it in range(world)]
            x = table(me)
            dist.all_reduce(view(x))
            check(view, x, sum(every[1:], every[0]), table(me))
            x = table(me)
            dist.broadcast(view(x), 1)
            check(view, x, every[1], table(me))
            x = table(me)
            dist.reduce(view(x), 2)
            check(view, x, sum(every[1:], every[0]) if me == 2 else every[me], table(me))
            into = [blank() for _ in range(world)]
            dist.all_gather([view(it) for it in into], view(table(me)))
            for it, expected in zip(into, every, strict=True):
                check(view, it, expected, blank())
            into = [blank() for _ in range(world)]
            dist.gather(view(table(me)), [view(it) for it in into] if me == 0 else None, dst=0)
            for it, expected in zip(into if me == 0 else (), every, strict=me == 0):
                check(view, it, expected, blank())
            x = blank()
            dist.scatter(view(x), [view(table(it)) for it in range(world)] if me == 1 else None, src=1)
            check(view, x, every[me], blank())
            x = blank()
            dist.reduce_scatter(view(x), [view(table(me + it)) for it in range(world)])
            check(view, x, sum(view(table(me + it)) for it in range(world)), blank())
            into = [blank() for _ in range(world)]
            dist.all_to_all([view(it) for it in into], [view(table(10 * me + it)) for it in range(world)])
            for it, found in enumerate(into):
                check(view, found, view(table(10 * it + me)), blank())
            x = blank()
            work = dist.isend(view(table(me)), (me + 1) % world)
            dist.recv(view(x), (me - 1) % world)
            work.wait()
            check(view, x, every[me - 1], blank())
        expanded = torch.zeros(1).expand(4)
        for call in (dist.all_reduce, lambda it: dist.broadcast(it, 0), lambda it: dist.reduce(it, 0)):
            with pytest.raises(ValueError, match="share memory"):
                call(expanded)
        dist.barrier()


def test_strided_tensors_are_as_good_as_contiguous_ones(ranks: Ranks, form: str) -> None:
    """B13."""
    ranks.run(strides, 3, form)


def still_to_be_negated(numbers: torch.Tensor) -> torch.Tensor:
    """Those numbers, as torch keeps the imaginary part of what is conjugated."""
    return torch.complex(torch.zeros_like(numbers), -numbers).conj().imag


def lazy(rank: Rank) -> None:
    """Torch's dispatcher gives backends copies of such tensors, and drops what they write there."""
    me, world = rank.rank, rank.world
    own = torch.tensor([1.0, 2.0, 3.0]) * (me + 1)
    every = [torch.tensor([1.0, 2.0, 3.0]) * (it + 1) for it in range(world)]

    def others() -> list[torch.Tensor]:
        return [torch.zeros(3) for _ in range(world - 1)]

    calls: list[tuple[Callable[[torch.Tensor], object], list[torch.Tensor]]] = [
        (dist.all_reduce, [sum(every[1:], every[0])] * world),
        (lambda it: dist.all_reduce(it, async_op=True).wait(), [sum(every[1:], every[0])] * world),
        (lambda it: dist.all_reduce_coalesced([it, torch.ones(2)]), [sum(every[1:], every[0])] * world),
        (lambda it: dist.reduce(it, 1), [*every[:1], sum(every[1:], every[0]), *every[2:]]),
        (lambda it: dist.broadcast(it, 2), [every[2]] * world),
        (lambda it: dist.scatter(it, every if me == 0 else None), every),
        (lambda it: dist.all_gather_into_tensor(it, own[:1]), [torch.arange(1.0, world + 1)] * world),
        (lambda it: dist.all_gather([it, *others()], own), [every[0]] * world),
        (
            lambda it: dist.gather(own, [it, *others()] if me == 1 else None, dst=1),
            [*every[:1], every[0], *every[2:]],
        ),
        (lambda it: dist.reduce_scatter(it, every), [world * it for it in every]),
        (lambda it: dist.reduce_scatter_tensor(it, torch.cat(every)), [world * it for it in every]),
        (
            lambda it: dist.all_to_all_single(it, own),
            [torch.arange(1.0, world + 1) * (it + 1) for it in range(world)],
        ),
        (lambda it: dist.all_to_all([it, *others()], every), [every[it] for it in range(world)]),
        (lambda it: shifted(rank, it, own), [every[it - 1] for it in range(world)]),
    ]
    with rank.group():
        for number, (call, expected) in enumerate(calls):
            x = still_to_be_negated(own)
            assert x.is_neg()
            call(x)
            assert torch.equal(x, expected[me]), (number, x, expected[me])


def shifted(rank: Rank, into: torch.Tensor, given: torch.Tensor) -> None:
    work = dist.isend(given, (rank.rank + 1) % rank.world)
    dist.recv(into, (rank.rank - 1) % rank.world)
    assert work is not None
    work.wait()


def test_what_is_still_to_be_negated_gets_its_result(ranks: Ranks, form: str) -> None:
    """B13. Results of Gloo's go nowhere there."""
    ranks.run(lazy, 3, form)


def overlaps(rank: Rank) -> None:
    me, world = rank.rank, rank.world
    with rank.group():
        whole = torch.zeros(world, 50_000)
        whole[me] = me + 1
        dist.all_gather_into_tensor(whole, whole[me])
        assert torch.equal(whole, torch.arange(1.0, world + 1).view(-1, 1).expand_as(whole))
        x = torch.arange(world * 40_000.0) + me
        before = x.clone()
        try:
            dist.all_to_all_single(x, x)
        except ValueError:
            assert torch.equal(x, before)
        else:
            block = torch.arange(world * 40_000.0).view(world, -1)[me]
            assert torch.equal(x, torch.cat([block + it for it in range(world)]))
        y = torch.ones(70_000)
        works = [dist.all_reduce(y, async_op=True)]
        works[0].wait()
        dist.all_reduce(y)
        assert (y == world**2).all()
        parts = list(torch.zeros(world, 3).unbind())
        parts[me].fill_(me)
        dist.all_gather(parts, parts[me])
        assert [it[0] for it in parts] == list(range(world))


def test_overlapping_tensors_are_right_or_refused(ranks: Ranks, form: str) -> None:
    """B20."""
    ranks.run(overlaps, 3, form)
