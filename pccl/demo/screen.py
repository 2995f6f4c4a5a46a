# SPDX-License-Identifier: MIT
"""What a person sees while the demo runs: a live table in a terminal, plain lines anywhere else.

Both are fed in the same way: `say` for an event, `show` after each report.
"""

from __future__ import annotations

from typing import Protocol

from rich.console import Console
from rich.table import Table

from pccl.board import Board, event, fits, print_line
from pccl.demo.story import PeerState, Story

COLUMNS = ("peer", "status", "rank", "epoch", "round", "loss", "sent", "received", "state")
COLOURS = {"killed": "red", "training": "green", "finished": "cyan", "left": "cyan"}


class Screen(Protocol):
    """Where the demo shows itself."""

    def say(self, at_s: float, text: str) -> None:
        """An event happened."""

    def show(self, story: Story) -> None:
        """The peers' states may have changed."""

    def close(self) -> None:
        """Nothing follows."""


class LiveScreen:
    """A table that stays in place, the last events under it."""

    def __init__(self, console: Console) -> None:
        self._board = Board(console)
        self.say = self._board.say
        self.close = self._board.close

    def show(self, story: Story) -> None:
        """Renews the table."""
        self._board.show(table(story))


class PlainScreen:
    """One line an event, and one line for each cycle of rounds."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last_round = 0

    def say(self, at_s: float, text: str) -> None:
        """Prints the event."""
        print_line(self._console, event(at_s, text))

    def show(self, story: Story) -> None:
        """Prints a line whenever all peers have finished another cycle."""
        training = [peer for peer in story.living() if peer.loss is not None]
        if not training:
            return
        round_ = min(peer.round for peer in training)
        if round_ // story.script.rounds_per_cycle > self._last_round // story.script.rounds_per_cycle:
            self._last_round = round_
            loss = sum(peer.loss or 0.0 for peer in training) / len(training)
            sent = max(peer.tx_bytes for peer in training) / 1e6
            first = training[0]
            print_line(
                self._console,
                f"          round {round_:3d}: {len(training)} peers, epoch {first.epoch}, loss {loss:.4f}, "
                f"{sent:.1f} MB sent by each, state {first.digest}",
            )

    def close(self) -> None:
        """Nothing to put back."""


def choose(console: Console) -> Screen:
    """The live table where there is room for it."""
    return LiveScreen(console) if fits(console) else PlainScreen(console)


def table(story: Story) -> Table:
    """All peers, one row each."""
    shown = Table(title="pccl demo: DiLoCo on handwritten digits", title_justify="left")
    for column in COLUMNS:
        shown.add_column(column, justify="left" if column in ("peer", "status", "state") else "right")
    for peer in story.peers.values():
        shown.add_row(*cells(peer), style=COLOURS.get(peer.status))
    return shown


def cells(peer: PeerState) -> list[str]:
    """A peer's row, in the order of COLUMNS."""
    return [
        peer.name,
        peer.status,
        "-" if peer.rank is None else f"{peer.rank}/{peer.world_size}",
        str(peer.epoch),
        str(peer.round),
        "-" if peer.loss is None else f"{peer.loss:.4f}",
        f"{peer.tx_bytes / 1e6:.1f} MB",
        f"{peer.rx_bytes / 1e6:.1f} MB",
        peer.digest or "-",
    ]
