# SPDX-License-Identifier: MIT
"""Children of a fleet: messages both ways, ends, kills, and nothing left behind."""

from __future__ import annotations

import os
import resource
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pccl.fleet import ORPHANED, Child, Fleet, Line

LIMIT_S = 30.0

ECHO = """
from pccl.fleet import Line
line = Line.to_supervisor()
print("to the log")
line.send(ready=True)
while (message := line.receive()) and message.get("do") != "stop":
    line.send(echo=message)
"""


ORPHAN = """
import ctypes, os, signal
from pccl.fleet import Line
line = Line.to_supervisor()
line.send(pid=os.getpid())
{fate}
"""
SUPERVISOR = """
import sys
from pccl.fleet import Fleet
with Fleet() as fleet:
    fleet.start("a", ["-c", sys.argv[1]])
    print(fleet.next(60.0)[1]["pid"], flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with Fleet(tmp_path) as started:
        yield started


def start_echo(fleet: Fleet, name: str) -> Child:
    child = fleet.start(name, ["-c", ECHO])
    assert fleet.next(LIMIT_S) == (child, {"ready": True})
    return child


def test_a_supervisor_may_hold_thousands_of_descriptors(fleet: Fleet) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    taken: list[int] = []
    try:
        while not taken or taken[-1] <= 2048:
            taken.append(os.dup(0))
        start_echo(fleet, "a").tell(number=1)
        reply = fleet.next(LIMIT_S)
        assert reply is not None
        assert reply[1] == {"echo": {"number": 1}}
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_messages_go_both_ways_whole_and_in_order(fleet: Fleet) -> None:
    child = start_echo(fleet, "a")
    texts = ["", "ä", "x" * 200_000, "\n"]
    for text in texts:
        child.tell(text=text)
        assert fleet.next(LIMIT_S) == (child, {"echo": {"text": text}})
    assert fleet.next(0.0) is None


def test_a_child_that_ends_is_reported_once_with_its_status(fleet: Fleet) -> None:
    child = start_echo(fleet, "a")
    child.tell(do="stop")
    assert fleet.next(LIMIT_S) == (child, None)
    assert child.exit_code == 0
    assert fleet.next(0.0) is None
    child.tell(do="anything")  # to a child that is gone: no error


def test_a_killed_child_has_its_signal_for_a_status(fleet: Fleet) -> None:
    first, second = start_echo(fleet, "a"), start_echo(fleet, "b")
    assert first.kill() > 0
    assert fleet.next(LIMIT_S) == (first, None)
    assert first.exit_code == -signal.SIGKILL
    second.tell(text="still here")
    assert fleet.next(LIMIT_S) == (second, {"echo": {"text": "still here"}})


def test_what_a_child_prints_goes_to_its_log(fleet: Fleet, tmp_path: Path) -> None:
    child = start_echo(fleet, "talker")
    child.tell(do="stop")
    assert fleet.next(LIMIT_S) == (child, None)
    assert (tmp_path / "talker.log").read_text() == "to the log\n"


def test_leaving_the_block_kills_and_closes_everything(tmp_path: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    with Fleet(tmp_path) as fleet:
        child = start_echo(fleet, "a")
    assert child.exit_code == -signal.SIGKILL
    assert set(os.listdir("/proc/self/fd")) == before


def test_children_that_have_ended_hold_nothing(fleet: Fleet) -> None:
    before = set(os.listdir("/proc/self/fd"))
    for number in range(3):
        child = start_echo(fleet, str(number))
        child.tell(do="stop")
        assert fleet.next(LIMIT_S) == (child, None)
        assert child.over
    assert set(os.listdir("/proc/self/fd")) == before


def test_wait_returns_when_all_have_ended(fleet: Fleet) -> None:
    children = [start_echo(fleet, name) for name in "ab"]
    for child in children:
        child.tell(do="stop")
    fleet.wait(LIMIT_S)
    assert [child.exit_code for child in children] == [0, 0]


def test_a_line_without_its_other_end_says_so() -> None:
    ours, theirs = os.pipe()
    line = Line(ours, os.open(os.devnull, os.O_WRONLY))
    assert line.receive(timeout_s=0.0) is None
    os.write(theirs, b'{"last": 1}\n{"unfinished"')
    os.close(theirs)
    assert line.receive() == {"last": 1}
    with pytest.raises(EOFError):
        line.receive()
    line.close()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="nothing else reaches a process that cannot run")
@pytest.mark.parametrize(
    "fate",
    [
        "line.receive()",
        "os.kill(os.getpid(), signal.SIGSTOP)",
        "ctypes.PyDLL(None).pause()  # and no other thread may run",
    ],
)
def test_a_worker_does_not_outlive_its_supervisor(fate: str) -> None:
    command = [sys.executable, "-c", SUPERVISOR, ORPHAN.format(fate=fate)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as supervisor:
        assert supervisor.stdout is not None
        worker = os.pidfd_open(int(supervisor.stdout.readline()))
        try:
            supervisor.kill()
            assert select.select([worker], [], [], LIMIT_S)[0], "it still runs"
        finally:
            os.close(worker)


def test_a_worker_that_may_not_be_killed_sees_that_its_line_has_no_other_end() -> None:
    """What is left where the system kills no orphans, and on other machines."""
    deaf = "from pccl import system; system.die_with_parent = lambda: None\n"
    for fate in ("line.receive()", "threading.Event().wait()"):
        program = deaf + "import threading\n" + ORPHAN.format(fate=fate)
        with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
            assert worker.stdin is not None
            assert worker.stdout is not None
            assert worker.stdout.readline()
            worker.stdin.close()
            assert worker.wait(LIMIT_S) == ORPHANED


def test_a_worker_over_a_socket_ends_with_it(tmp_path: Path) -> None:
    program = f"from pccl.fleet import Line; import threading; Line.to_supervisor({str(tmp_path / 'line')!r}).send(a=1)"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "line"))
        listener.listen()
        listener.settimeout(LIMIT_S)
        with subprocess.Popen([sys.executable, "-c", program + "; threading.Event().wait()"]) as worker:
            with listener.accept()[0] as accepted:
                assert accepted.makefile().readline() == '{"a": 1}\n'
            assert worker.wait(LIMIT_S) == ORPHANED
