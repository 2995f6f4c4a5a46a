# SPDX-License-Identifier: MIT
"""torch.distributed with the Gloo backend."""

from __future__ import annotations

import os

from pccl.bench.contenders.contender import Seat
from pccl.bench.contenders.through_torch import ThroughTorch


class Gloo(ThroughTorch):
    """Over loopback."""

    backend = "gloo"

    def __init__(self, seat: Seat) -> None:
        super().__init__(seat)
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"

    @property
    def transport(self) -> str:
        """All that it has."""
        return "tcp"


contender = Gloo
