# SPDX-License-Identifier: MIT
"""torch.distributed with the Gloo backend over loopback."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from pccl.bench.contenders.contender import Contender, Seat
from pccl.bench.work import ROOT, Work

# Untyped in some releases of torch, and not the same names in all.
dist: Any = torch.distributed
tensor: Any = torch.from_numpy
HOST = "127.0.0.1"
# The forms on flat buffers, the newest name first.
FLAT_CALLS = {
    "reduce_scatter": ("reduce_scatter_single", "reduce_scatter_tensor"),
    "all_gather": ("all_gather_single", "all_gather_into_tensor"),
}


class Gloo(Contender):
    """One process of the default group. Rank 0 holds the store through which all meet."""

    def __init__(self, seat: Seat) -> None:
        super().__init__(seat)
        torch.set_num_threads(1)
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        self._store: Any = None

    def offer(self) -> Any:
        """Rank 0: the port of the store."""
        if self.seat.rank != 0:
            return None
        self._store = dist.TCPStore(HOST, 0, self.seat.peers, is_master=True, wait_for_workers=False)
        return self._store.port

    def meet(self, offers: list[Any]) -> None:
        """Makes the default group."""
        if self._store is None:
            self._store = dist.TCPStore(HOST, offers[0], self.seat.peers, is_master=False)
        dist.init_process_group("gloo", store=self._store, rank=self.seat.rank, world_size=self.seat.peers)

    def bind(self, work: Work) -> Callable[[], object]:
        """Gloo reduces and broadcasts in place only: out of place its user copies first, and so do we."""
        source, target = tensor(work.source), tensor(work.target)
        if work.shape.op == "barrier":
            return self.barrier
        if work.shape.op in FLAT_CALLS:
            flat = next(getattr(dist, name) for name in FLAT_CALLS[work.shape.op] if hasattr(dist, name))
            return lambda: flat(target, source)
        in_place = work.shape.in_place

        def all_reduce() -> None:
            if not in_place:
                target.copy_(source)
            dist.all_reduce(target)

        def broadcast() -> None:
            if not in_place:
                target.copy_(source)
            dist.broadcast(target, ROOT)

        return all_reduce if work.shape.op == "all_reduce" else broadcast

    def barrier(self) -> None:
        """Gloo's own."""
        dist.barrier()

    def settle(self) -> None:
        """Gloo puts nothing off."""

    def close(self) -> None:
        """Ends the group."""
        dist.destroy_process_group()


contender = Gloo
