# SPDX-License-Identifier: MIT
"""Dtypes that other backends refuse or change: booleans, and all that only move."""

from __future__ import annotations

import contextlib
import itertools

import pytest
import torch
import torch.distributed as dist

from tests.torch.ranks import Rank, Ranks

pytestmark = pytest.mark.process

DTYPES = sorted(
    (
        it
        for name in dir(torch)
        if isinstance(it := getattr(torch, name), torch.dtype)
        and not any(part in str(it) for part in ("quint", "qint", "bits", "float4", "uint1", "complex32"))
        and it not in {getattr(torch, f"{sign}int{bits}", None) for sign in ("", "u") for bits in range(1, 8)}
    ),
    key=str,
)


def logical(rank: Rank) -> None:
    me, world, operations = rank.rank, rank.world, dist.ReduceOp
    table = torch.tensor(list(itertools.product([False, True], repeat=world)))  # all combinations
    every = table.unbind(1)
    with rank.group():
        for op, expected in (
            (operations.MAX, table.any(1)),
            (operations.MIN, table.all(1)),
            (operations.BOR, table.any(1)),
            (operations.BAND, table.all(1)),
        ):
            x = every[me].clone()
            dist.all_reduce(x, op=op)
            assert torch.equal(x, expected), op
            assert x.view(torch.uint8).max() <= 1
        x = every[me].clone()
        try:
            dist.all_reduce(x)
        except (TypeError, ValueError):  # on all ranks, before any traffic
            assert torch.equal(x, every[me])
        else:
            assert torch.equal(x, table.any(1))
            assert x.view(torch.uint8).max() <= 1
        x = every[me].clone()
        dist.broadcast(x, 1)
        assert torch.equal(x, every[1])
        parts = [torch.zeros_like(x) for _ in range(world)]
        dist.all_gather(parts, every[me].clone())
        assert torch.equal(torch.stack(parts, 1), table)
        dist.scatter(x, [it.clone() for it in every] if me == 0 else None, src=0)
        assert torch.equal(x, every[me])
        into = torch.zeros(world, dtype=torch.bool)
        dist.all_to_all_single(into, torch.arange(world) == me)
        assert torch.equal(into, torch.arange(world) == me)
        assert into.view(torch.uint8).max() <= 1


def test_booleans_stay_booleans(ranks: Ranks, form: str) -> None:
    """B8."""
    ranks.run(logical, 2, form)


def moves(rank: Rank) -> None:
    """Bytes that are NaN payloads in one format or another; for booleans what they may hold."""
    me, world = rank.rank, rank.world
    with rank.group():
        for dtype in DTYPES:
            raw = torch.arange(48 * world, dtype=torch.int32).mul(37).add(me).to(torch.uint8)
            raw[:16] = 0xFF
            raw = (raw % 2 if dtype == torch.bool else raw).contiguous()
            others = [raw.clone() for _ in range(world)]
            dist.all_gather(others, raw)  # as bytes; what follows is compared with it
            own = raw.view(dtype)
            into = torch.zeros(world * raw.numel(), dtype=torch.uint8).view(dtype)
            dist.all_gather_into_tensor(into, own)
            assert torch.equal(into.view(torch.uint8), torch.cat(others)), dtype
            x = own.clone()
            dist.broadcast(x, 1)
            assert torch.equal(x.view(torch.uint8), others[1]), dtype
            into = torch.zeros_like(raw).view(dtype)
            dist.all_to_all_single(into, own)
            expected = torch.cat([it.view(world, -1)[me] for it in others])
            assert torch.equal(into.view(torch.uint8), expected), dtype
            into = torch.zeros_like(raw).view(dtype)
            work = dist.isend(own, (me + 1) % world)
            dist.recv(into, (me - 1) % world)
            work.wait()
            assert torch.equal(into.view(torch.uint8), others[me - 1]), dtype
            with contextlib.suppress(TypeError, ValueError):  # on all ranks, before any traffic
                dist.all_reduce(own.clone(), op=dist.ReduceOp.MAX)
        dist.barrier()


def test_every_dtype_moves_unchanged(ranks: Ranks, form: str) -> None:
    """B10."""
    ranks.run(moves, 2, form)
