# SPDX-License-Identifier: MIT
"""Children of a fleet: messages both ways, ends, kills, and nothing left behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pccl.fleet import Child, Fleet, Line

LIMIT_S = 30.0

ECHO = """
from pccl.fleet import Line
line = Line.over_stdio()
print("to the log")
line.send(ready=True)
while (message := line.receive()) and message.get("do") != "stop":
    line.send(echo=message)
"""


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with Fleet(tmp_path) as started:
        yield started


def start_echo(fleet: Fleet, name: str) -> Child:
    child = fleet.start(name, ["-c", ECHO])
    assert fleet.next(LIMIT_S) == (child, {"ready": True})
    return child


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
