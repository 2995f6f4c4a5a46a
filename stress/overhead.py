# SPDX-License-Identifier: MIT
"""What a call costs by itself: `python stress/overhead.py [CALLS] [ROUNDS]`.

In a group of one there is nobody to wait for, so an operation has ended when it was started: what is left is Python,
cffi and the engine's own work for a call. Prints the least and the median microseconds per call, of rounds of a few
calls each: on a busy machine the least is the one to read, since some rounds are not disturbed. An asynchronous call is
start and wait.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np

import pccl


def microseconds(call: Callable[[], object], calls: int, rounds: int) -> list[float]:
    """Per call, of each round."""
    times = []
    gc.collect()
    gc.disable()
    for _ in range(rounds):
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        times.append((time.perf_counter() - begin) / calls * 1e6)
    gc.enable()
    return times


def main() -> None:
    calls, rounds = (int(text) for text in (*sys.argv[1:], "20", "1000")[:2])
    x, y = np.ones(1, np.float32), np.zeros(1, np.float32)
    with pccl.MasterNode("127.0.0.1:0") as node:
        node.run()
        with pccl.Communicator(node.address, min_world_size=1) as comm:
            comm.connect()
            several = [np.ones(1, np.float32) for _ in range(256)]
            for name, call, operations in (
                ("all_reduce, in place", lambda: comm.all_reduce(x), 1),
                (
                    "all_reduce, out of place, with options",
                    lambda: comm.all_reduce(x, y, op=pccl.ReduceOp.MAX, tag=3),
                    1,
                ),
                ("all_gather", lambda: comm.all_gather(x, y), 1),
                ("all_reduce_async, then wait", lambda: comm.all_reduce_async(x).wait(), 1),
                (
                    "256 x all_reduce_async, then wait for all",
                    lambda: [it.wait() for it in [comm.all_reduce_async(one) for one in several]],
                    256,
                ),
                ("broadcast_object", lambda: comm.broadcast_object({"step": 1}), 1),
            ):
                times = [it / operations for it in microseconds(call, max(1, calls // operations), rounds)]
                print(f"{name:42} least {min(times):7.2f} us   median {statistics.median(times):7.2f} us", flush=True)


if __name__ == "__main__":
    main()
