# SPDX-License-Identifier: MIT
"""The main stories of the control plane, as traces that a reviewer can read: tests/golden/*.txt.

A line that begins with `$` is a command to the bench; what the cores do about it stands below, indented. With
`--rewrite` the traces are written anew; a changed line is then explained in the commit.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pccl.errors import Status
from pccl.messages import ReportLine
from pccl.protocol.types import VoteKind
from tests.cores import STATES, Bench, offer

STORIES = sorted((Path(__file__).resolve().parents[1] / "golden").glob("*.txt"))


def _report(bench: Bench, name: str, tag: str, below: str, sequence: str, state: str) -> None:
    line = ReportLine(int(tag), int(below), int(sequence), STATES.index(state.replace("_", " ")))
    bench.peer(name).lines += (line,)


def _started(bench: Bench, name: str, answer: str) -> None:
    bench.peer(name).started = int(answer)


def _together(bench: Bench, *names: str) -> None:
    """How peers join is the story of join.txt alone."""
    bench.together(*names)
    bench.lines.clear()


COMMANDS: dict[str, Callable[..., object]] = {
    "join": lambda bench, name, group="0": bench.join(name, int(group)),
    "run": lambda bench: bench.run(),
    "vote": lambda bench, name, kind: bench.vote(name, VoteKind[kind.upper()]),
    "sync": lambda bench, name, revision, content: bench.vote(
        name, VoteKind.SYNC_SHARED_STATE, offer(int(revision), content)
    ),
    "abandon": lambda bench, name: bench.abandon(name),
    "report": _report,
    "frozen": lambda bench, name, suspect="": bench.frozen(name, suspect),
    "died": lambda bench, name, suspect: bench.died(name, suspect),
    "timeout": lambda bench, name: bench.frozen(name, reason=Status.TIMEOUT, text="no progress for 300000 ms"),
    "stalled": lambda bench, name: bench.stalled(name),
    "started": _started,
    "doubt": lambda bench, name, other: bench.doubt(name, other),
    "linked": lambda bench, name, other: bench.linked(name, other),
    "kill": lambda bench, name: bench.kill(name),
    "suspect": lambda bench, name, other, reason="PEER_LOST": bench.suspect(name, other, reason=Status[reason]),
    "told": lambda bench, name, suspect: bench.frozen(name, suspect, Status.ABORTED, "another member stopped"),
    "clone": lambda bench, name: bench.clone(name),
    "leave": lambda bench, name: bench.perform(bench.peer(name), bench.peer(name).core.leave("", bench.now)),
    "wait": lambda bench, milliseconds: bench.wait(int(milliseconds)),
    "stop_master": lambda bench: bench.stop_master(),
    "start_master": lambda bench: bench.start_master(),
    "reconnect": lambda bench, name: bench.reconnect(name),
    "damaged": lambda bench, name: bench.damaged(name),
    "together": _together,
    "master_hears": lambda bench: bench.master_hears(),
    "peers_hear": lambda bench: bench.peers_hear(),
}


def play(text: str) -> str:
    """The story with the lines that the cores produce now."""
    bench = Bench()
    bench.lines.clear()
    told: list[str] = []
    for line in text.splitlines():
        if line.startswith("  "):
            continue
        told.append(line)
        if line.startswith("$ "):
            command, *arguments = line[2:].split()
            COMMANDS[command](bench, *arguments)
            told += ["  " + it for it in bench.lines if "HeartbeatReply" not in it and "> Heartbeat" not in it]
            bench.lines.clear()
    return "\n".join(told) + "\n"


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_the_story_is_unchanged(story: Path, pytestconfig: pytest.Config) -> None:
    told = play(story.read_text())
    if pytestconfig.getoption("--rewrite"):
        story.write_text(told)
    assert story.read_text() == told


def test_all_main_stories_are_there() -> None:
    assert [story.stem for story in STORIES] == [
        "answer_again",
        "avoided_link",
        "call_mismatch",
        "clone",
        "cut_off_master",
        "damaged_vote",
        "death",
        "doubted_link",
        "hearsay",
        "join",
        "leave",
        "link_down",
        "loss",
        "master_crash_in_transition",
        "master_restart",
        "operation_timeout",
        "shared_state",
        "shared_state_relay",
        "silent_peer",
        "split_verdict_avoided",
        "vote_mismatch",
        "withdrawn_vote",
    ]
