# SPDX-License-Identifier: MIT
"""pccl itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

import pccl
from pccl.bench import formats
from pccl.bench.beside import Beside
from pccl.bench.contenders.contender import Contender, Seat, there_and_back
from pccl.bench.work import PAIRED, ROOT, Work
from pccl.fleet import gather


class Own(Contender):
    """A peer of a real master."""

    def __init__(self, seat: Seat) -> None:
        super().__init__(seat)
        self._deferred = seat.settings["commit"] == "deferred"
        self._algorithm = pccl.Algorithm[seat.settings["algorithm"].upper()]
        self._comm = pccl.Communicator(
            seat.master,
            p2p_connection_pool_size=seat.settings["connections"],
            commit=seat.settings["commit"],
            shm="off" if seat.settings["transport"] == "tcp" else "auto",
        )
        self._format = seat.settings["quantize"]
        self._priority = seat.settings["priority"]
        self._beside = Beside(self._comm, seat.settings["beside"]) if seat.settings["beside"] else None

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

    def algorithm(self, outcome: pccl.ReduceInfo | None) -> str:
        """As the operation's info has it; empty for a rank that had none."""
        return "" if outcome is None else pccl.Algorithm(outcome.algorithm).name.lower()

    def bind(self, work: Work, *, start: bool) -> Callable[[], Any]:
        """The public calls, as a user writes them; concurrent ones with tags of their own."""
        op, source, target = work.shape.op, work.source, work.target
        options: dict[str, Any] = {"tag": work.part} if start else {}
        if self._priority:
            options["priority"] = self._priority
        if self._format:
            options["quantization_options"] = formats.named(self._format)
        if work.shape.averages:
            options["op"] = pccl.ReduceOp.AVG
        if op in PAIRED:
            comm = self._comm
            send, receive = (comm.send_async, comm.recv_async) if start else (comm.send, comm.recv)
            return there_and_back(work, partial(send, source), partial(receive, target), start=start, **options)
        if self._algorithm is not pccl.Algorithm.AUTO:
            self._comm.explain_call(pccl.Collective[op.upper()], source, algorithm=self._algorithm)
            options["algorithm"] = self._algorithm
        arguments: dict[str, tuple[Any, ...]] = {
            "all_reduce": (source, target),
            "reduce": (source, target, ROOT),
            "reduce_scatter": (source, target),
            "all_gather": (source, target),
            "all_to_all": (source, target),
            "broadcast": (target, ROOT),
            "gather": (source, target, ROOT),
            "scatter": (source, target, ROOT),
            "scan": (source, target),
            "exscan": (source, target),
            "barrier": (),
        }
        call = partial(getattr(self._comm, f"{op}_async" if start else op), *arguments[op], **options)
        if op != "broadcast" or work.shape.in_place or self.rank != ROOT:
            return call

        def broadcast() -> Any:
            """pccl broadcasts in place only: out of place its user copies first."""
            np.copyto(target, source)
            return call()

        return broadcast

    def bind_coalesced(self, works: Sequence[Work]) -> Callable[[], Any]:
        """Works of an all_reduce."""
        sources, targets = [work.source for work in works], [work.target for work in works]
        out = None if works[0].shape.in_place else targets
        options = {"algorithm": self._algorithm, "priority": self._priority}
        return partial(self._comm.all_reduce_coalesced, sources, out, **options)

    def barrier(self) -> None:
        """A collective like any other."""
        self._comm.barrier()

    @property
    def between(self) -> Callable[[], None] | None:
        """Keeps the large operation under way that was asked for."""
        return None if self._beside is None else self._beside.keep

    def settle(self) -> None:
        """Deferred operations are committed as one step."""
        if self._beside is not None:
            self._beside.end()
        if self._deferred:
            self._comm.commit()

    def close(self) -> None:
        """Leaves the run."""
        self._comm.close()


contender = Own
