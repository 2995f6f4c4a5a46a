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
from typing import Any

from pccl.bench import contenders
from pccl.bench.contenders.contender import Contender, Seat
from pccl.bench.work import Shape, Work
from pccl.fleet import Line


class Worker:
    """A contender with the work that it is bound to at the moment."""

    def __init__(self, contender: Contender) -> None:
        self._contender = contender
        self._step = 0

    def prepare(self, shape: dict[str, Any]) -> None:
        """Gets buffers for a shape and binds them."""
        self._work = Work(Shape(**shape, peers=self._contender.seat.peers), self._contender.rank)
        self._call = self._contender.bind(self._work)

    def check(self) -> bool:
        """Performs the work once on known values. True when the result is exactly right."""
        self._step += 1
        self._work.fill(self._step)
        self._call()
        self._contender.settle()
        right = self._work.is_right(self._step)
        self._work.clear()
        return right

    def measure(self, iterations: int) -> list[int]:
        """Nanoseconds of each call, as this rank sees them."""
        call, clock = self._call, time.perf_counter_ns
        times = [0] * iterations
        gc.collect()
        gc.disable()
        self._contender.barrier()
        for index in range(iterations):
            begin = clock()
            call()
            times[index] = clock() - begin
        self._contender.settle()
        gc.enable()
        return times


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
            line.send(right=worker.check())
        elif command["do"] == "transport":
            line.send(transport=contender.transport)
        elif command["do"] == "measure":
            line.send(times_ns=worker.measure(command["iterations"]))
    contender.close()


def _next(line: Line) -> dict[str, Any]:
    command = line.receive()
    assert command is not None
    return command


if __name__ == "__main__":
    main()
