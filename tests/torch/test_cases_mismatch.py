# SPDX-License-Identifier: MIT
"""Ranks that call different things: an error on all of them which says who called what, and life goes on."""

from __future__ import annotations

import contextlib
import re
import time
import warnings
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Literal

import pytest
import torch
import torch.distributed as dist

import pccl
from pccl.torch import Options, cause
from tests.torch.ranks import Rank, Ranks

pytestmark = pytest.mark.process

SOON_S = 5.0


def _refused(call: Callable[[], object]) -> str:
    """The text of the mismatch that it raises, soon."""
    begun = time.monotonic()
    with pytest.raises(dist.DistBackendError) as raised:
        call()
    assert isinstance(cause(raised.value), pccl.CollectiveMismatch), raised.value
    assert time.monotonic() - begun < SOON_S
    return str(raised.value)


def _goes_on(group: dist.ProcessGroup | None = None) -> None:
    x = torch.ones(5)
    dist.barrier(group)
    dist.all_reduce(x, group=group)
    assert (x == dist.get_world_size(group)).all()


def _told(texts: Sequence[str], *words: str) -> None:
    for text in texts:
        assert all(it in text for it in (*words, "#")), text


def other_shapes(rank: Rank, commit: Literal["each", "deferred"]) -> list[str]:
    length = 12 if rank.rank == 0 else 1
    with rank.group(timeout=timedelta(seconds=60), pg_options=Options(commit=commit)):
        texts = [
            _refused(lambda: dist.all_reduce(torch.ones(length))),
            _refused(lambda: dist.all_reduce(torch.ones(3, dtype=torch.int32 if rank.rank else torch.int64))),
        ]
        if commit == "each":
            texts.append(_refused(lambda: dist.broadcast(torch.ones(length), 1)))
            texts.append(_refused(lambda: dist.reduce(torch.ones(length), 2)))
        _goes_on()
        _goes_on(dist.new_group())
        return texts


@pytest.mark.parametrize("commit", ["each", "deferred"])
def test_other_shapes_are_an_error_for_all(ranks: Ranks, form: str, commit: str) -> None:
    """B22."""
    sized, typed, *rooted = zip(*ranks.run(other_shapes, 3, form, commit), strict=True)
    for texts in (sized, *rooted):
        _told(texts, "[12]", "[1]", "rank 0 called")
    _told(typed, "int64", "int32", "rank 0 called")


def other_orders(rank: Rank) -> list[str]:
    calls = [lambda: dist.all_reduce(torch.ones(3)), lambda: dist.broadcast(torch.ones(3), 0)]
    with rank.group(timeout=timedelta(seconds=60), pg_options=Options(commit="each")):
        texts = [_refused(it) for it in (calls if rank.rank == 0 else reversed(calls))]
        op = dist.ReduceOp.SUM if rank.rank == 0 else dist.ReduceOp.MAX
        texts.append(_refused(lambda: dist.all_reduce(torch.ones(3), op=op)))
        texts.append(_refused(lambda: dist.broadcast(torch.ones(3), rank.rank)))
        _goes_on()
        return texts


def test_another_order_is_an_error_that_names_both(ranks: Ranks, form: str) -> None:
    """B24."""
    first, second, third, fourth = zip(*ranks.run(other_orders, 2, form), strict=True)
    _told(first, "rank 0 called all_reduce", "rank 1 called broadcast")
    _told(second, "rank 0 called broadcast", "rank 1 called all_reduce")
    _told(third, "op=sum", "op=max", "rank 0 called", "rank 1 called")
    _told(fourth, "root=0", "root=1")


def _and_barriers(call: Callable[[], object]) -> None:
    call()
    end = time.monotonic() + SOON_S
    while time.monotonic() < end:
        dist.barrier()


def _told_in_the_end(call: Callable[[], object]) -> str:
    """By itself, or where this rank's part had been done before the others saw that it was another, by what follows."""
    with pytest.raises(dist.DistBackendError) as raised:
        _and_barriers(call)
    assert isinstance(cause(raised.value), pccl.CollectiveMismatch | pccl.PeerLost), raised.value
    return str(raised.value)


def found_too_late(rank: Rank) -> list[str]:
    """As root 0, or each root, has sent all by the time that others receive it."""
    length = 12 if rank.rank == 0 else 1
    calls: list[Callable[[], object]] = [
        lambda: dist.broadcast(torch.ones(length), 0),
        lambda: dist.reduce(torch.ones(length), 2),
        lambda: dist.broadcast(torch.ones(3), rank.rank),
        lambda: dist.broadcast(torch.ones(3), 0) if rank.rank == 0 else dist.all_reduce(torch.ones(3)),
    ]
    texts = []
    for number, call in enumerate(calls):
        with rank.group(name=f"store {number}", timeout=timedelta(seconds=60)):
            dist.barrier()
            texts.append(_told_in_the_end(call))
    with rank.group(name="the last store"):
        _goes_on()
    return texts


def test_what_has_returned_on_some_rank_ends_the_group_for_all(ranks: Ranks, form: str) -> None:
    """B22, B24. Else those ranks would make one call less than others, and all later ones would meet wrong ones."""
    for texts in zip(*ranks.run(found_too_late, 3, form), strict=True):
        assert any(re.search(r"rank \d called", text) for text in texts), texts


def other_widths(rank: Rank) -> str:
    with rank.group(timeout=timedelta(seconds=60)):
        width = 3 if rank.rank == 3 else 4
        text = _refused(lambda: dist.all_to_all_single(torch.zeros(4, width), torch.ones(4, width)))
        _goes_on()
        return text


def test_another_width_is_an_error_for_all(ranks: Ranks, form: str) -> None:
    """B25."""
    for text in ranks.run(other_widths, 4, form):
        assert "rank 3" in text


def from_outside(rank: Rank) -> None:
    with rank.group():
        group = dist.new_group([2, 3])
        if rank.rank == 0:
            with warnings.catch_warnings(record=True) as seen, contextlib.suppress(ValueError):
                warnings.simplefilter("always")
                dist.broadcast(torch.ones(1), 2, group=group)
                assert any("not" in str(it.message) for it in seen), seen
        if rank.rank > 1:
            _goes_on(group)
        _goes_on()


def test_who_is_not_in_a_group_is_told_so(ranks: Ranks, form: str) -> None:
    """B87."""
    ranks.run(from_outside, 4, form)
