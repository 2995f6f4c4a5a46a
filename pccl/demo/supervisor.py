# SPDX-License-Identifier: MIT
"""Runs the demo: starts the master and the peers, performs the story's actions, shows them, judges at the end.

Must not know: when what happens (`story`) and how it looks (`screen`, `chart`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from pccl.board import print_line
from pccl.demo import chart, screen
from pccl.demo.story import Action, Kill, Script, Step, Story
from pccl.fleet import Child, Fleet, Master, Message

REPORT_LIMIT_S = 60.0
# Peers outnumber the cores of a small machine: more threads in a matrix product would only fight each other.
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
# The words that stand for an action in the picture.
MARKS = {
    Step.KILL_MASTER: "master killed",
    Step.RESTART_MASTER: "master restarted",
    Step.START_NEWCOMERS: "newcomers start",
}


@dataclass(frozen=True)
class Settings:
    """What the command line may choose; `output` is a folder that is there, `steps` are the local ones of a round."""

    output: Path
    script: Script
    steps: int


class Demo:
    """One run. Everything it writes goes to the output folder: logs, journal, picture."""

    def __init__(self, settings: Settings, console: Console) -> None:
        self._settings = settings
        self._console = console
        self._begin_s = time.monotonic()
        self._history = chart.History()
        self._screen = screen.choose(console)
        self._story = Story(settings.script, self._say)
        self._children: dict[str, Child] = {}

    def run(self) -> int:
        """Blocks until the story is over. Returns the exit status: 0 only if all was as promised."""
        output = self._settings.output
        journal = output / "master.journal"
        for stale in (journal, *output.glob("*.log")):
            stale.unlink(missing_ok=True)
        try:
            with Master(output, journal) as master, Fleet(output) as fleet:
                self._say(f"the master listens on {master.address}")
                for _ in range(self._settings.script.peers):
                    self._start_peer(fleet, master, self._settings.script.peers)
                faults = self._follow(fleet, master)
        finally:
            self._screen.close()
        return self._judge(faults)

    def _follow(self, fleet: Fleet, master: Master) -> list[str]:
        """Feeds reports to the story and performs what it asks for, until all processes have ended."""
        while not self._story.over:
            arrived = fleet.next(REPORT_LIMIT_S)
            if arrived is None:
                return [f"no report within {REPORT_LIMIT_S:.0f} s: {self._story.explain()}"]
            child, message = arrived
            if message is None:
                self._story.ended(child.name, child.exit_code)
                if child.exit_code != 0 and child.name != self._story.victim:
                    return [f"{child.name} ended with exit status {child.exit_code}; see {child.name}.log"]
            else:
                self._observe(fleet, master, child.name, message)
            self._screen.show(self._story)
        return self._story.faults()

    def _observe(self, fleet: Fleet, master: Master, name: str, message: Message) -> None:
        if message["kind"] == "round":
            at_s = message["at_s"] - self._begin_s
            self._history.round_finished(name, at_s, message["loss"], message["world_size"])
        for action in self._story.observe(name, message):
            self._perform(action, fleet, master)

    def _perform(self, action: Action, fleet: Fleet, master: Master) -> None:
        mark = f"{action.peer} killed" if isinstance(action, Kill) else MARKS.get(action)
        if mark is not None:
            self._history.events.append((self._elapsed_s(), mark))
        if isinstance(action, Kill):
            self._children[action.peer].kill()
        elif action is Step.KILL_MASTER:
            master.kill()
        elif action is Step.RESTART_MASTER:
            master.start()
        elif action is Step.START_NEWCOMERS:
            for _ in range(self._settings.script.newcomers):
                self._start_peer(fleet, master, 1)
        elif action is Step.FINISH:
            for peer in self._story.living():
                self._children[peer.name].tell(kind="finish")

    def _start_peer(self, fleet: Fleet, master: Master, gather: int) -> None:
        name = f"peer-{len(self._children)}"
        options = {
            "--gather": gather,
            "--steps": self._settings.steps,
            "--rounds-per-cycle": self._settings.script.rounds_per_cycle,
        }
        arguments = [text for option, value in options.items() for text in (option, str(value))]
        child = fleet.start(name, ["-m", "pccl.demo.peer", master.address, *arguments], ONE_THREAD)
        self._children[name] = child
        self._story.started(name)
        self._say(f"{name} starts (process {child.process.pid})")

    def _judge(self, faults: list[str]) -> int:
        finished = [peer for peer in self._story.peers.values() if peer.accuracy is not None]
        if self._history.losses:
            picture = self._settings.output / "demo.png"
            chart.write(self._history, picture)
            self._print(f"loss and membership over time: {picture}")
        if finished:
            self._print(f"test accuracy: {min(peer.accuracy or 0.0 for peer in finished):.1%}")
        if finished and not faults:
            self._print(f"all {len(finished)} peers hold identical state: {finished[0].digest}")
        for fault in faults:
            self._print(f"FAILED: {fault}")
        return 1 if faults else 0

    def _print(self, text: str) -> None:
        print_line(self._console, text)

    def _say(self, text: str) -> None:
        self._screen.say(self._elapsed_s(), text)

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._begin_s
