# SPDX-License-Identifier: MIT
"""Sums that floating point makes awkward: all members hold the same bits, and the error is what the rule allows."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

import pccl
from tests.process.faults import long
from tests.process.local import Local

pytestmark = pytest.mark.process


@pytest.mark.parametrize("algorithm", [pccl.Algorithm.RING, pccl.Algorithm.DOUBLING])
def test_small_addends_are_rounded_once_a_hop_and_alike_everywhere(algorithm: pccl.Algorithm) -> None:
    """B3: 16-bit floats are added in float32 and rounded once per hop: 8 members round 7 times at most, by half a unit
    in the last place each, and never differently on two members. (Independence of the position is not claimed.)"""
    import torch

    size, half_unit = 8, 1.0  # bfloat16 steps by 2 from 256 on

    def reduce(comm: pccl.Communicator) -> torch.Tensor:
        x = torch.full((4096,), 256.0 if comm.rank == 0 else 1.0, dtype=torch.bfloat16)
        comm.all_reduce(x, algorithm=algorithm)
        return x

    with Local(size) as local:
        results = local.all(reduce)
    bits = {bytes(it.view(torch.uint8).numpy()) for it in results}
    assert len(bits) == 1
    error = (results[0].float() - 263).abs().max().item()
    assert error <= (size - 1) * half_unit


PATTERNS = 1 << 16
ALGORITHMS = tuple(pccl.Algorithm[name] for name in ("RING", "DIRECT", "DOUBLING", "HALVING", "STAR"))


def in_half_precision(op: pccl.ReduceOp | pccl.PremulSum, mine: Any, other: Any) -> Any:
    """What one rounding per step of the definition gives, with torch's own arithmetic. Minimum and maximum know that
    -0 is less than +0."""
    import torch

    if op == pccl.ReduceOp.AVG:
        return ((mine.float() + other.float()).to(mine.dtype).float() / 2).to(mine.dtype)
    if isinstance(op, pccl.PremulSum):
        scaled = [(it.float() * op.factor).to(mine.dtype).float() for it in (mine, other)]
        return (scaled[0] + scaled[1]).to(mine.dtype)
    if op == pccl.ReduceOp.SUM:
        return mine + other
    if op == pccl.ReduceOp.PROD:
        return mine * other
    choose = torch.minimum if op == pccl.ReduceOp.MIN else torch.maximum
    zeros = (mine == 0) & (other == 0)
    signs = [torch.signbit(it) for it in (mine, other)]
    negative = signs[0] | signs[1] if op == pccl.ReduceOp.MIN else signs[0] & signs[1]
    zero = torch.where(negative, torch.tensor(-0.0), torch.tensor(0.0)).to(mine.dtype)
    return torch.where(zeros, zero, choose(mine, other))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("op", ["SUM", "AVG", "PROD", "MIN", "MAX", "PREMUL_SUM"])
def test_all_patterns_of_16_bits_are_reduced_as_torch_does(dtype: str, op: str) -> None:
    """B1: each number there is, subnormal, infinite and none included, against another one; every bit is right, and
    what is no number stays none."""
    import torch

    kind = pccl.PremulSum(0.3) if op == "PREMUL_SUM" else pccl.ReduceOp[op]
    numbers = torch.arange(PATTERNS, dtype=torch.int32).to(torch.int16).view(getattr(torch, dtype))
    order = torch.randperm(PATTERNS, generator=torch.Generator().manual_seed(16))
    inputs = [numbers, numbers[order]]
    wanted = in_half_precision(kind, *inputs)

    def reduce(comm: pccl.Communicator) -> list[torch.Tensor]:
        found = []
        for algorithm in ALGORITHMS:
            x = inputs[comm.rank].clone()
            comm.all_reduce(x, op=kind, algorithm=algorithm)
            found.append(x)
        return found

    with Local(2) as local:
        for result in itertools.chain(*local.all(reduce)):
            nothing = wanted.isnan()
            assert torch.equal(result.isnan(), nothing)
            assert torch.equal(result.view(torch.int16)[~nothing], wanted.view(torch.int16)[~nothing])
    assert 0 < int(nothing.sum()) < PATTERNS // 4


COUNTS = (1, 2, 3, 7, 64, 1000, 4096)
BATCH = 8
FLOATS = {"float16": 2000.0, "bfloat16": 1.0, "float32": 1.0, "float64": 1.0}
"""What the terms are divided by, to be in range."""


@pytest.mark.parametrize("counts", [COUNTS, *long((range(1, 4097),))], ids=["some", "all"])
@pytest.mark.parametrize("size", [3, 4, 5, 6, 7])
@pytest.mark.timeout(1800)
def test_all_members_hold_the_same_bits(size: int, counts: Sequence[int]) -> None:
    """B4: terms that cancel, in all orders over the members: whatever the rounding, it is the same everywhere, with
    every algorithm and type."""
    import torch

    orders = list(itertools.permutations([1e8, 1.0, -1e8, 1.0]))
    terms = np.array([[order[rank % 4] for order in orders] for rank in range(size)])

    def reduce(counts: Sequence[int], comm: pccl.Communicator) -> list[int]:
        found = []
        for (dtype, scale), algorithm, count in itertools.product(
            FLOATS.items(), (pccl.Algorithm.RING, pccl.Algorithm.DIRECT, pccl.Algorithm.DOUBLING), counts
        ):
            x = torch.from_numpy(np.resize(terms[comm.rank] / scale, count)).to(getattr(torch, dtype))
            comm.all_reduce(x, algorithm=algorithm)
            found.append(zlib.crc32(x.view(torch.uint8).numpy().tobytes()))
        return found

    with Local(size) as local:
        for first in range(0, len(counts), BATCH):
            batch = counts[first : first + BATCH]
            results = local.all(partial(reduce, batch))
            assert len(results[0]) == 3 * len(FLOATS) * len(batch)
            assert all(it == results[0] for it in results)


def found(orders: Sequence[Sequence[float]], counts: Sequence[int], comm: pccl.Communicator) -> Iterator[list[float]]:
    """What each deterministic way to add up gives for each count, from the same terms; of reduce_scatter all parts."""
    size, rank = comm.world_size, comm.rank
    terms = np.resize([order[rank % 4] for order in orders], max(counts)).astype("float32")
    for count in counts:
        for algorithm in (pccl.Algorithm.AUTO, pccl.Algorithm.DOUBLING, pccl.Algorithm.HALVING):
            x = terms[:count].copy()
            comm.all_reduce(x, algorithm=algorithm)
            yield x.tolist()
        for root in range(size):
            x = terms[:count].copy()
            comm.reduce(x, root=root)
            comm.broadcast(x, root)
            yield x.tolist()
        lengths = [len(part) for part in np.array_split(terms[:count], size)]
        part, whole = np.empty(lengths[rank], "float32"), np.empty(count, "float32")
        comm.reduce_scatter_v(terms[:count], lengths, part)
        comm.all_gather_v(part, whole, lengths)
        yield whole.tolist()


@pytest.mark.parametrize("size", [3, 4, 5])
def test_deterministic_sums_have_the_same_bits_whatever_is_chosen(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Terms that cancel, in all orders over the members, so that each way to add them up gives other bits: with
    `deterministic` there is one way for all sizes, algorithms, roots and rings (which follow the hosts)."""
    orders = list(itertools.permutations([1e8, 1.0, -1e8, 3.25]))
    counts = (1, 2, 7, 64, 1000, 70_000)
    results: list[list[float]] = []
    for hosts in (1, 2, size):
        with monkeypatch.context() as patch:
            spread = itertools.cycle(range(1, hosts + 1))
            patch.setattr("pccl.system.host_id", lambda spread=spread: next(spread))
            with Local(size, deterministic=True) as local:
                for each in local.all(lambda comm: list(found(orders, counts, comm))):
                    results += each
    longest = max(results, key=len)
    assert len(results) == 3 * size * len(counts) * (3 + size + 1)
    assert all(it == longest[: len(it)] for it in results)


def test_what_cannot_be_deterministic_is_refused() -> None:
    def refuse(comm: pccl.Communicator) -> None:
        x = np.ones(3, "float32")
        with pytest.raises(pccl.InvalidArgument, match="all_reduce by ring is not deterministic"):
            comm.all_reduce(x, algorithm=pccl.Algorithm.RING, deterministic=True)
        with pytest.raises(pccl.CollectiveMismatch, match=r"deterministic\)"):
            comm.all_reduce(x, algorithm=pccl.Algorithm.DOUBLING, deterministic=comm.rank == 0)
        comm.all_reduce(x, deterministic=True)
        assert x.tolist() == [3.0] * 3
        assert comm.explain_call(pccl.Collective.ALL_REDUCE, x, deterministic=True).startswith(("doubling", "halving"))

    with Local(3) as local:
        local.all(refuse)
