#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How long it takes to come, to come back, and to go, when that is made hard. Parts:

    storm      16 peers connect at one moment, 20 times; then 64 do, once: one group each time
    groups     12 peers connect at one moment in groups of 12, 6, 4, 3 and 2, 4 times each, until all have links
    rejoin     a peer is killed while it reduces, and another life of it comes at once, 50 times
    scan       a peer joins while the master's port is scanned without a pause, 50 times each way
    late       peers wait for a master that does not exist yet, 10 times
    close      one of four is stopped inside an operation, the others close, 5 times

The exit status is 0 only if all stay within their limits, which are for a machine of one's own.
"""

from __future__ import annotations

import argparse
import signal
import socket
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import pccl
from pccl.fleet import Child, Fleet, Line, Master, gather

ELEMENTS = 16 << 20
SILENCE_LIMIT_S = 120.0
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

START_LIMIT_MS = 100.0
GROUPS_LIMIT_MS = 5_000.0
REJOIN_LIMIT_MS = 5_000.0
SCAN_LIMIT_TIMES = 2.0
LATE_LIMIT_MS = 1_000.0
CLOSE_LIMIT_MS = 10_000.0


# ---------------------------------------------------------------------------------------------- what peers do


def coming(line: Line, address: str) -> None:
    """Connects when told to, in a group, and waits for all `peers` of the run; uses each link with `links`; leaves when
    told to; again and again."""
    while True:
        line.send(ready=True)
        told = line.receive()
        assert told is not None
        begun_ns = time.monotonic_ns()
        with pccl.Communicator(address, told["group"], min_world_size=1) as comm:
            comm.connect()
            while comm.global_world_size < told["peers"]:
                if comm.are_peers_pending():
                    comm.update_topology()
            if told["links"]:
                comm.all_to_all(np.zeros(comm.world_size))
            line.send(joined=[begun_ns, time.monotonic_ns(), comm.rank, comm.epoch])
            line.receive()


def reducing(line: Line, address: str) -> None:
    """Connects when told to, says that it is in, and reduces with whoever is there until it is killed."""
    line.send(ready=True)
    line.receive()
    with pccl.Communicator(address, min_world_size=1) as comm:
        comm.connect()
        line.send(joined=[0, time.monotonic_ns(), comm.rank, comm.epoch])
        while True:
            try:
                if comm.are_peers_pending():
                    comm.update_topology()
                comm.all_reduce(np.ones(1000))
            except (pccl.PeerLost, pccl.CallMismatch):
                continue


def busy(line: Line, address: str) -> None:
    """One of four that reduce large arrays until they are told to close: how long that took."""
    with pccl.Communicator(address) as comm:
        comm.connect()
        gather(comm, 4)
        x = np.zeros(ELEMENTS, np.float32)
        line.send(ready=True)
        told = False
        while not told:
            handle = comm.all_reduce_async(x)
            while not told and not handle.done():
                told = line.receive(timeout_s=0.01) is not None
        begun_ns = time.monotonic_ns()
        comm.close()
        line.send(closed=(time.monotonic_ns() - begun_ns) / 1e6)


ROLES: dict[str, Callable[[Line, str], None]] = {role.__name__: role for role in (coming, reducing, busy)}


# ---------------------------------------------------------------------------------------------- supervision


class Crowd:
    """Processes that play a role. A context manager with a master, unless that is to come later."""

    def __init__(self, *, master: bool = True) -> None:
        self.master = Master()
        self._has_master = master
        self._fleet = Fleet()
        self._early: dict[Child, list[dict[str, Any]]] = {}

    def __enter__(self) -> Crowd:
        if self._has_master:
            self.master.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._fleet.close()
        self.master.kill()

    def start(self, role: Callable[[Line, str], None], count: int = 1) -> list[Child]:
        """Returns when they are ready."""
        arguments = [__file__, "--role", role.__name__, "--master", self.master.address]
        children = [self._fleet.start(f"{role.__name__} {it}", arguments, ONE_THREAD) for it in range(count)]
        self._early.update({child: [] for child in children})
        self.answers("ready", children)
        return children

    def answers(self, key: str, children: list[Child]) -> list[Any]:
        """The next message of each. Raises RuntimeError when one says something else, or nothing."""
        return [self._next(child, key)[key] for child in children]

    def _next(self, child: Child, key: str) -> dict[str, Any]:
        early = self._early[child]
        while not early:
            arrived = self._fleet.next(SILENCE_LIMIT_S)
            if arrived is None:
                raise RuntimeError(f"{child.name} said nothing for {SILENCE_LIMIT_S:.0f} s")
            sender, message = arrived
            if message is None and sender is child:
                raise RuntimeError(f"{child.name} ended with exit status {child.exit_code}")
            if message is not None:
                self._early[sender].append(message)
        message = early.pop(0)
        if key not in message:
            raise RuntimeError(f"{child.name} said {message} instead of {key!r}")
        return message


def joined(crowd: Crowd, children: list[Child], size: int = 0) -> tuple[float, float]:
    """All come at one moment and leave again: milliseconds between the first start and the last, and until the last is
    in. They come in one group or, with `size`, in groups of so many, and use all links. Raises RuntimeError when they
    have come otherwise."""
    for number, child in enumerate(children):
        child.tell(peers=len(children), group=number // (size or len(children)), links=size > 0)
    begun, ended, ranks, epochs = zip(*crowd.answers("joined", children), strict=True)
    for first in range(0, len(children), size or len(children)):
        group = slice(first, first + (size or len(children)))
        if sorted(ranks[group]) != list(range(len(ranks[group]))) or len(set(epochs[group])) != 1:
            raise RuntimeError(f"ranks {ranks[group]} in epochs {epochs[group]}")
    for child in children:
        child.tell(leave=True)
    crowd.answers("ready", children)
    return (max(begun) - min(begun)) / 1e6, (max(ended) - min(begun)) / 1e6


@contextmanager
def scanned(address: str) -> Iterator[None]:
    """Somebody connects to that port and closes, without a pause."""
    host, _, port = address.rpartition(":")
    over = threading.Event()

    def scan() -> None:
        while not over.is_set():
            socket.create_connection((host, int(port)), timeout=SILENCE_LIMIT_S).close()

    thread = threading.Thread(target=scan)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def told(what: str, times_ms: list[float], limit_ms: float = float("inf")) -> bool:
    """Prints a line; whether all are within the limit."""
    good = max(times_ms) <= limit_ms
    limit = f", limit {limit_ms:.0f} ms" if limit_ms < float("inf") else ""
    print(
        f"{what}: {len(times_ms)} times, median {statistics.median(times_ms):.1f} ms, max {max(times_ms):.1f} ms{limit}"
        f"{'' if good else '   FAILED'}",
        flush=True,
    )
    return good


# ---------------------------------------------------------------------------------------------- the parts


def storm() -> bool:
    good = True
    for peers, repeats, limit_ms in ((16, 20, START_LIMIT_MS), (64, 1, float("inf"))):
        with Crowd() as crowd:
            children = crowd.start(coming, peers)
            starts, whole = zip(*(joined(crowd, children) for _ in range(repeats)), strict=True)
        good &= told(f"storm of {peers}, between the first start and the last", list(starts), limit_ms)
        told(f"storm of {peers}, until all are one group", list(whole))
    return good


def groups() -> bool:
    with Crowd() as crowd:
        children = crowd.start(coming, 12)
        times = [joined(crowd, children, size)[1] for size in (12, 6, 4, 3, 2) for _ in range(4)]
    return told("12 peers in groups, until all are in and have links", times, GROUPS_LIMIT_MS)


def rejoin() -> bool:
    times = []
    with Crowd() as crowd:
        first, life = crowd.start(reducing, 2)
        for child in (first, life):
            child.tell(go=True)
            crowd.answers("joined", [child])
        for _ in range(50):
            (following,) = crowd.start(reducing)
            killed_ns = life.kill()
            following.tell(go=True)
            ((_, in_ns, _, _),) = crowd.answers("joined", [following])
            times.append((in_ns - killed_ns) / 1e6)
            life = following
    return told("rejoin, from the SIGKILL until the next life is a member", times, REJOIN_LIMIT_MS)


def scan() -> bool:
    with Crowd() as crowd:
        children = crowd.start(coming)
        alone = [joined(crowd, children)[1] for _ in range(50)]
        with scanned(crowd.master.address):
            between = [joined(crowd, children)[1] for _ in range(50)]
    told("join, undisturbed", alone)
    told("join, while the master's port is scanned", between)
    times = statistics.median(between) / statistics.median(alone)
    good = times <= SCAN_LIMIT_TIMES
    print(f"scan: {times:.2f} times as long{'' if good else '   FAILED'}")
    return good


def late() -> bool:
    times = []
    with socket.create_server(("127.0.0.1", 0)) as holder:
        address = f"127.0.0.1:{holder.getsockname()[1]}"
    for _ in range(10):
        with Crowd(master=False) as crowd:
            crowd.master.address = address
            children = crowd.start(coming, 2)
            for child in children:
                child.tell(peers=2, group=0, links=False)
            crowd.master.start()
            there_ns = time.monotonic_ns()
            times += [(ended - there_ns) / 1e6 for _, ended, _, _ in crowd.answers("joined", children)]
    return told("late master, from its first line until a waiting peer is in a group of two", times, LATE_LIMIT_MS)


def close() -> bool:
    times = []
    for _ in range(5):
        with Crowd() as crowd:
            victim, *others = crowd.start(busy, 4)
            victim.kill(signal.SIGSTOP)
            for child in others:
                child.tell(close=True)
            times += crowd.answers("closed", others)
    return told("close, with a stopped member in an operation", times, CLOSE_LIMIT_MS)


PARTS: dict[str, Callable[[], bool]] = {part.__name__: part for part in (storm, groups, rejoin, scan, late, close)}


def main() -> int:
    """The supervisor, or with --role one of its peers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=list(PARTS), action="append", help="default: all")
    parser.add_argument("--role", choices=list(ROLES), help=argparse.SUPPRESS)
    parser.add_argument("--master", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role:
        ROLES[options.role](Line.to_supervisor(), options.master)
        return 0
    results = [PARTS[part]() for part in options.part or PARTS]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
