# SPDX-License-Identifier: MIT
"""Blocking calls: other Python threads run meanwhile, as fast as ever, and a master may come later."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import pccl
from pccl.fleet import Line
from tests.process.harness import Run, gather, join

pytestmark = [pytest.mark.process, pytest.mark.alone]


def blocked(comm: pccl.Communicator, where: str) -> Callable[[], object]:
    """A call that cannot end before the other of two peers makes it too. Each is made for one use."""
    x, block, both = np.ones(10), np.zeros(5), np.zeros(20)
    handle = comm.barrier_async(tag=9) if where == "handle" else None
    several = [np.ones(10) for _ in range(5)]
    state = pccl.SharedState([pccl.TensorInfo.from_numpy(np.ones(10), "x")])
    return {
        "all_reduce": lambda: comm.all_reduce(x),
        "reduce_scatter": lambda: comm.reduce_scatter(x, block),
        "all_gather": lambda: comm.all_gather(x, both),
        "broadcast": lambda: comm.broadcast(x, root=1),
        "barrier": comm.barrier,
        "commit": comm.commit,
        "several": lambda: comm.all_reduce_multiple_with_retry(several, tag=30, max_in_flight=2),
        "handle": lambda: handle.wait() if handle is not None else None,
        "update_topology": comm.update_topology,
        "are_peers_pending": comm.are_peers_pending,
        "optimize_topology": comm.optimize_topology,
        "sync_shared_state": lambda: comm.sync_shared_state(state),
    }[where]


COLLECTIVES = (
    "all_reduce", "reduce_scatter", "all_gather", "broadcast", "barrier", "commit", "several", "handle",
)  # fmt: skip
JOINT_CALLS = ("update_topology", "are_peers_pending", "optimize_topology", "sync_shared_state")


def announce(line: Line, files: tuple[str, ...] = ("_native.py", "control.py")) -> None:
    """Says "ready" once the main thread is inside one of those files, where it blocks."""
    main = threading.main_thread().ident
    assert main is not None

    def watch() -> None:
        while Path(sys._current_frames()[main].f_code.co_filename).name not in files:
            pass
        line.send(kind="ready", leader=True)

    threading.Thread(target=watch).start()


# ---------------------------------------------------------------------------------------------- the GIL


def answered_by_a_thread(line: Line, address: str, where: str) -> None:
    """Rank 0 blocks; one of its Python threads must answer before rank 1 may follow."""
    comm = join(address, 2)
    comm.barrier(tag=1)
    if comm.rank == 1:
        line.send(kind="ready", leader=False)
        line.receive()
        blocked(comm, where)()
    else:
        call = blocked(comm, where)

        def answer() -> None:
            line.receive()
            line.send(kind="answer")

        thread = threading.Thread(target=answer)
        thread.start()
        announce(line)
        call()
        thread.join()
    line.send(kind="through")
    comm.barrier(tag=2)
    comm.close()


@pytest.mark.parametrize("where", [*COLLECTIVES, *JOINT_CALLS])
def test_other_threads_run_while_a_call_blocks(tmp_path: Path, where: str) -> None:
    """B70."""
    with Run(tmp_path) as run:
        pair = [run.peer(answered_by_a_thread, where) for _ in range(2)]
        leaders = [run.expect(peer, "ready")["leader"] for peer in pair]
        leader, other = pair[leaders.index(True)], pair[leaders.index(False)]
        leader.tell(kind="question")
        run.expect(leader, "answer")
        other.tell(kind="go")
        for peer in pair:
            run.expect(peer, "through")
        assert [run.ended(peer) for peer in pair] == [0, 0]


def founding(line: Line, address: str) -> None:
    """The first of two, who lets the other in only when told to."""
    with join(address, 1, min_world_size=1) as comm:
        line.send(kind="up")
        line.receive()
        gather(comm, 2)
        comm.barrier(tag=2)


def connecting(line: Line, address: str) -> None:
    """Blocks in connect; one of its threads must answer, and as fast as ever, before the other may let it in."""
    idle = sorted(rate() for _ in range(WINDOWS))
    comm = pccl.Communicator(address)

    def answer() -> None:
        line.receive()
        line.send(kind="counted", idle=idle, busy=sorted(rate() for _ in range(WINDOWS)))

    thread = threading.Thread(target=answer)
    thread.start()
    announce(line)
    comm.connect()
    thread.join()
    comm.barrier(tag=2)
    comm.close()


def test_other_threads_run_while_connect_blocks(tmp_path: Path) -> None:
    """B70."""
    with Run(tmp_path) as run:
        first = run.peer(founding)
        run.expect(first, "up")
        second = run.peer(connecting)
        run.expect(second, "ready")
        second.tell(kind="question")
        counted = run.expect(second, "counted")
        assert counted["busy"][-1] >= SHARE * counted["idle"][WINDOWS // 2], counted
        first.tell(kind="go")
        assert [run.ended(peer) for peer in (first, second)] == [0, 0]


WINDOWS = 12
WINDOW_S = 0.05
SHARE = 0.8


def rate() -> float:
    """Turns of a loop per second, over a short window."""
    begun, turns = time.monotonic(), 0
    while (now := time.monotonic()) - begun < WINDOW_S:
        turns += 1
    return turns / (now - begun)


def ticking(line: Line, address: str, where: str) -> None:
    """Rank 0 blocks while one of its threads counts; rank 1 follows when that has been compared."""
    comm = join(address, 2)
    comm.barrier(tag=1)
    if comm.rank == 0:
        idle: list[float] = []
        busy: list[float] = []

        def count(rates: list[float]) -> None:
            rates.extend(rate() for _ in range(WINDOWS))
            if rates is busy:
                line.send(kind="counted", idle=sorted(idle), busy=sorted(busy))

        alone = threading.Thread(target=count, args=(idle,))
        alone.start()
        alone.join()
        call = blocked(comm, where)
        threading.Thread(target=count, args=(busy,)).start()
        call()
    else:
        line.send(kind="ready")
        line.receive()
        blocked(comm, where)()
    comm.barrier(tag=2)
    comm.close()


@pytest.mark.parametrize("where", ["all_reduce", "handle", "update_topology", "sync_shared_state"])
def test_other_threads_are_as_fast_while_a_call_blocks(tmp_path: Path, where: str) -> None:
    """B70: of many short windows the best, since other processes take the rest."""
    with Run(tmp_path) as run:
        pair = [run.peer(ticking, where) for _ in range(2)]
        messages = [run.next(peer) for peer in pair]
        kinds = [message["kind"] for message in messages]
        assert sorted(kinds) == ["counted", "ready"]
        counted = messages[kinds.index("counted")]
        assert counted["busy"][-1] >= SHARE * counted["idle"][WINDOWS // 2], counted
        pair[kinds.index("ready")].tell(kind="go")
        assert [run.ended(peer) for peer in pair] == [0, 0]


# ---------------------------------------------------------------------------------------------- start order


def test_peers_may_start_before_the_master(tmp_path: Path) -> None:
    """B58."""
    with socket.create_server(("127.0.0.1", 0)) as placeholder:
        address = f"127.0.0.1:{placeholder.getsockname()[1]}"
    with Run(tmp_path, master=False) as run:
        run.master.address = address
        peers = [run.peer(early) for _ in range(2)]
        for peer in peers:
            run.expect(peer, "starting")
        run.master.start()
        for peer in peers:
            run.expect(peer, "joined")
        assert [run.ended(peer) for peer in peers] == [0, 0]


def early(line: Line, address: str) -> None:
    with pytest.raises(pccl.MasterLost, match="no master at"):
        pccl.Communicator(address, connect_timeout=0.1).connect()
    line.send(kind="starting")
    with join(address, 2) as comm:
        line.send(kind="joined")
        comm.barrier()
