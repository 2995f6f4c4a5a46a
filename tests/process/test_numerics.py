# SPDX-License-Identifier: MIT
"""Sums that floating point makes awkward: all members hold the same bits, and the error is what the rule allows."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import pccl
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


@pytest.mark.parametrize("size", [3, 4, 5, 6, 7])
def test_all_members_hold_the_same_bits(size: int) -> None:
    """B4: terms that cancel, in all orders over the members: whatever the rounding, it is the same everywhere."""
    orders = list(itertools.permutations([1e8, 1.0, -1e8, 1.0]))
    terms = np.array([[order[rank % 4] for order in orders] for rank in range(size)])

    def reduce(comm: pccl.Communicator) -> list[bytes]:
        found = []
        for dtype, algorithm, count in itertools.product(
            ("float32", "float64"), (pccl.Algorithm.RING, pccl.Algorithm.DOUBLING), (1, 2, 3, 7, 64, 1000, 4096)
        ):
            x = np.resize(terms[comm.rank], count).astype(dtype)
            comm.all_reduce(x, algorithm=algorithm)
            found.append(x.tobytes())
        x = np.resize(terms[comm.rank] / 2000, 1001).astype("float16")
        comm.all_reduce(x)
        return [*found, x.tobytes()]

    with Local(size) as local:
        results = local.all(reduce)
    assert len(results[0]) == 29
    assert all(it == results[0] for it in results)
