# SPDX-License-Identifier: MIT
"""One process of a team: `python -m pccl.bench.worker CONTENDER SEAT`. It does as told and answers over its line.

`measure` is the only loop that is timed, the same for every contender: a barrier, then nothing but calls and clock
reads.
"""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from pccl.bench import contenders
from pccl.bench.contenders.contender import Contender, Seat, Together
from pccl.bench.work import STEP, Shape, Work
from pccl.fleet import Line

if TYPE_CHECKING:
    from pccl.bench.step import Step


class Worker:
    """A contender with the work that it is bound to at the moment."""

    def __init__(self, contender: Contender) -> None:
        self._contender = contender
        self._step = 0

    def prepare(self, fields: dict[str, Any]) -> None:
        """Gets buffers for a shape and binds them. Raises ValueError for what the contender does not offer."""
        shape = Shape(**fields, peers=self._contender.seat.peers)
        self._works: list[Work | Step] = []
        self._quantized: list[Work] = []
        if shape.op == STEP:
            self._works = [step := _step(shape, self._contender.rank)]
            self._call = self._contender.bind_step(step)
            return
        works = [Work(shape, self._contender.rank, part) for part in range(shape.inflight)]
        self._works += works
        self._quantized = works if shape.quantized else []
        if shape.coalesced:
            self._call = self._contender.bind_coalesced(works)
            return
        calls = [self._contender.bind(work, start=shape.inflight > 1) for work in works]
        self._call = calls[0] if shape.inflight == 1 else partial(_all_at_once, calls)

    def check(self) -> dict[str, Any]:
        """Performs the work once on known values. `right` when the result is exactly right, or with quantization about
        right; then also the largest errors, the bytes that were sent, and a hash of what is to be the same on all."""
        self._step += 1
        for work in self._works:
            work.fill(self._step)
        self._outcome = self._call()
        self._contender.settle()
        found: dict[str, Any] = {"right": all(work.is_right(self._step) for work in self._works)}
        if self._quantized:
            errors = [work.errors(self._step) for work in self._quantized]
            found |= {"errors": np.max(errors, axis=0).tolist(), "wire_bytes": len(errors) * self._outcome.tx_bytes}
            found["digest"] = [work.digest() for work in self._quantized]
        for work in self._works:
            work.clear()
        return found

    def describe(self) -> dict[str, str]:
        """How the work was done that was checked last."""
        return {"transport": self._contender.transport, "algorithm": self._contender.algorithm(self._outcome)}

    def measure(self, iterations: int) -> tuple[list[int], float]:
        """Nanoseconds of each call, as this rank sees them, and the share of a core that the process took meanwhile."""
        call, clock = self._call, time.perf_counter_ns
        times = [0] * iterations
        gc.collect()
        gc.disable()
        self._contender.barrier()
        between = self._contender.between
        began, used = clock(), time.process_time_ns()
        for index in range(iterations):
            if between is not None:
                between()
            begin = clock()
            call()
            times[index] = clock() - begin
        self._contender.settle()
        share = (time.process_time_ns() - used) / (clock() - began)
        gc.enable()
        return times, share


def _step(shape: Shape, rank: int) -> Step:
    from pccl.bench.step import Step  # torch, which not every contender needs

    return Step(shape, rank)


def _all_at_once(starts: list[Callable[[], Any]]) -> Any:
    return Together([start() for start in starts]).wait()


def main() -> None:
    """Meets the team, then serves commands until it is told to stop."""
    parser = argparse.ArgumentParser()
    parser.add_argument("contender", choices=contenders.CONTENDERS)
    parser.add_argument("seat", help="the fields of a Seat, as JSON")
    parser.add_argument("--socket", help="where the supervisor listens, when stdin is not its own")
    options = parser.parse_args()
    line = Line.to_supervisor(options.socket)
    contender = contenders.load(options.contender)(Seat(**json.loads(options.seat)))
    line.send(offer=contender.offer())
    command = _next(line)
    contender.meet(command["offers"])
    worker = Worker(contender)
    line.send(rank=contender.rank)
    while (command := _next(line))["do"] != "stop":
        if command["do"] == "prepare":
            try:
                worker.prepare(command["shape"])
            except (MemoryError, ValueError) as failure:
                line.send(failed=str(failure))
            else:
                line.send(ready=True)
        elif command["do"] == "check":
            line.send(**worker.check())
        elif command["do"] == "describe":
            line.send(**worker.describe())
        elif command["do"] == "measure":
            times, share = worker.measure(command["iterations"])
            line.send(times_ns=times, cpu=share)
    contender.close()


def _next(line: Line) -> dict[str, Any]:
    command = line.receive()
    assert command is not None
    return command


if __name__ == "__main__":
    main()
