#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Connects, closes and aborts a thousand times each, and shows what is left of it: descriptors, threads, memory.

Four parts, each in processes of its own, measured after a warm-up and at the end:

    alone      a peer connects, reduces and closes
    pair       two peers meet, reduce and close, at once again
    aborted    three peers stay while a fourth joins and leaves in the middle of an operation: PeerLost for the three
    refused    three peers make operations that end with CollectiveMismatch, and with OperationTimeout

The exit status is 0 only if descriptors stay within 3, threads are equal and resident memory grows by less than a MiB.

Memory is what the kernel says, after glibc has given back what it holds free (`pccl/stress/usage.py` says why). What
the allocator holds in use is shown beside it.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
import time
from typing import Any

import numpy as np

import pccl
from pccl.fleet import Child, Fleet, Line, Master, gather
from pccl.stress.usage import release, usage

WARM_UP = 200
ELEMENTS = 100_000
FD_MARGIN = 3
RSS_MARGIN_BYTES = 1 << 20
SETTLE_LIMIT_S = 10.0
SILENCE_LIMIT_S = 120.0
PATIENCE_S = 0.02
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


# ---------------------------------------------------------------------------------------------- measuring


class _MallInfo(ctypes.Structure):
    """`struct mallinfo2` of glibc."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    )  # fmt: skip


def held(threads: int | None = None) -> dict[str, int]:
    """By this process, now: `Usage`, and the allocator's word. A joined thread takes the kernel a moment to forget, so
    it waits for that many."""
    deadline = time.monotonic() + SETTLE_LIMIT_S
    release()
    while threads is not None and usage().threads > threads and time.monotonic() < deadline:
        pass
    release()
    return {**vars(usage()), "malloc_bytes": _malloc_bytes()}


def _malloc_bytes() -> int:
    try:
        mallinfo = ctypes.CDLL(None).mallinfo2
    except AttributeError:  # another C library
        return 0
    mallinfo.restype = _MallInfo
    info = mallinfo()
    return int(info.uordblks + info.hblkhd)


class Meter:
    """Sends the growth since the warm-up when the last round is done."""

    def __init__(self, line: Line, rounds: int) -> None:
        self._line = line
        self._last = WARM_UP + rounds
        self._base: dict[str, int] | None = None
        self.round = 0

    @property
    def more(self) -> bool:
        """Whether there is another round."""
        return self.round < self._last

    def done(self) -> None:
        """A round is done."""
        self.round += 1
        if self.round == WARM_UP:
            self._base = held()
        if self.round == self._last:
            assert self._base is not None
            now = held(self._base["threads"])
            growth = {name: value - self._base[name] for name, value in now.items()}
            self._line.send(growth=growth, rss_bytes=now["rss_bytes"])
        elif self.round % 50 == 0:
            self._line.send(round=self.round)


# ---------------------------------------------------------------------------------------------- what peers do


def alone(line: Line, address: str, rounds: int) -> None:
    """Lives of one peer."""
    meter = Meter(line, rounds)
    while meter.more:
        with pccl.Communicator(address, os.getpid(), min_world_size=1) as comm:
            comm.connect()
            comm.all_reduce(np.ones(ELEMENTS, np.float32))
        meter.done()


def pair(line: Line, address: str, rounds: int) -> None:
    """Lives of one of two peers."""
    meter = Meter(line, rounds)
    while meter.more:
        with pccl.Communicator(address) as comm:
            comm.connect()
            gather(comm, 2)
            x = np.full(ELEMENTS, comm.rank + 1, np.float32)
            comm.all_reduce(x)
            assert (x == 3).all()
        meter.done()


def staying(line: Line, address: str, rounds: int) -> None:
    """One of three that lose the fourth in each round, half of the time in place."""
    meter = Meter(line, rounds)
    out = np.zeros(ELEMENTS, np.float32)
    x = np.ones(ELEMENTS, np.float32)
    with pccl.Communicator(address) as comm:
        comm.connect()
        while meter.more:
            gather(comm, 4)
            handle = comm.all_reduce_async(x, None if meter.round % 2 else out, tag=2)
            comm.barrier(tag=1)
            try:
                handle.wait()
            except pccl.PeerLost:
                assert (x == 1).all()
                comm.all_reduce(x, out, tag=2)
                assert (out == 3).all()
                meter.done()
            else:
                raise RuntimeError("an operation without the fourth succeeded")


def leaving(line: Line, address: str, rounds: int) -> None:
    """The fourth: it comes and goes."""
    while True:
        with pccl.Communicator(address) as comm:
            try:
                comm.connect()
                gather(comm, 4)
                comm.barrier(tag=1)
            except (pccl.PeerLost, pccl.MasterLost, pccl.TooFewPeers):
                return  # the others are done


def refused(line: Line, address: str, rounds: int) -> None:
    """One of three that disagree, or of which two wait in vain."""
    meter = Meter(line, rounds)
    with pccl.Communicator(address) as comm:
        comm.connect()
        gather(comm, 3)
        leader = comm.rank == 0
        x = np.ones(ELEMENTS, np.float32)
        short = np.ones(ELEMENTS // 2, np.float32)
        while meter.more:
            try:
                if meter.round % 2 == 0:
                    comm.all_reduce(short if leader else x)
                elif not leader:
                    comm.all_reduce(x, timeout=PATIENCE_S)
            except (pccl.CollectiveMismatch, pccl.OperationTimeout, pccl.PeerLost):
                pass
            else:
                if meter.round % 2 == 0 or not leader:
                    raise RuntimeError("an operation that could not end well did")
            while True:
                try:
                    comm.barrier(tag=3)
                    break
                except (pccl.PeerLost, pccl.OperationTimeout):  # a timeout of one ends the epoch for all
                    continue
            meter.done()
        assert (x == 1).all()


# ---------------------------------------------------------------------------------------------- supervision


PARTS = {"alone": [alone], "pair": [pair] * 2, "aborted": [staying] * 3 + [leaving], "refused": [refused] * 3}
ROLES = {role.__name__: role for roles in PARTS.values() for role in roles}


def run(part: str, rounds: int) -> list[dict[str, Any]]:
    """The growth of each peer that measured itself. Raises RuntimeError when one fails or says nothing."""
    with Master() as master, Fleet() as fleet:
        children = [
            fleet.start(f"{part} {number} ({role.__name__})",
                        [__file__, "--role", role.__name__, "--master", master.address, "--rounds", str(rounds)],
                        ONE_THREAD)
            for number, role in enumerate(PARTS[part])
        ]  # fmt: skip
        measuring = [child for child, role in zip(children, PARTS[part], strict=True) if role is not leaving]
        return [growth_of(fleet, child) for child in measuring]


_early: dict[Child, dict[str, Any]] = {}


def growth_of(fleet: Fleet, child: Child) -> dict[str, Any]:
    """What the child says at its end; others may say theirs meanwhile."""
    while child not in _early:
        arrived = fleet.next(SILENCE_LIMIT_S)
        if arrived is None:
            raise RuntimeError(f"nobody said anything for {SILENCE_LIMIT_S:.0f} s")
        sender, message = arrived
        if message is None and sender not in _early and "leaving" not in sender.name:
            raise RuntimeError(f"{sender.name} ended with exit status {sender.exit_code}")
        if message is not None and "growth" in message:
            _early[sender] = message
    return _early.pop(child)


def broken(growth: dict[str, int]) -> list[str]:
    """What is over its margin."""
    found = []
    if abs(growth["fds"]) > FD_MARGIN:
        found.append(f"{growth['fds']:+d} descriptors")
    if growth["threads"] != 0:
        found.append(f"{growth['threads']:+d} threads")
    if growth["rss_bytes"] >= RSS_MARGIN_BYTES:
        found.append(f"{growth['rss_bytes'] / 1024:+.0f} KiB of memory")
    return found


def main() -> int:
    """The supervisor, or with --role one of its peers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1000, help="after the warm-up")
    parser.add_argument("--part", choices=list(PARTS), action="append", help="default: all")
    parser.add_argument("--role", choices=list(ROLES), help=argparse.SUPPRESS)
    parser.add_argument("--master", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role:
        ROLES[options.role](Line.to_supervisor(), options.master, options.rounds)
        return 0
    print(f"{options.rounds} rounds after {WARM_UP} for warm-up; growth of each peer:")
    print(f"{'part':>8} {'fds':>5} {'threads':>8} {'RSS KiB':>9} {'malloc KiB':>11} {'of MiB':>8} {'s':>6}", flush=True)
    faults = 0
    for part in options.part or PARTS:
        begun = time.monotonic()
        for message in run(part, options.rounds):
            growth = message["growth"]
            print(
                f"{part:>8} {growth['fds']:5d} {growth['threads']:8d} {growth['rss_bytes'] / 1024:9.0f} "
                f"{growth['malloc_bytes'] / 1024:11.1f} {message['rss_bytes'] / 2**20:8.1f} "
                f"{time.monotonic() - begun:6.0f}",
                flush=True,
            )
            for text in broken(growth):
                faults += 1
                print(f"FAILED: {part}: {text}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
