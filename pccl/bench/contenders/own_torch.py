# SPDX-License-Identifier: MIT
"""pccl as a backend of torch.distributed."""

from __future__ import annotations

from typing import Any

import pccl.torch
from pccl.bench.contenders.through_torch import ThroughTorch


class OwnTorch(ThroughTorch):
    """Settles operations as the command line says, and otherwise as the backend does."""

    backend = "pccl"

    @property
    def options(self) -> Any:
        """As the communicator of `own` has them."""
        settings = self.seat.settings
        return pccl.torch.Options(
            commit=settings["commit"],
            stripes=settings["connections"],
            shm="off" if settings["transport"] == "tcp" else "auto",
        )

    @property
    def transport(self) -> str:
        """Of all links; two joined by a plus sign if they differ."""
        return "+".join(sorted({name for it in pccl.torch.info().runtimes for name in it.transports.values()}))


contender = OwnTorch
