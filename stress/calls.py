#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What a call costs by itself: all_reduce of 64 bytes in a group of one, where there is nobody to talk to.

    blocking    comm.all_reduce(x)
    start       handle = comm.all_reduce_async(x)
    wait        handle.wait(), of an operation that has ended

Processor time of the calling thread, the best of many batches. The exit status is 0 only if start and wait together
take at most 15 microseconds; on a busy machine give `--patience`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import numpy as np

import pccl

LIMIT_US = 15.0
BATCH = 200
BATCHES = 50


def cost_us(prepare: Callable[[], None], call: Callable[[], object]) -> float:
    """Microseconds of a call, of which BATCH follow on each preparation."""
    best = float("inf")
    for _ in range(BATCHES):
        prepare()
        begun = time.thread_time()
        for _ in range(BATCH):
            call()
        best = min(best, time.thread_time() - begun)
    return best / BATCH * 1e6


def main() -> int:
    """Measures, prints, judges."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--patience", type=float, default=1.0, help="by how much they may take longer")
    options = parser.parse_args()
    handles: list[pccl.Handle] = []
    x = np.zeros(16, np.float32)
    with pccl.MasterNode("127.0.0.1:0") as node:
        node.run()
        with pccl.Communicator(node.address, min_world_size=1) as comm:
            comm.connect()

            def started() -> None:
                handles.clear()
                handles.extend(comm.all_reduce_async(x) for _ in range(BATCH))

            blocking = cost_us(handles.clear, lambda: comm.all_reduce(x))
            start = cost_us(handles.clear, lambda: handles.append(comm.all_reduce_async(x)))
            wait = cost_us(started, lambda: handles.pop().wait())
    print(f"blocking {blocking:.1f} us, start {start:.1f} us, wait {wait:.1f} us")
    return 0 if start + wait <= LIMIT_US * options.patience else 1


if __name__ == "__main__":
    sys.exit(main())
