# SPDX-License-Identifier: MIT
"""Peers of one host share memory, unless they may not; a SIGKILL leaves the others going and nothing behind."""

from __future__ import annotations

import resource
from pathlib import Path

import numpy as np
import pytest

import pccl
from pccl.fleet import Line
from tests.process.harness import Run, join, named_segments

pytestmark = [pytest.mark.process, pytest.mark.alone]

COUNT = 1 << 20
ENOUGH_KILLS = 3


def unlimited() -> bool:
    """Whether there are arenas at all here."""
    limits = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_FSIZE)]
    overcommits = Path("/proc/sys/vm/overcommit_memory").read_text().strip() != "2"
    return overcommits and limits == [resource.RLIM_INFINITY] * 2


def mappings() -> list[int]:
    """How many segments that two peers share, and how many arenas, its own too, this process has mapped."""
    files = {tuple(line.split()[4:6]) for line in Path("/proc/self/maps").read_text().splitlines()}
    return [sum(file[1:] == (f"/memfd:{name}",) for file in files) for name in ("pccl", "pccl-arena")]


def reducing(line: Line, address: str) -> None:
    """Reduces until two peers are left; all of `COUNT` elements must be the number of members."""
    with join(address, 2 + ENOUGH_KILLS) as comm:
        line.send(kind="ready", rank=comm.rank)
        size = 0
        while size != 2:
            data = np.ones(COUNT, np.float32)
            try:
                size = comm.all_reduce(data, op=pccl.ReduceOp.SUM).world_size
            except pccl.PeerLost:
                assert (data == 1).all()
                continue
            assert (data == size).all()
            line.send(kind="sum", size=size)
        line.send(kind="left", via=list(comm.transports.values()), mappings=mappings())
        comm.barrier()
    line.send(kind="closed", mappings=mappings())


def test_a_killed_peer_leaves_nobody_stuck_and_nothing_behind(tmp_path: Path) -> None:
    before = named_segments()
    with Run(tmp_path) as run:
        peers = [run.peer(reducing) for _ in range(2 + ENOUGH_KILLS)]
        for peer in peers:
            run.expect(peer, "ready")
        for victim in range(ENOUGH_KILLS):
            size = len(peers) - victim
            while run.next_of(peers[-1], "sum")["size"] != size:
                pass
            peers[victim].kill()
        for peer in peers[ENOUGH_KILLS:]:
            left = run.next_of(peer, "left")
            assert left["via"] == ["shm"]
            assert left["mappings"] == [1, 2 * unlimited()], "one link is left"
            assert run.expect(peer, "closed")["mappings"] == [0, 0]
            assert run.ended(peer) == 0
    assert named_segments() <= before


def resident(name: str) -> int:
    """Bytes of the file of that name that this process has used, over all its mappings."""
    kilobytes, counts = 0, False
    for entry in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in entry.split(" ")[0]:
            counts = f"/memfd:{name} (deleted)" in entry
        elif counts and entry.startswith("Rss:"):
            kilobytes += int(entry.split()[1])
    return 1024 * kilobytes


def lending(line: Line, address: str) -> None:
    """Reduces a large array in place, in the first view that has two members."""
    with join(address, 2) as comm:
        data = np.ones(4 * COUNT, np.float32)
        comm.all_reduce(data)
        assert (data == 2).all()
        line.send(kind="lent", epoch=comm.epoch, bytes=resident("pccl-arena"))
        comm.barrier()


@pytest.mark.skipif(not unlimited(), reason="addresses or files are limited here")
def test_large_arrays_go_through_what_others_have_mapped(tmp_path: Path) -> None:
    """From the first view on: the input is saved where the other side reads it, and so is its."""
    with Run(tmp_path) as run:
        peers = [run.peer(lending) for _ in range(2)]
        for peer in peers:
            assert run.expect(peer, "lent")["bytes"] >= 2 * COUNT * 4
        assert [run.ended(peer) for peer in peers] == [0, 0]


def telling(line: Line, address: str, choice: str) -> None:
    """Reduces once and tells through what."""
    with join(address, 2, shm=choice) as comm:
        data = np.arange(1000.0)
        comm.all_reduce(data)
        assert (data == 2 * np.arange(1000.0)).all()
        line.send(kind="told", via=list(comm.transports.values()), mappings=mappings())
        comm.barrier()


@pytest.mark.parametrize(
    ("one", "other", "via"), [("auto", "auto", "shm"), ("off", "auto", "tcp"), ("off", "off", "tcp")]
)
def test_memory_is_shared_when_both_want_to(tmp_path: Path, one: str, other: str, via: str) -> None:
    with Run(tmp_path) as run:
        peers = {run.peer(telling, choice): choice for choice in (one, other)}
        for peer, choice in peers.items():
            told = run.expect(peer, "told")
            shares = via == "shm"
            arenas = unlimited() * (int(choice != "off") + int(shares))
            assert (told["via"], told["mappings"]) == ([via], [int(shares), arenas])
        assert [run.ended(peer) for peer in peers] == [0, 0]
