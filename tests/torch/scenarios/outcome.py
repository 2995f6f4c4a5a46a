# SPDX-License-Identifier: MIT
"""What the scenarios give on a backend. Tests may import this file: what scenarios import takes seconds, so that only
the server of ranks does it, before it forks."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from tests.torch import scenarios
from tests.torch.ranks import LIMIT_S, Rank

KEPT: list[Any] = []


@dataclass
class Outcome:
    """Tensors by name, or a traceback; the rest is that of the scenario."""

    tolerance: float
    alike: bool
    native: bool
    values: dict[str, Any] = field(default_factory=dict)
    failure: str = ""


def prepare() -> None:
    """For the server of ranks."""
    scenarios.all_of_them()


def outcomes(rank: Rank, backend: str) -> dict[str, Outcome]:
    """By scenario. Each begins when all ranks have ended the one before: some may hear of a failure late."""
    meeting, found = dist.FileStore(str(rank.folder / "meeting"), rank.world), {}
    for scenario in scenarios.all_of_them():
        meeting.set(f"{scenario.name} {rank.rank}", "")
        meeting.wait([f"{scenario.name} {other}" for other in range(rank.world)], timedelta(seconds=LIMIT_S))
        outcome = found[scenario.name] = Outcome(scenario.tolerance, scenario.alike, scenario.native)
        try:
            with rank.group(backend, name=scenario.name):
                if backend == "gloo":  # the last reference may go in a thread of Gloo's, which would wait for itself
                    KEPT.append(dist.group.WORLD)
                outcome.values = dict(scenario.call(rank.rank, rank.world))
        except Exception:
            outcome.failure = traceback.format_exc()
    return found
