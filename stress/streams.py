#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Long paths give each connection a share of their own and make it wait: how much faster are several?

Two peers all-reduce through a relay that lets 10 MB/s pass per connection and direction, 50 ms late, with 1 and with 4
connections of a link, in turn. Every element of every result is checked, so frames that overtake each other on
different connections end up at their places. The exit status is 0 only if four are at least three times as fast.
"""

from __future__ import annotations

import argparse
import statistics
import sys

from crew import Crew, Failed

from pccl.stress.relay import Relay

PEERS = 2
STREAMS = (1, 4)


def operation_s(crew: Crew, step: int) -> float:
    """One all_reduce of all, from the last one's begin to the last one's end. Raises Failed."""
    crew.tell(crew.serials, do="reduce", step=step, serials=crew.serials, until=PEERS, in_place=step % 2 == 1)
    crew.answers("started", crew.serials)
    calls = [outcomes[-1] for outcomes in crew.answers("outcomes", crew.serials).values()]
    return (max(end_ns for *_, end_ns in calls) - max(begin_ns for _, begin_ns, _ in calls)) / 1e9


def measure(connections: int, options: argparse.Namespace) -> float:
    """The time in the middle. Raises Failed."""
    faults = {"delay_ms": options.delay_ms, "rate": int(options.megabytes_s * 1e6)}
    with Relay() as relay, Crew(options.mebibytes << 20, relay=relay, connections=connections, **faults) as crew:
        crew.tell(crew.recruit(PEERS), do="gather", peers=PEERS)
        crew.answers("gathered", crew.serials)
        operation_s(crew, 0)  # makes the links
        return statistics.median(operation_s(crew, step) for step in range(1, options.repeats + 1))


def main() -> int:
    """Measures, and prints the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--mebibytes", type=int, default=64)
    parser.add_argument("--megabytes-s", type=float, default=10.0, help="of each connection, in each direction")
    parser.add_argument("--delay-ms", type=float, default=50.0)
    parser.add_argument("--least", type=float, default=3.0, help="how many times as fast four have to be")
    options = parser.parse_args()
    try:
        times_s = [measure(connections, options) for connections in STREAMS]
    except Failed as failure:
        print(f"FAILED: {failure}")
        return 1
    for connections, time_s in zip(STREAMS, times_s, strict=True):
        rate = options.mebibytes * 1.048576 / time_s
        print(f"{connections} connections: {time_s:.2f} s for {options.mebibytes} MiB, {rate:.1f} MB/s each way")
    ratio = times_s[0] / times_s[1]
    print(f"{STREAMS[1]} are {ratio:.2f} times as fast as {STREAMS[0]}; all results exact")
    if ratio < options.least:
        print(f"FAILED: less than {options.least:g} times")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
