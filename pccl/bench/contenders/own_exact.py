# SPDX-License-Identifier: MIT
"""pccl itself without quantization, on the same values: what a format is to be compared with."""

from __future__ import annotations

from dataclasses import replace

from pccl.bench.contenders.contender import Seat
from pccl.bench.contenders.own import Own


class Exact(Own):
    """As `Own` otherwise."""

    def __init__(self, seat: Seat) -> None:
        super().__init__(replace(seat, settings=seat.settings | {"quantize": ""}))


contender = Exact
