# SPDX-License-Identifier: MIT
"""torch.distributed over loopback, whichever backend it has: the same calls for all of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from pccl.bench.contenders.contender import Contender, Seat, there_and_back
from pccl.bench.step import Step
from pccl.bench.work import PAIRED, ROOT, Work

# Untyped in some releases of torch, and not the same names in all.
dist: Any = torch.distributed
tensor: Any = torch.from_numpy
HOST = "127.0.0.1"
# The forms on flat buffers, the newest name first.
FLAT_CALLS = {
    "reduce_scatter": ("reduce_scatter_single", "reduce_scatter_tensor"),
    "all_gather": ("all_gather_single", "all_gather_into_tensor"),
    "all_to_all": ("all_to_all_single",),
}


class ThroughTorch(Contender):
    """One process of the default group. Rank 0 holds the store through which all meet."""

    backend = ""

    def __init__(self, seat: Seat) -> None:
        super().__init__(seat)
        torch.set_num_threads(1)
        self._store: Any = None

    @property
    def options(self) -> Any:
        """What the backend takes for `pg_options`."""
        return None

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
        dist.init_process_group(
            self.backend,
            store=self._store,
            rank=self.seat.rank,
            world_size=self.seat.peers,
            pg_options=self.options,
        )

    def bind(self, work: Work, *, start: bool) -> Callable[[], Any]:
        """Torch reduces to a root, reduces to all and broadcasts in place only, and exchanges out of place only: where
        that is not what was asked, its user copies first, and so do we."""
        op, in_place = work.shape.op, work.shape.in_place
        source, target = tensor(work.source), tensor(work.target)
        if op in PAIRED:
            send, receive = (dist.isend, dist.irecv) if start else (dist.send, dist.recv)
            return there_and_back(work, partial(send, source), partial(receive, target), start=start, tag=work.part)
        call = partial(_call(work, source, target), async_op=start)
        if op == "all_to_all" and in_place:
            apart = torch.empty_like(source)
            return partial(_copied_first, apart, source, partial(_flat(op), target, apart, async_op=start))
        if in_place or op not in ("all_reduce", "reduce", "broadcast") or (op == "broadcast" and self.rank != ROOT):
            return call
        return partial(_copied_first, target, source, call)

    def bind_step(self, step: Step) -> Callable[[], Any]:
        """With gradients averaged by DistributedDataParallel, as it is by default."""
        return step.bound(DistributedDataParallel(step.model))

    def barrier(self) -> None:
        """The backend's own."""
        dist.barrier()

    def settle(self) -> None:
        """Nothing is put off."""

    def close(self) -> None:
        """Ends the group."""
        dist.destroy_process_group()


def _call(work: Work, source: Any, target: Any) -> Callable[..., Any]:
    """What lacks nothing but `async_op`."""
    op, peers = work.shape.op, work.shape.peers
    if op in FLAT_CALLS:
        return partial(_flat(op), target, source)
    if op in ("gather", "scatter"):
        whole, block = (target, source) if op == "gather" else (source, target)
        blocks = list(whole.chunk(peers)) if work.rank == ROOT else None
        return partial(getattr(dist, op), block, blocks, ROOT)
    if op in ("reduce", "broadcast"):
        return partial(getattr(dist, op), target, ROOT)
    return partial(dist.all_reduce, target) if op == "all_reduce" else partial(dist.barrier)


def _flat(op: str) -> Any:
    return next(getattr(dist, name) for name in FLAT_CALLS[op] if hasattr(dist, name))


def _copied_first(place: Any, origin: Any, call: Callable[[], Any]) -> Any:
    place.copy_(origin)
    return call()
