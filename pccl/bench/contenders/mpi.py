# SPDX-License-Identifier: MIT
"""MPI through mpi4py; the processes are started by mpiexec."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

from pccl.bench.contenders.contender import Contender
from pccl.bench.work import ROOT, Work


class Mpi(Contender):
    """One rank of the world communicator."""

    def meet(self, offers: list[Any]) -> None:
        """mpiexec has seen to it already."""

    @property
    def rank(self) -> int:
        """The rank in the world."""
        return int(MPI.COMM_WORLD.Get_rank())

    def bind(self, work: Work) -> Callable[[], object]:
        """The upper-case calls, which take buffers as they are."""
        world, source, target = MPI.COMM_WORLD, work.source, work.target
        given = MPI.IN_PLACE if work.shape.in_place else source

        def broadcast() -> None:
            if not work.shape.in_place:
                np.copyto(target, source)
            world.Bcast(target, ROOT)

        apart = np.empty_like(target)

        def reduce_scatter() -> None:
            """MPI's in-place form puts every rank's block first, so it cannot write to where this one belongs."""
            world.Reduce_scatter_block(source, apart)
            np.copyto(target, apart)

        calls: dict[str, Callable[[], object]] = {
            "all_reduce": lambda: world.Allreduce(given, target),
            "reduce_scatter": reduce_scatter
            if work.shape.in_place
            else lambda: world.Reduce_scatter_block(source, target),
            "all_gather": lambda: world.Allgather(given, target),
            "broadcast": broadcast,
            "barrier": world.Barrier,
        }
        return calls[work.shape.op]

    def barrier(self) -> None:
        """MPI's own."""
        MPI.COMM_WORLD.Barrier()

    def settle(self) -> None:
        """Blocking calls put nothing off."""

    def close(self) -> None:
        """mpi4py finalizes MPI when the process exits."""


contender = Mpi
