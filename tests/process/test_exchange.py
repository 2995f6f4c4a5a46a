# SPDX-License-Identifier: MIT
"""Calls on Python objects, which take several operations each, when a member dies between two of these: one outcome for
all survivors, nothing that belongs to another call, and the next call is as good as any."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pccl
from pccl.exchange import OWN_TAGS
from pccl.fleet import Child, Line
from pccl.request import Request
from tests.process.faults import long
from tests.process.harness import Run, gather

pytestmark = pytest.mark.process

SIZE = 3
ROOT = 1
OPERATIONS = {"broadcast_object": 2, "all_gather_object": 2, "gather_object": 2, "scatter_object": 3}
"""Of each call."""


class Halting(pccl.Communicator):
    """Stops between the operations of a call on objects: it then says so, and goes on when it is told to."""

    def __init__(self, line: Line, address: str, **options: Any) -> None:
        super().__init__(address, min_world_size=1, **options)
        self._line = line
        self.left = -1
        """Operations until it stops; negative: it does not."""

    def _run(self, request: Request, priority: int = 0) -> pccl.ReduceInfo:
        info = super()._run(request, priority)
        if request.call.tag >= OWN_TAGS:
            self.left -= 1
            if self.left == 0:
                self._line.send(kind="halts")
                self._line.receive()
        return info


def own(rank: int, step: int) -> dict[str, Any]:
    """Tells whose it is and which call it belongs to, in another size on each rank."""
    return {"rank": rank, "step": step, "text": "x" * 50_000 * rank}


def call(comm: pccl.Communicator, name: str, step: int, epoch: int, start: str = "") -> Any:
    """One call of all members of an epoch; `start` "_async" only starts it."""
    value = [own(to, step) for to in range(comm.world_size)] if name == "scatter_object" else own(comm.rank, step)
    arguments = () if name == "all_gather_object" else (ROOT,)
    return getattr(comm, name + start)(value, *arguments, epoch=epoch)


def right(name: str, step: int, size: int, rank: int) -> Any:
    """What it is to return."""
    everyone = [own(r, step) for r in range(size)]
    return {
        "broadcast_object": everyone[ROOT],
        "all_gather_object": everyone,
        "gather_object": everyone if rank == ROOT else None,
        "scatter_object": everyone[rank],
    }[name]


def repeat(comm: pccl.Communicator, line: Line, name: str, step: int, commit: str) -> None:
    """One call, and what settles it, until that succeeds; whatever is returned meanwhile is right."""
    while True:
        epoch = comm.epoch
        size, rank = comm.world_size, comm.rank
        try:
            got = call(comm, name, step, epoch)
            assert got == right(name, step, size, rank)
            if commit == "deferred":
                comm.commit()
            return
        except pccl.PeerLost:
            line.send(kind="lost")


def member(line: Line, address: str, commit: str) -> None:
    """Gathers, and calls what it is told to."""
    with Halting(line, address, commit=commit) as comm:
        comm.connect()
        while (told := line.receive()) is not None:
            if told["kind"] == "gather":
                gather(comm, SIZE)
                line.send(kind="there", rank=comm.rank)
            else:
                comm.left = told["halt"]
                repeat(comm, line, told["name"], told["step"], commit)
                line.send(kind="ended", size=comm.world_size)


def ranked(run: Run, peers: list[Child]) -> list[Child]:
    """All of them meet: by rank."""
    for peer in peers:
        peer.tell(kind="gather")
    ranks = [run.expect(peer, "there")["rank"] for peer in peers]
    return [peers[ranks.index(rank)] for rank in range(SIZE)]


WAYS = [(name, commit) for commit in ("each", "deferred") for name in OPERATIONS]
SHORT = [(name, "each") for name in OPERATIONS] + [("scatter_object", "deferred")]


@pytest.mark.parametrize(("name", "commit"), [*SHORT, *long(*(it for it in WAYS if it not in SHORT))])
def test_a_member_dies_between_two_operations_of_a_call(tmp_path: Path, name: str, commit: str) -> None:
    """The victim is the root or not, and has done none, some or all of the operations. One survivor has come as far as
    the victim, and goes on only when the other one knows of the loss, if it is to."""
    with Run(tmp_path) as run:
        peers = [run.peer(member, commit) for _ in range(SIZE)]
        step = 0
        for rank in (ROOT, SIZE - 1):
            for done in range(OPERATIONS[name] + 1):
                peers = ranked(run, peers)
                spare = run.peer(member, commit)
                victim = peers.pop(rank)
                slow, fast = peers
                lost = done < OPERATIONS[name] or commit == "deferred"
                step += 1
                halting = [victim, slow] if done else []
                for peer in (fast, *halting):
                    peer.tell(kind="call", name=name, step=step, halt=done if peer in halting else -1)
                for peer in halting:
                    run.expect(peer, "halts")
                victim.kill()
                run.next_of(victim, "ended")
                if lost:
                    run.expect(fast, "lost")
                slow.tell(kind="call", name=name, step=step, halt=-1)  # it goes on, or begins
                if lost and done:
                    run.expect(slow, "lost")
                for peer in peers:
                    assert (run.expect if done else run.next_of)(peer, "ended")["size"] in ([2] if lost else [2, 3])
                step += 1
                for peer in peers:
                    peer.tell(kind="call", name=name, step=step, halt=-1)
                for peer in peers:
                    assert run.next_of(peer, "ended")["size"] == 2
                peers.append(spare)
        assert step == 4 * (OPERATIONS[name] + 1)


def pipelining(line: Line, address: str) -> None:
    """Makes two calls without looking at the first one: rank 0 at once, rank 1 when the first is over, with another
    epoch than it began in."""
    with Halting(line, address) as comm:
        comm.connect()
        gather(comm, SIZE)
        line.send(kind="there", rank=comm.rank)
        line.receive()
        if comm.rank == SIZE - 1:
            comm.left = 1
            call(comm, "all_gather_object", 0, 0)
        jobs = [comm.all_gather_object_async(own(comm.rank, step)) for step in range(2 - comm.rank)]
        line.send(kind="begun")
        while not jobs[0].done():
            comm.explain()
        jobs += [comm.all_gather_object_async(own(comm.rank, 1)) for _ in range(comm.rank)]
        lost = []
        for step, job in enumerate(jobs):
            try:
                job.wait()
            except pccl.PeerLost:
                lost.append(step)
        for step in lost:
            assert comm.all_gather_object(own(comm.rank, step)) == [own(rank, step) for rank in range(SIZE - 1)]
        line.send(kind="ended", lost=lost)


def test_what_was_called_behind_a_lost_call_is_lost_too(tmp_path: Path) -> None:
    """Otherwise the second call of one member would meet what another one calls again, which is its first."""
    with Run(tmp_path) as run:
        peers = [run.peer(pipelining) for _ in range(SIZE)]
        ranks = [run.expect(peer, "there")["rank"] for peer in peers]
        for peer in peers:
            peer.tell(kind="go")
        first, second, victim = (peers[ranks.index(rank)] for rank in range(SIZE))
        run.expect(victim, "halts")
        for peer in (first, second):
            run.expect(peer, "begun")
        victim.kill()
        for peer in (first, second):
            assert run.expect(peer, "ended")["lost"] == [0, 1]
            assert run.ended(peer) == 0
