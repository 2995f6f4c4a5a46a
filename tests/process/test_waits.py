# SPDX-License-Identifier: MIT
"""Blocking calls: Ctrl-C reaches them, other Python threads run meanwhile, and a master may come later."""

from __future__ import annotations

import signal
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
from tests.process.harness import Run, join

pytestmark = pytest.mark.process

SOON_S = 1.0


def blocked(comm: pccl.Communicator, where: str) -> Callable[[], object]:
    """A call that cannot end before the other peer does something."""
    handle = comm.barrier_async(tag=9) if where == "handle" else None
    return {
        "all_reduce": lambda: comm.all_reduce(np.ones(10)),
        "barrier": comm.barrier,
        "handle": lambda: handle.wait() if handle is not None else None,
        "update_topology": comm.update_topology,
        "sync_shared_state": lambda: comm.sync_shared_state(
            pccl.SharedState([pccl.TensorInfo.from_numpy(np.ones(10), "x")])
        ),
    }[where]


def announce(line: Line) -> None:
    """Says "ready" once the main thread is inside pccl."""
    main = threading.main_thread().ident
    assert main is not None

    def watch() -> None:
        while Path(sys._current_frames()[main].f_code.co_filename).name not in ("_native.py", "control.py"):
            pass
        line.send(kind="ready", leader=True)

    threading.Thread(target=watch).start()


# ---------------------------------------------------------------------------------------------- signals


def interrupted(line: Line, address: str, where: str) -> None:
    if where == "connect":
        comm = pccl.Communicator(address)
        call: Callable[[], object] = comm.connect
    else:
        comm = join(address, 2)
        comm.barrier(tag=1)
        if comm.rank == 1:
            line.send(kind="ready", leader=False)
            line.receive()
            comm.close()
            return
        call = blocked(comm, where)
    try:
        announce(line)
        call()
    except KeyboardInterrupt:
        line.send(kind="interrupted")
    comm.close()


@pytest.mark.parametrize("where", ["all_reduce", "barrier", "handle", "update_topology", "sync_shared_state"])
def test_ctrl_c_ends_every_wait(tmp_path: Path, where: str) -> None:
    with Run(tmp_path) as run:
        pair = [run.peer(interrupted, where) for _ in range(2)]
        leaders = [run.expect(peer, "ready")["leader"] for peer in pair]
        leader, other = pair[leaders.index(True)], pair[leaders.index(False)]
        begun = time.monotonic()
        leader.kill(signal.SIGINT)
        run.expect(leader, "interrupted")
        assert time.monotonic() - begun < SOON_S
        other.tell(kind="go")
        assert [run.ended(peer) for peer in pair] == [0, 0]


def test_ctrl_c_ends_connect_without_a_master(tmp_path: Path) -> None:
    with Run(tmp_path, master=False) as run, socket.create_server(("127.0.0.1", 0)) as silent:
        run.master.address = f"127.0.0.1:{silent.getsockname()[1]}"
        peer = run.peer(interrupted, "connect")
        run.expect(peer, "ready")
        begun = time.monotonic()
        peer.kill(signal.SIGINT)
        run.expect(peer, "interrupted")
        assert time.monotonic() - begun < SOON_S
        assert run.ended(peer) == 0


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
        line.send(kind="ready", leader=True)
        call()
        thread.join()
    line.send(kind="through")
    comm.barrier(tag=2)
    comm.close()


@pytest.mark.parametrize("where", ["all_reduce", "barrier", "handle", "update_topology", "sync_shared_state"])
def test_other_threads_run_while_a_call_blocks(tmp_path: Path, where: str) -> None:
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


# ---------------------------------------------------------------------------------------------- start order


def test_peers_may_start_before_the_master(tmp_path: Path) -> None:
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
