# SPDX-License-Identifier: MIT
"""What a relay may do to one direction of traffic, as plain values and arithmetic.

Must not know: sockets, threads, event loops. Time is an argument, chance comes from a seed.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from pccl.errors import InvalidArgument

_PIECE_S = 0.01
"""Under a rate, so much time's worth of bytes goes at once: small enough to look like a steady flow."""
_MOST = 10**15


@dataclass(frozen=True, slots=True)
class Faults:
    """One direction. `delay_ms` is added to every byte and costs no throughput. `rate` is bytes a second of each
    connection, `total_rate` of all that these faults apply to; 0 is no limit. `hold` forwards nothing while both
    sockets stay open, and loses nothing. `refuse` (of what the dialler says) resets new connections as soon as it is
    known whose they are. One of `corrupt_every` bytes, on average, gets another bit; 0 is none."""

    delay_ms: float = 0.0
    rate: int = 0
    total_rate: int = 0
    hold: bool = False
    refuse: bool = False
    corrupt_every: int = 0

    def changed(self, changes: Mapping[str, Any]) -> Faults:
        """These with some fields replaced. Raises InvalidArgument that names a field or value that cannot be."""
        known = {field.name for field in fields(self)}
        for name, value in changes.items():
            if name not in known:
                raise InvalidArgument(f"a relay knows no fault {name!r}; there are {', '.join(sorted(known))}")
            whole = isinstance(value, int) and not isinstance(value, bool)
            if name in ("hold", "refuse"):
                right = isinstance(value, bool)
            else:
                right = (whole or (name == "delay_ms" and isinstance(value, float))) and 0 <= value <= _MOST
            if not right:
                raise InvalidArgument(f"{name} of a relay cannot be {value!r}")
        return replace(self, **changes)

    def piece_bytes(self) -> int:
        """How much may go at once; 0 is any amount."""
        rates = [rate for rate in (self.rate, self.total_rate) if rate]
        return max(1, int(min(rates) * _PIECE_S)) if rates else 0


class Pacer:
    """A line of a given rate: bytes take their time on it, one after the other."""

    def __init__(self) -> None:
        self._free_at = 0.0

    def passed_at(self, now: float, count: int, rate: int) -> float:
        """When `count` bytes that are given to it now will have passed."""
        if not rate:
            return now
        self._free_at = max(now, self._free_at) + count / rate
        return self._free_at


class Corrupter:
    """Chooses bytes of one stream to damage, from a seed."""

    def __init__(self, seed: str) -> None:
        self._chance = random.Random(seed)
        self._every = 0
        self._distance = 0

    def distance(self, every: int) -> int:
        """How many bytes pass unharmed before the next that does not, if one in `every` is damaged."""
        if every != self._every:
            self._every = every
            self._draw()
        return self._distance

    def passed(self, count: int) -> None:
        """So many bytes have gone, none of them beyond the one to be damaged."""
        self._distance -= count
        if self._distance < 0:
            self._draw()

    def damaged(self, value: int) -> int:
        """Another byte instead of `value`: always the same one until `passed`."""
        return value ^ (1 << self._distance_bit)

    def _draw(self) -> None:
        self._distance = int(self._chance.expovariate(1.0 / self._every)) if self._every else 0
        self._distance_bit = self._chance.randrange(8)
