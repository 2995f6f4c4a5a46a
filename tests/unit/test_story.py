# SPDX-License-Identifier: MIT
"""The demo's story, told by made-up reports: every chapter comes when its condition holds, and every broken promise
is a fault.
"""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from pccl.demo import screen
from pccl.demo.story import Action, Kill, Script, Step, Story

SCRIPT = Script(
    rounds_before_kill=3,
    rounds_before_master_kill=2,
    rounds_without_master=2,
    rounds_before_newcomers=1,
    rounds_together=2,
    rounds_per_cycle=4,
)


class Run:
    """Peers that finish rounds together, as real ones do, and a supervisor that does what the story says."""

    def __init__(
        self, script: Script = SCRIPT, digest: Callable[[str, int], str] = lambda _, round_: f"{round_:x}"
    ) -> None:
        self.events: list[str] = []
        self.actions: list[tuple[int, Action]] = []
        self.story = Story(script, self.events.append)
        self.digest = digest
        self.round = 0
        self.members: list[str] = []
        self.join(*(f"peer-{index}" for index in range(script.peers)), state_bytes=0)

    def join(self, *names: str, state_bytes: int) -> None:
        self.members += names
        for name in names:
            self.story.started(name)
        for name in names:
            self.report(name, kind="joined", rank=0, world_size=len(self.members), epoch=1)
            self.report(name, kind="synced", round=self.round, received_bytes=state_bytes)

    def report(self, name: str, **message: Any) -> None:
        for action in self.story.observe(name, message):
            self.actions.append((self.round, action))
            if isinstance(action, Kill):
                self.members.remove(action.peer)
                self.story.ended(action.peer, -9)

    def play_round(self) -> None:
        self.round += 1
        for rank, name in enumerate(list(self.members)):
            if name not in self.members:
                continue
            self.report(
                name,
                kind="round",
                rank=rank,
                world_size=len(self.members),
                epoch=1,
                round=self.round,
                loss=1.0 / self.round,
                retries=0,
                tx_bytes=10,
                rx_bytes=10,
                digest=self.digest(name, self.round),
            )

    def play(self, until: Callable[[], bool]) -> None:
        for _ in range(200):
            if until():
                return
            self.play_round()
        raise AssertionError(self.story.explain())

    def done(self, step: Step) -> bool:
        return any(action is step for _, action in self.actions)

    def play_all(self, accuracy: float = 0.98, state_bytes: int = 1000) -> None:
        self.play(lambda: self.done(Step.START_NEWCOMERS))
        self.join("peer-4", "peer-5", state_bytes=state_bytes)
        self.play(lambda: self.done(Step.FINISH))
        for name in list(self.members):
            digest = self.digest(name, self.round)
            self.report(name, kind="finished", accuracy=accuracy, digest=digest, round=self.round)
            self.story.ended(name, 0)


def test_every_chapter_comes_in_its_order() -> None:
    run = Run()
    run.play_all()
    kinds = [action.peer if isinstance(action, Kill) else action for _, action in run.actions]
    assert kinds == ["peer-2", Step.KILL_MASTER, Step.RESTART_MASTER, Step.START_NEWCOMERS, Step.FINISH]
    rounds = [round_ for round_, _ in run.actions]
    assert rounds[0] == SCRIPT.rounds_before_kill
    assert rounds[1] % SCRIPT.rounds_per_cycle in (1, 2)
    assert rounds[2] - rounds[1] >= SCRIPT.rounds_without_master
    assert run.story.over
    assert run.story.faults() == []


def test_peers_that_wait_for_the_master_bring_it_back() -> None:
    run = Run()
    run.play(lambda: run.done(Step.KILL_MASTER))
    run.play_round()
    for name in run.members:
        run.report(name, kind="joint")
    assert run.done(Step.RESTART_MASTER)


def test_states_that_differ_in_any_round_are_a_fault() -> None:
    run = Run(digest=lambda name, round_: "other" if (name, round_) == ("peer-1", 2) else f"{round_:x}")
    run.play_all()
    assert run.story.faults() == ["round 2: peer-1 holds other, another peer 2"]


def test_too_little_accuracy_is_a_fault_of_each_peer() -> None:
    run = Run()
    run.play_all(accuracy=0.94)
    assert len(run.story.faults()) == 5
    assert "below 95%" in run.story.faults()[0]


def test_a_newcomer_without_the_state_is_a_fault() -> None:
    run = Run()
    run.play_all(state_bytes=0)
    assert run.story.faults() == [f"peer-{index} did not receive the shared state" for index in (4, 5)]


def test_a_story_that_stops_in_the_middle_says_what_it_waits_for() -> None:
    run = Run()
    run.play(lambda: run.done(Step.KILL_MASTER))
    assert any("the story did not end: chapter 3 of 5" in fault for fault in run.story.faults())
    assert any("0 peers finished, not 5" in fault for fault in run.story.faults())


def test_plain_lines_and_the_table_show_every_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    plain, terminal = StringIO(), StringIO()
    run = Run()
    lines = screen.choose(Console(file=plain, width=200))
    live = screen.choose(Console(file=terminal, width=200, force_terminal=True))
    assert type(lines) is not type(live)
    for shown in (lines, live):
        shown.say(1.5, "something happened")
    run.play(lambda: run.round == SCRIPT.rounds_per_cycle)
    for shown in (lines, live):
        shown.show(run.story)
        shown.close()
    assert "1.5 s  something happened" in plain.getvalue()
    assert "round   4: 3 peers, epoch 1, loss 0.2500, 0.0 MB sent by each, state 4" in plain.getvalue()
    for text in ("something happened", *run.story.peers, *screen.COLUMNS):
        assert text in terminal.getvalue()
