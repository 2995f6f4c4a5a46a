# SPDX-License-Identifier: MIT
"""Signals: Ctrl-C ends every blocking call within a second, and what was interrupted goes on or may be called again.

The other peer never notices: an operation whose caller was interrupted goes on in the background, so it ends well for
the other; a joint call is withdrawn, and both may make it anew.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import pccl
from pccl.fleet import Child, Line
from tests.process.harness import LIMIT_S, PATIENCE, Run, Stopwatch, gather, join
from tests.process.test_waits import COLLECTIVES, JOINT_CALLS, announce, blocked

pytestmark = [pytest.mark.process, pytest.mark.alone]

SOON_S = 1.0 * PATIENCE


def interrupt(run: Run, child: Child) -> None:
    """Ctrl-C, of which the child says soon that it heard it."""
    with Stopwatch() as watch:
        child.kill(signal.SIGINT)
        run.expect(child, "interrupted")
        assert watch.seconds < SOON_S


# ---------------------------------------------------------------------------------------------- a peer's calls


def interrupted(line: Line, address: str, where: str) -> None:
    """Rank 0 is interrupted in a call; afterwards both are in step again, and reduce."""
    comm = join(address, 2)
    comm.barrier(tag=1)
    if comm.rank == 0:
        call = blocked(comm, where)
        try:
            announce(line)
            call()
        except KeyboardInterrupt:
            line.send(kind="interrupted")
        while where in JOINT_CALLS and comm.explain():
            pass  # a vote of the other would complete what the master has not yet heard the end of
        line.send(kind="settled")
    else:
        line.send(kind="ready", leader=False)
    line.receive()
    if comm.rank == 1 or where in JOINT_CALLS:
        blocked(comm, where)()
    x = np.full(1000, comm.rank + 1.0)
    comm.all_reduce(x, tag=20)
    assert (x == 3).all()
    line.send(kind="through")
    comm.close()


@pytest.mark.parametrize("where", [*COLLECTIVES, *JOINT_CALLS])
def test_ctrl_c_ends_every_wait(tmp_path: Path, where: str) -> None:
    """B66."""
    with Run(tmp_path) as run:
        pair = [run.peer(interrupted, where) for _ in range(2)]
        leaders = [run.expect(peer, "ready")["leader"] for peer in pair]
        leader = pair[leaders.index(True)]
        interrupt(run, leader)
        run.expect(leader, "settled")
        for peer in pair:
            peer.tell(kind="go")
        for peer in pair:
            run.expect(peer, "through")
        assert [run.ended(peer) for peer in pair] == [0, 0]


def connecting(line: Line, address: str) -> None:
    """Is interrupted in connect; if there is a run, joins it then."""
    comm = pccl.Communicator(address, min_world_size=1)
    try:
        announce(line)
        comm.connect()
    except KeyboardInterrupt:
        line.send(kind="interrupted")
    if line.receive()["kind"] == "join":  # type: ignore[index]
        comm.connect()
        comm.barrier()
    comm.close()


def interrupt_connect(run: Run) -> None:
    """A peer is interrupted in connect soon, and then does what it is told."""
    peer = run.peer(connecting)
    run.expect(peer, "ready")
    interrupt(run, peer)


def test_ctrl_c_ends_connect_without_a_master(tmp_path: Path) -> None:
    """B66."""
    with Run(tmp_path, master=False) as run, socket.create_server(("127.0.0.1", 0)) as silent:
        run.master.address = f"127.0.0.1:{silent.getsockname()[1]}"
        interrupt_connect(run)


def founder(line: Line, address: str) -> None:
    with join(address, 1, min_world_size=1) as comm:
        line.send(kind="joined")
        line.receive()
        gather(comm, 2)
        comm.barrier()


def test_ctrl_c_ends_connect_while_others_do_not_admit_and_it_may_be_called_again(tmp_path: Path) -> None:
    """B66."""
    with Run(tmp_path) as run:
        first = run.peer(founder)
        run.expect(first, "joined")
        second = run.peer(connecting)
        run.expect(second, "ready")
        second.kill(signal.SIGINT)
        run.expect(second, "interrupted")
        second.tell(kind="join")
        first.tell(kind="go")
        assert [run.ended(peer) for peer in (first, second)] == [0, 0]


def closing(line: Line, address: str) -> None:
    """Closes while the master is stopped, and is interrupted while it does."""
    comm = join(address, 1, min_world_size=1)
    line.send(kind="joined")
    line.receive()
    announce(line, ("control.py", "threading.py", "_native.py"))
    try:
        comm.close()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # what comes later is not for close
    except KeyboardInterrupt:
        comm.close()
    line.send(kind="closed")
    with pytest.raises(pccl.Closed):
        comm.barrier()


def test_ctrl_c_in_close_leaves_something_that_close_ends(tmp_path: Path) -> None:
    """B66: whether the signal comes in close, or just after."""
    with Run(tmp_path) as run:
        peer = run.peer(closing)
        run.expect(peer, "joined")
        peer.tell(kind="go")
        run.expect(peer, "ready")
        with Stopwatch() as watch:
            peer.kill(signal.SIGINT)
            run.expect(peer, "closed")
            assert watch.seconds < SOON_S
        assert run.ended(peer) == 0


# ---------------------------------------------------------------------------------------------- masters and commands


def serving(line: Line, address: str) -> None:
    """A master in the process, which waits for its end."""
    with pccl.MasterNode("127.0.0.1:0") as node:
        node.run()
        line.send(kind="address", address=node.address)
        try:
            announce(line, ("master.py", "threading.py"))
            node.wait()
        except KeyboardInterrupt:
            line.send(kind="interrupted")
    with pccl.MasterNode(node.address) as again:
        line.send(kind="again", address=again.address)


def test_ctrl_c_ends_the_wait_for_a_master_and_its_port_is_free(tmp_path: Path) -> None:
    """B66."""
    with Run(tmp_path, master=False) as run:
        peer = run.peer(serving)
        address = run.expect(peer, "address")["address"]
        run.expect(peer, "ready")
        interrupt(run, peer)
        assert run.expect(peer, "again")["address"] == address
        assert run.ended(peer) == 0


COMMANDS = {
    "master": ["--listen", "127.0.0.1:0"],
    "bench": ["all_reduce", "--sizes", "16M", "--rounds", "100000"],
    "demo": ["--output"],
    "stress": ["smoke", "--output"],
}
"""Words of `pccl` that run until something ends them; the last two take a folder."""

STARTED = {"demo": "peer-3 starts"}
"""What the line says after which nothing is being started; the first line, where it is not here."""

ENDS = [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)]
"""Signals, and what the exit status is. Nobody tells the demo's peers of a SIGKILL before they ask for their master."""


def children(pid: int) -> list[int]:
    """Processes that it started."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in text.split()]


def runs(pid: int) -> bool:
    """Whether the process is there, and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def all_end(pids: list[int]) -> bool:
    """Whether they do. One that was started as the signal came finds out when it has imported all that it needs."""
    deadline = time.monotonic() + 3 * LIMIT_S
    while any(runs(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
    return True


@pytest.mark.parametrize(
    ("word", "number", "code"),
    [(word, *end) for word in COMMANDS for end in ENDS if (word, end[0]) != ("demo", signal.SIGKILL)],
)
def test_a_signal_ends_a_command_and_all_that_it_started(
    tmp_path: Path, word: str, number: signal.Signals, code: int
) -> None:
    """B66: its exit status tells the signal, and there is no traceback."""
    arguments = [*COMMANDS[word], *([str(tmp_path / word)] if COMMANDS[word][-1] == "--output" else [])]
    with (tmp_path / "errors").open("w+") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "pccl", word, *arguments],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        while STARTED.get(word, "") not in (line := process.stdout.readline()):
            assert line
        while word != "master" and len(children(process.pid)) < 2 and process.poll() is None:
            pass
        started = children(process.pid)
        process.send_signal(number)
        assert process.wait(LIMIT_S) == code
        process.stdout.close()
        assert all_end(started), "some are left behind"
        errors.seek(0)
        assert number == signal.SIGKILL or "Traceback" not in errors.read()


def test_no_handlers_are_installed_by_the_library() -> None:
    before = [signal.getsignal(number) for number in signal.valid_signals()]
    wakeup = signal.set_wakeup_fd(-1)
    try:
        with pccl.MasterNode("127.0.0.1:0") as node:
            node.run()
            with pccl.Communicator(node.address, min_world_size=1) as comm:
                comm.connect()
                comm.all_reduce(np.ones(3))
                assert [signal.getsignal(number) for number in signal.valid_signals()] == before
                assert signal.set_wakeup_fd(-1) == -1
    finally:
        signal.set_wakeup_fd(wakeup)
