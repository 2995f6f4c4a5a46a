# SPDX-License-Identifier: MIT
"""Coming and coming back: storms of newcomers, and peers that are killed and are there again at once."""

from __future__ import annotations

import random
import secrets
import threading
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pccl
from pccl import control
from pccl.fleet import Child, Line
from tests.process.faults import long
from tests.process.harness import Run, gather, join
from tests.process.test_leaks import back_to, counts
from tests.process.test_threads import at_once

pytestmark = pytest.mark.process


def joined_at_once(address: str, count: int, repeats: int) -> None:
    """So many communicators, each in a thread, all connecting at one moment; all must find themselves in one group."""
    for _ in range(repeats):
        start = threading.Barrier(count)
        comms = [pccl.Communicator(address, min_world_size=1) for _ in range(count)]

        def enter(comm: pccl.Communicator, start: threading.Barrier = start) -> tuple[int, int, Any]:
            start.wait()
            comm.connect()
            gather(comm, count)
            assert comm.all_reduce(np.ones(3)).world_size == count
            return comm.rank, comm.epoch, comm._view().members

        found = at_once([partial(enter, comm) for comm in comms])
        ranks, epochs, members = zip(*found, strict=True)  # type: ignore[arg-type]
        assert sorted(ranks) == list(range(count))
        assert len(set(epochs)) == 1
        assert len(set(members)) == 1
        at_once([comm.close for comm in comms])


def test_sixteen_peers_that_come_together_are_one_group() -> None:
    """B40: again and again at one master, which is never idle in between."""
    with pccl.MasterNode("127.0.0.1:0") as node:
        node.run()
        joined_at_once(node.address, 16, 20)


def test_a_storm_of_sixty_four_is_one_group() -> None:
    """B40."""
    with pccl.MasterNode("127.0.0.1:0") as node:
        node.run()
        joined_at_once(node.address, 64, 1)


# ---------------------------------------------------------------------------------------------- coming back


def staying(line: Line, address: str) -> None:
    """Always reduces with whoever is there, and lets newcomers in. Told to "count" steps, says when they are done."""
    left = 0
    with pccl.Communicator(address, min_world_size=1) as comm:
        comm.connect()
        line.send(kind="up")
        while True:
            order = line.receive(timeout_s=0)
            if order is not None and order["kind"] == "stop":
                return
            left = left - 1 if order is None else order["steps"] + 1
            if left == 0:
                line.send(kind="counted")
            step(comm)


def step(comm: pccl.Communicator) -> None:
    try:
        if comm.are_peers_pending():
            comm.update_topology()
        comm.all_reduce(np.ones(1000))
    except (pccl.PeerLost, pccl.CallMismatch):
        pass


def coming_back(line: Line, address: str, id: str) -> None:
    """Under an id of its own, or the one that it is given, in which case its former life may still stand in its way."""
    if id:
        control.secrets = SimpleNamespace(  # type: ignore[assignment]
            randbelow=lambda bound: 6,
            token_bytes=lambda count: id.encode() if count == 15 else secrets.token_bytes(count),
        )
    line.send(kind="ready")
    line.receive()
    refusals = 0
    while True:
        comm = pccl.Communicator(address)
        try:
            comm.connect()
            break
        except pccl.InvalidArgument as refusal:
            comm.close()
            if not id or "is taken" not in str(refusal):
                raise
            refusals += 1
    line.send(kind="in", size=comm.group_world_size, refusals=refusals)
    while True:
        step(comm)


def busying(line: Line, address: str) -> None:
    """Keeps the master busy: comes to a group of its own, leaves, comes again."""
    line.send(kind="up")
    while line.receive(timeout_s=0) is None:
        comm = pccl.Communicator(address, 7, joint_timeout=1.0)
        threading.Timer(0.05, comm.close).start()
        try:
            comm.connect()
        except (pccl.Closed, pccl.OperationTimeout):
            continue


@pytest.mark.parametrize("id", ["", "fifteen bytes x"])
@pytest.mark.parametrize(("repeats", "busy"), [(4, False), (4, True), *long((50, False), (50, True))])
@pytest.mark.timeout(900)
def test_a_killed_peer_is_in_again_when_it_is_back(tmp_path: Path, repeats: int, busy: bool, id: str) -> None:
    """B45: killed while it reduces, there again at once or a little later, again and again, also while the master has
    much to do, and also under the id that it had."""
    chance = random.Random(repeats)
    with Run(tmp_path) as run:
        first = run.peer(staying)
        run.expect(first, "up")
        others: list[Child] = [run.peer(busying) for _ in range(2)] if busy else []
        for other in others:
            run.expect(other, "up")
        before = None
        for _ in range(repeats):
            peer = run.peer(coming_back, id)
            run.expect(peer, "ready")
            if before is not None:
                before.kill()
                if steps := chance.randrange(300) * chance.randrange(2):
                    first.tell(kind="count", steps=steps)
                    run.expect(first, "counted")
            peer.tell(kind="go")
            assert run.expect(peer, "in")["size"] >= 2
            before = peer
        for child in (first, *others):
            child.tell(kind="stop")
        assert [run.ended(child) for child in (first, *others)] == [0] * (1 + len(others))


# ---------------------------------------------------------------------------------------------- again in one process


def lives(line: Line, address: str, count: str, slow: str) -> None:
    """So many lives of one of two peers; in every other one the operation is aborted: rank 1 leaves in it."""
    for life in range(int(count)):
        comm = join(address, 2)
        if slow == "yes":
            sum(range(200_000))
        comm.barrier()
        if life % 2 and comm.rank == 0:
            handle = comm.all_reduce_async(np.ones(10), tag=1)
            comm.barrier(tag=2)
            with pytest.raises(pccl.PeerLost):
                handle.wait()
        elif life % 2:
            comm.barrier(tag=2)
        comm.close()
        if life == 1:  # one that ended well, one that was aborted
            before = counts()
    line.send(kind="lived", left=not back_to(before) and [before, counts()])


def test_a_process_may_join_and_leave_a_hundred_times(tmp_path: Path) -> None:
    """B63: without a pause, at the same address, after aborts too, and with one peer slower than the other. Descriptors
    and threads are as many at the end as after two lives."""
    with Run(tmp_path) as run:
        pair = [run.peer(lives, "100", slow) for slow in ("yes", "no")]
        for peer in pair:
            assert run.expect(peer, "lived")["left"] is False
        assert [run.ended(peer) for peer in pair] == [0, 0]
