#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What waiting costs: processor time of peers that wait or have nothing to do, and of many that share one core.

    waiting     rank 0 waits in all_reduce for rank 1, which calls it only at the end
    async       rank 0 has started it, and waits for nothing at all meanwhile
    idle        both do nothing, after a burst of small operations
    crowd       eight peers pinned to one core make a hundred small all_reduces

Each with shared memory and with sockets. The exit status is 0 only if no peer used more than 5 % of a core in the first
three, and the crowd took at most 2 s. On a busy machine give `--patience`: the crowd may take so many times as long.
"""

from __future__ import annotations

import argparse
import logging
import os
import select
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import pccl
from pccl.fleet import Fleet, Line, Master, gather

SHARE = 0.05
CROWD = 8
CROWD_CALLS = 100
CROWD_S = 2.0
BURST = 500
ANSWER_LIMIT_S = 120.0
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def _rest(seconds: float) -> None:
    select.select([], [], [], seconds)


def _burst(comm: pccl.Communicator) -> None:
    x = np.ones(16, np.float32)
    for _ in range(BURST):
        comm.all_reduce(x, np.empty_like(x))


def waiting(comm: pccl.Communicator, seconds: float) -> Callable[[], object]:
    """Rank 1 is late; the call that is measured, and what is to be done afterwards."""
    x = np.ones(1 << 16, np.float32)
    if comm.rank == 0:
        handle = comm.all_reduce_async(x)
        try:
            handle.wait(seconds)
        except pccl.WaitTimeout:
            return handle.wait
        raise RuntimeError("rank 1 was not late")
    _rest(seconds)
    return lambda: comm.all_reduce(x)


def asynchronous(comm: pccl.Communicator, seconds: float) -> Callable[[], object]:
    """The same, but rank 0 waits for nothing."""
    x = np.ones(1 << 16, np.float32)
    if comm.rank == 0:
        handle = comm.all_reduce_async(x)
        _rest(seconds)
        return handle.wait
    _rest(seconds)
    return lambda: comm.all_reduce(x)


def idle(comm: pccl.Communicator, seconds: float) -> Callable[[], object]:
    """Nobody does anything."""
    _rest(seconds)
    return comm.barrier


PARTS = {"waiting": waiting, "async": asynchronous, "idle": idle}


def peer(line: Line, options: argparse.Namespace) -> None:
    """One peer of a part."""
    logging.getLogger("pccl").setLevel(logging.ERROR)  # that somebody waits is no news here
    if options.role == "crowd":
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    with pccl.Communicator(options.master, shm="off" if options.transport == "tcp" else "auto") as comm:
        comm.connect()
        gather(comm, options.peers)
        comm.barrier()
        if options.role == "crowd":
            line.send(figure=_crowd(comm))
        else:
            _burst(comm)
            comm.barrier()
            begun, used = time.monotonic(), time.process_time()
            finish = PARTS[options.role](comm, options.seconds)
            share = (time.process_time() - used) / (time.monotonic() - begun)
            finish()
            line.send(figure=share)
        comm.barrier()


def _crowd(comm: pccl.Communicator) -> float:
    """Seconds."""
    x = np.full(16, comm.rank, np.int64)
    begun = time.monotonic()
    for _ in range(CROWD_CALLS):
        out = np.empty_like(x)
        comm.all_reduce(x, out)
        assert (out == CROWD * (CROWD - 1) // 2).all()
    return time.monotonic() - begun


def run(part: str, transport: str, seconds: float) -> list[float]:
    """What each peer says. Raises RuntimeError when one fails or says nothing."""
    peers = CROWD if part == "crowd" else 2
    arguments = ["--role", part, "--transport", transport, "--seconds", str(seconds), "--peers", str(peers)]
    with Master() as master, Fleet() as fleet:
        for number in range(peers):
            fleet.start(f"{part} {number}", [__file__, *arguments, "--master", master.address], ONE_THREAD)
        figures: list[float] = []
        while len(figures) < peers:
            arrived = fleet.next(ANSWER_LIMIT_S)
            if arrived is None:
                raise RuntimeError(f"nobody said anything for {ANSWER_LIMIT_S:.0f} s")
            child, message = arrived
            if message is not None:
                figures.append(message["figure"])
            elif child.exit_code != 0:
                raise RuntimeError(f"{child.name} ended with exit status {child.exit_code}")
        fleet.wait(ANSWER_LIMIT_S)
        return figures


def main() -> int:
    """The supervisor, or with --role one of its peers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long a wait lasts")
    parser.add_argument("--patience", type=float, default=1.0, help="by how much the crowd may be slower")
    parser.add_argument("--part", choices=[*PARTS, "crowd"], action="append", help="default: all")
    for name, kind in (("role", str), ("master", str), ("transport", str), ("peers", int)):
        parser.add_argument(f"--{name}", type=kind, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role:
        peer(Line.to_supervisor(), options)
        return 0
    faults = 0
    for part in options.part or [*PARTS, "crowd"]:
        for transport in ("shm", "tcp"):
            faults += _judge(part, transport, run(part, transport, options.seconds), options)
    return 1 if faults else 0


def _judge(part: str, transport: str, figures: list[float], options: Any) -> bool:
    """Says what came out; true if that is too much."""
    worst, crowd = max(figures), part == "crowd"
    limit = CROWD_S * options.patience if crowd else SHARE
    said = f"{worst:.2f} s for {CROWD_CALLS} calls of {CROWD} peers" if crowd else f"{worst * 100:.2f} % of a core"
    print(f"{part:>8} {transport:>4}: {said}{'' if worst <= limit else '  FAILED'}", flush=True)
    return worst > limit


if __name__ == "__main__":
    sys.exit(main())
