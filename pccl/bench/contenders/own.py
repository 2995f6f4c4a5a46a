# SPDX-License-Identifier: MIT
"""pccl itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import pccl
from pccl.bench.contenders.contender import Contender, Seat
from pccl.bench.work import ROOT, Work
from pccl.fleet import gather


class Own(Contender):
    """A peer of a real master."""

    def __init__(self, seat: Seat) -> None:
        super().__init__(seat)
        self._deferred = seat.settings["commit"] == "deferred"
        self._comm = pccl.Communicator(
            seat.master,
            p2p_connection_pool_size=seat.settings["connections"],
            commit=seat.settings["commit"],
            shm="off" if seat.settings["transport"] == "tcp" else "auto",
        )

    def meet(self, offers: list[Any]) -> None:
        """Joins the run, and waits for the rest of the team."""
        self._comm.connect()
        gather(self._comm, self.seat.peers)

    @property
    def rank(self) -> int:
        """The rank in the group: the order of admission, whatever the seat."""
        return self._comm.rank

    @property
    def transport(self) -> str:
        """Of all links; two joined by a plus sign if they differ."""
        return "+".join(sorted(set(self._comm.transports.values())))

    def bind(self, work: Work) -> Callable[[], object]:
        """The public calls, as a user writes them."""
        comm, source, target = self._comm, work.source, work.target
        total = pccl.ReduceOp.SUM

        def broadcast() -> None:
            if not work.shape.in_place:
                np.copyto(target, source)
            comm.broadcast(target, ROOT)

        calls: dict[str, Callable[[], object]] = {
            "all_reduce": lambda: comm.all_reduce(source, target, op=total),
            "reduce_scatter": lambda: comm.reduce_scatter(source, target, op=total),
            "all_gather": lambda: comm.all_gather(source, target),
            "broadcast": broadcast,
            "barrier": comm.barrier,
        }
        return calls[work.shape.op]

    def barrier(self) -> None:
        """A collective like any other."""
        self._comm.barrier()

    def settle(self) -> None:
        """Deferred operations are committed as one step."""
        if self._deferred:
            self._comm.commit()

    def close(self) -> None:
        """Leaves the run."""
        self._comm.close()


contender = Own
