# SPDX-License-Identifier: MIT
"""Torch's distributed parts give on pccl what they give on Gloo: the same bits where two ranks add, and as near as the
order of additions lets them be where more do. All ranks must agree on every bit.

One set of ranks runs all scenarios of one backend, each in a group of its own, since processes cost more than those.
"""

from __future__ import annotations

from functools import lru_cache

import pytest
import torch

from tests.torch.ranks import LIMIT_S, Ranks
from tests.torch.scenarios.outcome import Outcome, outcomes

pytestmark = pytest.mark.process


@lru_cache
def of_gloo(ranks: Ranks, world: int) -> list[dict[str, Outcome]]:
    """Once for both forms."""
    return ranks.run(outcomes, world, "auto", "gloo", GLOO_SOCKET_IFNAME="lo")


def faults(ours: list[Outcome], theirs: list[Outcome]) -> list[str]:
    """One line for each thing that is not as it should be."""
    failed = [f"rank {rank}: {it.failure}" for rank, it in enumerate(ours) if it.failure]
    failed += [f"rank {rank} of Gloo: {it.failure}" for rank, it in enumerate(theirs) if it.failure]
    if failed:
        return failed
    lines = []
    for rank, (own, other) in enumerate(zip(ours, theirs, strict=True)):
        if own.values.keys() != other.values.keys():
            lines.append(f"rank {rank}: has {list(own.values)}, Gloo has {list(other.values)}")
            continue
        for name, value in own.values.items():
            wanted = other.values[name]
            if own.alike and not torch.equal(value, ours[0].values[name]):
                lines.append(f"rank {rank}: {name} is not that of rank 0")
            allowed = 0.0 if len(ours) == 2 else own.tolerance * max(1.0, float(wanted.abs().max()))
            error = float((value - wanted).abs().max())
            if not error <= allowed:
                lines.append(f"rank {rank}: {name} differs from Gloo's by {error:.3g}, allowed is {allowed:.3g}")
    return lines


@pytest.mark.timeout(4 * LIMIT_S)
@pytest.mark.parametrize("world", [2, 3, 4])
def test_results_are_those_of_gloo(ranks: Ranks, world: int, form: str) -> None:
    theirs, ours = of_gloo(ranks, world), ranks.run(outcomes, world, form, "pccl")
    lines = []
    for name, own in ours[0].items():
        if form == "native" or not own.native:
            pair = [rank[name] for rank in ours], [rank[name] for rank in theirs]
            lines += [f"{name}: {line}" for line in faults(*pair)]
    assert not lines, "\n".join(lines)
