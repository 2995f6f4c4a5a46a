# SPDX-License-Identifier: MIT
"""What a person sees while a stress test runs: a live table in a terminal, plain lines anywhere else.

Both are fed in the same way: `say` for an event, `show` every so often.
"""

from __future__ import annotations

from typing import Protocol

from rich.console import Console
from rich.table import Table

from pccl.board import Board, event, fits, print_line
from pccl.stress.director import Director, Peer
from pccl.stress.timeline import Timeline

GONE_SHOWN = 3
PULSE_S = 15.0
COLUMNS = ("peer", "status", "epoch", "members", "step", "steps here", "lost", "memory")
COLOURS = {"killed": "red", "expelled": "yellow", "alone": "yellow", "training": "green", "finished": "cyan"}


class Screen(Protocol):
    """Where a test shows itself."""

    def say(self, at_s: float, text: str) -> None:
        """An event happened."""

    def show(self, at_s: float, director: Director, timeline: Timeline) -> None:
        """Time has passed."""

    def close(self) -> None:
        """Nothing follows."""


class LiveScreen:
    """A table that stays in place, the last events under it."""

    def __init__(self, console: Console) -> None:
        self._board = Board(console)
        self.say = self._board.say
        self.close = self._board.close

    def show(self, at_s: float, director: Director, timeline: Timeline) -> None:
        """Renews the table."""
        self._board.show(table(at_s, director, timeline))


class PlainScreen:
    """One line an event, and one every PULSE_S."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._next_s = PULSE_S

    def say(self, at_s: float, text: str) -> None:
        """Prints the event."""
        print_line(self._console, event(at_s, text))

    def show(self, at_s: float, director: Director, timeline: Timeline) -> None:
        """Prints a line now and then."""
        if at_s >= self._next_s:
            self._next_s = at_s + PULSE_S
            self.say(at_s, summary(director, timeline))

    def close(self) -> None:
        """Nothing to put back."""


def choose(console: Console) -> Screen:
    """The live table where there is room for it."""
    return LiveScreen(console) if fits(console) else PlainScreen(console)


def summary(director: Director, timeline: Timeline) -> str:
    """One line on all."""
    world = timeline.world[-1][1] if timeline.world else 0
    return (
        f"{director.phase.value}: step {timeline.last_step}, {world} members, {timeline.recent_rate:.1f} steps/s, "
        f"{len(director.trials)} faults, {len(director.checkers.violations)} violations"
    )


def table(at_s: float, director: Director, timeline: Timeline) -> Table:
    """Peers that live, and the last of those that do not."""
    title = f"pccl stress {director.scenario.name}: {at_s:.0f} s, {summary(director, timeline)}"
    shown = Table(title=title, title_justify="left")
    for column in COLUMNS:
        shown.add_column(column, justify="left" if column in ("peer", "status") else "right")
    gone = [peer for peer in director.peers.values() if peer.gone][-GONE_SHOWN:]
    for peer in (*gone, *(peer for peer in director.peers.values() if not peer.gone)):
        shown.add_row(*cells(peer), style=COLOURS.get(peer.status))
    return shown


def cells(peer: Peer) -> list[str]:
    """A peer's row, in the order of COLUMNS."""
    return [
        str(peer.number),
        peer.status,
        str(peer.epoch),
        str(peer.world),
        str(peer.step),
        str(peer.steps),
        str(peer.lost),
        f"{peer.rss_bytes / 1e6:.0f} MB",
    ]
