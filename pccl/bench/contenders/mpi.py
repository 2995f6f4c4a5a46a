# SPDX-License-Identifier: MIT
"""MPI through mpi4py; the processes are started by mpiexec."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI

from pccl.bench.contenders.contender import Contender, there_and_back
from pccl.bench.work import PAIRED, ROOT, Array, Work

# The calls that take buffers as they are. Those that only start the work have a small letter behind an I.
NAMES = {
    "all_reduce": "Allreduce",
    "reduce": "Reduce",
    "reduce_scatter": "Reduce_scatter_block",
    "all_gather": "Allgather",
    "all_to_all": "Alltoall",
    "broadcast": "Bcast",
    "gather": "Gather",
    "scatter": "Scatter",
    "scan": "Scan",
    "exscan": "Exscan",
    "barrier": "Barrier",
}


class Mpi(Contender):
    """One rank of the world communicator."""

    def meet(self, offers: list[Any]) -> None:
        """mpiexec has seen to it already."""

    @property
    def rank(self) -> int:
        """The rank in the world."""
        return int(MPI.COMM_WORLD.Get_rank())

    @property
    def transport(self) -> str:
        """What it was told to use; MPI does not tell what it chose."""
        told: str = self.seat.settings["transport"]
        return "" if told == "auto" else told

    def bind(self, work: Work, *, start: bool) -> Callable[[], Any]:
        """MPI broadcasts in place only, and its in-place reduce_scatter puts every rank's block first, so it cannot
        write to where this one belongs: there its user copies, and so do we."""
        op, in_place, world = work.shape.op, work.shape.in_place, MPI.COMM_WORLD
        if op in PAIRED:
            send, receive = (world.Isend, world.Irecv) if start else (world.Send, world.Recv)
            return there_and_back(
                work, partial(send, work.source), partial(receive, work.target), start=start, tag=work.part
            )
        name = NAMES[op]
        call = getattr(world, f"I{name.lower()}" if start else name)
        if op == "broadcast" and not in_place and self.rank == ROOT:
            return partial(_copied_first, call, work)
        if op == "reduce_scatter" and in_place:
            apart = np.empty_like(work.target)
            return partial(_started_apart if start else _copied_last, call, work.source, apart, work.target)
        return partial(call, *_arguments(work))

    def barrier(self) -> None:
        """MPI's own."""
        MPI.COMM_WORLD.Barrier()

    def settle(self) -> None:
        """Nothing is put off."""

    def close(self) -> None:
        """mpi4py finalizes MPI when the process exits."""


class _Apart:
    """A started operation whose result has still to be copied to its place."""

    def __init__(self, request: MPI.Request, apart: Array, target: Array) -> None:
        self._request, self._apart, self._target = request, apart, target

    def wait(self) -> None:
        """Blocks until the result is at its place."""
        self._request.wait()
        np.copyto(self._target, self._apart)


def _arguments(work: Work) -> tuple[Any, ...]:
    """Of both kinds of calls. In place, the buffer that is shared goes into the other one's argument."""
    source, target, in_place = work.source, work.target, work.shape.in_place
    at_root = work.rank == ROOT
    given = MPI.IN_PLACE if in_place else source
    if work.shape.op == "reduce":
        return (given, target, MPI.SUM, ROOT) if at_root else (source, None, MPI.SUM, ROOT)
    if work.shape.op == "gather":
        return (given, target, ROOT) if at_root else (source, None, ROOT)
    if work.shape.op == "scatter":
        return (source, MPI.IN_PLACE if in_place else target, ROOT) if at_root else (None, target, ROOT)
    if work.shape.op == "broadcast":
        return (target, ROOT)
    return () if work.shape.op == "barrier" else (given, target)


def _copied_first(call: Callable[..., Any], work: Work) -> Any:
    np.copyto(work.target, work.source)
    return call(work.target, ROOT)


def _copied_last(call: Callable[..., Any], source: Array, apart: Array, target: Array) -> None:
    call(source, apart)
    np.copyto(target, apart)


def _started_apart(call: Callable[..., Any], source: Array, apart: Array, target: Array) -> _Apart:
    return _Apart(call(source, apart), apart, target)


contender = Mpi
