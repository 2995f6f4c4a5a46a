# SPDX-License-Identifier: MIT
"""What the operations of each step are: drawn from the seed, the step and the tensor's index, so that all members, and
those who come later, agree without a word.

The first tensor of a step is always all-reduced as pccl chooses: its ballot is the roll call of the step.

Must not know: processes, what comes out.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pccl import Algorithm
from pccl.stress.values import DTYPES
from pccl.stress.workload import ALGORITHMS, COLLECTIVES, DETERMINISTIC, PART_MIN

ROLL_CALL = "all_reduce"
WISH_SHARE = 0.5
DETERMINISTIC_SHARE = 0.25
UNEVEN_TIMES = 2
"""Parts that differ are up to so many times as long as what they are measured in."""


@dataclass(frozen=True)
class Task:
    """One operation: `size_bytes` is about what the larger of its two sides holds, `salt` what decides who has nothing
    where parts are uneven."""

    collective: str
    size_bytes: int
    dtype: str = DTYPES[0]
    in_place: bool = False
    algorithm: Algorithm = Algorithm.AUTO
    deterministic: bool = False
    salt: int = 0

    @property
    def options(self) -> dict[str, Any]:
        """What the call takes beside its arrays."""
        named: dict[str, Any] = {}
        if self.algorithm != Algorithm.AUTO:
            named["algorithm"] = self.algorithm
        if self.deterministic:
            named["deterministic"] = True
        return named

    def elements(self, size: int) -> int:
        """Of each part in a group of so many members; of the whole, where there are no parts."""
        parts = 1 if self.collective in _WHOLE else size
        if self.collective.endswith("_v"):
            parts *= UNEVEN_TIMES
        return max(PART_MIN, self.size_bytes // np.dtype(self.dtype).itemsize // parts)


def task(seed: int, step: int, index: int, size_bytes: int, collectives: Sequence[str]) -> Task:
    """The operation of one tensor in one step. The first tensor is in place in every other step."""
    if index == 0:
        return Task(ROLL_CALL, size_bytes, in_place=step % 2 == 0)
    draw = random.Random(f"{seed} {step} {index}")
    collective = draw.choice(collectives)
    deterministic = collective in DETERMINISTIC and draw.random() < DETERMINISTIC_SHARE
    wishes = (DETERMINISTIC if deterministic else ALGORITHMS).get(collective, ())
    wish = draw.choice(wishes) if wishes and draw.random() < WISH_SHARE else Algorithm.AUTO
    dtype, in_place, salt = draw.choice(DTYPES), draw.random() < 0.5, draw.randrange(3)
    return Task(collective, size_bytes, dtype, in_place, wish, deterministic, salt)


_WHOLE = ("all_reduce", "all_reduce_coalesced", "reduce", "scan", "exscan", "broadcast", "barrier")
assert set(_WHOLE) < set(COLLECTIVES)
