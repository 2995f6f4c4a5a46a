# SPDX-License-Identifier: MIT
"""Joint calls that nobody else makes: they end, say for whom they waited, and leave nothing behind."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import pccl
from pccl.fleet import Line
from tests.process.harness import Run, gather, join
from tests.process.test_waits import announce

pytestmark = [pytest.mark.process, pytest.mark.alone]

CALLS: dict[str, Callable[[pccl.Communicator], object]] = {
    "update_topology": lambda comm: comm.update_topology(),
    "are_peers_pending": lambda comm: comm.are_peers_pending(),
    "optimize_topology": lambda comm: comm.optimize_topology(),
    "sync_shared_state": lambda comm: comm.sync_shared_state(
        pccl.SharedState([pccl.TensorInfo.from_numpy(np.ones(10), "x")])
    ),
}
PATIENCE_S = 1.0
INTERRUPTS = 40


# ---------------------------------------------------------------------------------------------- the deadline


def impatient(line: Line, address: str, where: str) -> None:
    """Rank 0 calls until the deadline, then again with the other."""
    comm = join(address, 2, joint_timeout=PATIENCE_S)
    comm.barrier()
    line.send(kind="ready", rank=comm.rank)
    if comm.rank == 0:
        with pytest.raises(pccl.OperationTimeout) as failure:
            CALLS[where](comm)
        line.send(kind="timeout", text=str(failure.value))
    line.receive()
    CALLS[where](comm)
    comm.barrier()
    comm.close()


@pytest.mark.parametrize("where", list(CALLS))
def test_a_call_that_another_does_not_make_names_it_and_may_be_made_again(tmp_path: Path, where: str) -> None:
    with Run(tmp_path) as run:
        pair = [run.peer(impatient, where) for _ in range(2)]
        ranks = [run.expect(peer, "ready")["rank"] for peer in pair]
        text = run.expect(pair[ranks.index(0)], "timeout")["text"]
        assert text.startswith(f"{where}: waited ")
        assert "ms for rank 1 of group 0 (peer " in text
        assert "rank 0" not in text
        for peer in pair:
            peer.tell(kind="go")
        assert [run.ended(peer) for peer in pair] == [0, 0]


def stuck(line: Line, address: str) -> None:
    """Rank 2 waits in a barrier for rank 1, which does nothing; rank 0 is in the barrier too, and asks."""
    comm = join(address, 3, joint_timeout=PATIENCE_S)
    comm.barrier()
    line.send(kind="ready", rank=comm.rank)
    if comm.rank == 0:
        pending = comm.barrier_async(tag=5)
        line.receive()
        with pytest.raises(pccl.OperationTimeout) as failure:
            comm.are_peers_pending()
        line.send(kind="timeout", text=str(failure.value))
        pending.wait()
    elif comm.rank == 1:
        line.receive()
        comm.barrier(tag=5)
    else:
        pending = comm.barrier_async(tag=5)
        line.send(kind="waiting")
        pending.wait()
    comm.close()


def test_what_an_absent_peer_waits_in_is_named(tmp_path: Path) -> None:
    with Run(tmp_path) as run:
        peers = [run.peer(stuck) for _ in range(3)]
        ranks = [run.expect(peer, "ready")["rank"] for peer in peers]
        caller, idle, waiting = (peers[ranks.index(rank)] for rank in range(3))
        run.expect(waiting, "waiting")
        caller.tell(kind="go")
        text = run.expect(caller, "timeout")["text"]
        assert "rank 1 of group 0 (peer " in text
        absent = text[text.index("rank 2 of group 0 (peer ") :]
        assert ", which had waited " in absent
        assert "ms in operation (tag 5, sequence 0) for " in absent
        assert "rank 1" in absent
        idle.tell(kind="go")
        assert [run.ended(peer) for peer in peers] == [0, 0, 0]


def founder(line: Line, address: str) -> None:
    with join(address, 1, min_world_size=1) as comm:
        line.send(kind="joined")
        line.receive()
        gather(comm, 2)
        comm.barrier()


def newcomer(line: Line, address: str) -> None:
    comm = pccl.Communicator(address, joint_timeout=PATIENCE_S)
    with pytest.raises(pccl.OperationTimeout) as failure:
        comm.connect()
    line.send(kind="timeout", text=str(failure.value))
    line.receive()
    comm.close()
    with join(address, 2) as comm:
        comm.barrier()


def test_a_newcomer_that_nobody_admits_hears_who_does_not_call(tmp_path: Path) -> None:
    with Run(tmp_path) as run:
        first = run.peer(founder)
        run.expect(first, "joined")
        second = run.peer(newcomer)
        text = run.expect(second, "timeout")["text"]
        assert "update_topology waits for rank 0 of group 0 (peer " in text
        for peer in (second, first):
            peer.tell(kind="go")
        assert [run.ended(peer) for peer in (first, second)] == [0, 0]


def waiting_for_a_restart(line: Line, address: str) -> None:
    comm = join(address, 2, joint_timeout=PATIENCE_S)
    comm.barrier()
    line.send(kind="ready", rank=comm.rank)
    if comm.rank == 0:
        line.receive()
        with pytest.raises(pccl.OperationTimeout, match="update_topology"):
            comm.update_topology()
        line.send(kind="timeout")
    line.receive()
    comm.update_topology()
    comm.barrier()
    comm.close()


def test_a_call_that_times_out_without_a_master_ends_when_one_is_back(tmp_path: Path) -> None:
    with Run(tmp_path, journal=True) as run:
        pair = [run.peer(waiting_for_a_restart) for _ in range(2)]
        ranks = [run.expect(peer, "ready")["rank"] for peer in pair]
        run.master.kill()
        pair[ranks.index(0)].tell(kind="go")
        run.master.start()
        run.expect(pair[ranks.index(0)], "timeout")
        for peer in pair:
            peer.tell(kind="go")
        assert [run.ended(peer) for peer in pair] == [0, 0]


# ---------------------------------------------------------------------------------------------- Ctrl-C


def interrupted(line: Line, address: str, where: str) -> None:
    """Rank 0 is interrupted, then calls again with the other."""
    comm = join(address, 2)
    comm.barrier()
    if comm.rank == 0:
        announce(line)
        with pytest.raises(KeyboardInterrupt):
            CALLS[where](comm)
        while comm.explain():
            pass  # until the master has heard of it, the vote of the other would complete it
        line.send(kind="interrupted")
    else:
        line.send(kind="ready", leader=False)
        line.receive()
    CALLS[where](comm)
    comm.barrier()
    line.send(kind="through")
    comm.close()


@pytest.mark.parametrize("where", list(CALLS))
def test_an_interrupted_call_may_be_made_again_at_once(tmp_path: Path, where: str) -> None:
    with Run(tmp_path) as run:
        pair = [run.peer(interrupted, where) for _ in range(2)]
        leaders = [run.expect(peer, "ready")["leader"] for peer in pair]
        leader, other = pair[leaders.index(True)], pair[leaders.index(False)]
        leader.kill(signal.SIGINT)
        run.expect(leader, "interrupted")
        other.tell(kind="go")
        for peer in pair:
            run.expect(peer, "through")
        assert [run.ended(peer) for peer in pair] == [0, 0]


def asking(line: Line, address: str, interrupts: str) -> None:
    """Asks for newcomers until the third peer is in. Ctrl-C comes at any moment of the first calls of one peer."""
    comm = join(address, 2)
    comm.barrier()
    line.send(kind="ready")
    armed, struck = threading.Semaphore(0), threading.Event()
    main = threading.main_thread().ident
    assert main is not None

    def strike() -> None:
        for number in range(int(interrupts)):
            armed.acquire()
            for _ in range(number * 500):
                pass
            signal.pthread_kill(main, signal.SIGINT)
            struck.set()

    thread = threading.Thread(target=strike)
    thread.start()
    left = int(interrupts)
    while comm.group_world_size < 3:
        try:
            struck.clear()
            if left:
                armed.release()
            with contextlib.suppress(pccl.CallMismatch):  # whoever was interrupted is out of step
                if comm.are_peers_pending():
                    comm.update_topology()
            if left:
                struck.wait()
        except KeyboardInterrupt:
            left -= 1
            if not left:
                line.send(kind="enough")
    thread.join()
    comm.barrier()
    comm.close()


def third(line: Line, address: str) -> None:
    with pccl.Communicator(address) as comm:
        comm.connect()
        comm.barrier()


def test_interrupts_that_race_with_answers_break_nothing(tmp_path: Path) -> None:
    with Run(tmp_path) as run:
        peers = [run.peer(asking, "0"), run.peer(asking, str(INTERRUPTS))]
        for peer in peers:
            run.expect(peer, "ready")
        run.expect(peers[1], "enough")
        peers.append(run.peer(third))
        assert [run.ended(peer) for peer in peers] == [0, 0, 0]
