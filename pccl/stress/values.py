# SPDX-License-Identifier: MIT
"""The formula behind every number that workers reduce or share, so that each can be checked for any set of members.

A *contribution* is two parts. The first `SLOTS` elements are a ballot: 1 in the peer's slot (its number modulo SLOTS),
0 elsewhere, so that a sum tells who took part in it. The rest is weight(number) * pattern + offset(step, tensor): whole
numbers that differ per peer, step, tensor and element, small enough that sums of them are exact in float32, in any
order. A wrong sum, a missing or doubled contribution, a chunk at the wrong place all show.

The *state* after r steps is r times the pattern plus 1 + 2 + ... + r: what averaging `gradient` over any members gives.

Must not know: processes, pccl.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

SLOTS = 512
PERIOD = 1009
WEIGHTS = 61
OFFSETS = 4093
PEERS_MAX = 128
"""Up to so many contributions add up below 2**24, where float32 ends to be exact."""
PARTS = 64
"""So many tensors of a step can be told from their parts."""

DTYPES = ("float32", "int64", "float64", "int32", "uint64", "uint32")
"""In which such sums are exact."""

Array = NDArray[Any]


def tensor(index: int, size_bytes: int) -> Array:
    """Memory for tensor `index`: the dtypes take turns."""
    dtype = np.dtype(DTYPES[index % len(DTYPES)])
    return np.zeros(max(SLOTS + 1, size_bytes // dtype.itemsize), dtype)


def weight(number: int) -> int:
    """What a peer multiplies the pattern with."""
    return number % SLOTS % WEIGHTS + 1


def offset(step: int, index: int) -> int:
    """What every peer adds to the pattern of a step's tensor."""
    return (step * 7 + index * 1013) % OFFSETS


def block(index: int, part: int) -> int:
    """What stands for `index` where each peer gives several parts to one tensor; the first part is the tensor."""
    return index + part * PARTS


def contribute(target: Array, number: int, step: int, index: int) -> None:
    """Writes the contribution of peer `number` to tensor `index` of a step."""
    target[:SLOTS] = 0
    target[number % SLOTS] = 1
    _write(target[SLOTS:], weight(number), offset(step, index))


def is_contribution(values: Array, number: int, step: int, index: int) -> bool:
    """Whether `values` are just what `contribute` writes."""
    ballot = values[:SLOTS]
    alone = ballot[number % SLOTS] == 1 and int(np.count_nonzero(ballot)) == 1
    return bool(alone) and _equals(values[SLOTS:], weight(number), offset(step, index))


def numbers(slots: Iterable[int], newest: int) -> list[int]:
    """The peers of a ballot: who live at the same time have different slots, and nobody is newer than `newest`."""
    return sorted(newest - (newest - slot) % SLOTS for slot in slots)


def members(result: Array) -> list[int] | None:
    """The slots of those whose contributions are in a sum; None when one is in it twice, or the ballot is no ballot."""
    ballot = result[:SLOTS]
    if ((ballot != 0) & (ballot != 1)).any():
        return None
    return [int(number) for number in np.flatnonzero(ballot)]


def is_sum(result: Array, numbers: Iterable[int], step: int, index: int) -> bool:
    """Whether the elements after the ballot are exactly the sum of these peers' contributions."""
    factors = [weight(number) for number in numbers]
    return _equals(result[SLOTS:], sum(factors), offset(step, index) * len(factors))


def total(numbers: Iterable[int], step: int, index: int, count: int) -> int:
    """The sum of all elements of a result of `count` elements, in closed form."""
    factors = [weight(number) for number in numbers]
    body = count - SLOTS
    whole, rest = divmod(body, PERIOD)
    pattern = whole * (PERIOD * (PERIOD - 1) // 2) + rest * (rest - 1) // 2
    return len(factors) + sum(factors) * pattern + len(factors) * offset(step, index) * body


def gradient(target: Array, step: int) -> None:
    """Writes what every peer alike adds to the state in a step (int64), step 1 being the first."""
    _write(target, 1, step)


def is_state(state: Array, steps: int) -> bool:
    """Whether this is the state (int64) after so many steps."""
    return _equals(state, steps, steps * (steps + 1) // 2)


def _write(target: Array, factor: int, summand: int) -> None:
    for part, wanted in _parts(target, factor, summand):
        part[:] = wanted


def _equals(values: Array, factor: int, summand: int) -> bool:
    return all(bool((part == wanted).all()) for part, wanted in _parts(values, factor, summand))


def _parts(values: Array, factor: int, summand: int) -> Iterator[tuple[Array, Array]]:
    """The whole periods of `values` as rows, then the rest, each with what factor * pattern + summand puts there.

    No copy of the whole: the kernel frees a killed process's memory before it closes its sockets, so the survivors
    would notice its end the later the more it held.
    """
    row = (np.arange(PERIOD, dtype=np.int64) * factor + summand).astype(values.dtype)
    whole = len(values) // PERIOD * PERIOD
    yield values[:whole].reshape(-1, PERIOD), row
    yield values[whole:], row[: len(values) - whole]
