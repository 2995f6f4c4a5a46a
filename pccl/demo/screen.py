# SPDX-License-Identifier: MIT
"""What a person sees while the demo runs: a live table in a terminal, plain lines anywhere else.

Both are fed in the same way: `say` for an event, `show` after each report.
"""

from __future__ import annotations

from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table

from pccl.demo.story import PeerState, Story

EVENTS_SHOWN = 14
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
        self._events: list[str] = []
        self._live = Live(console=console, refresh_per_second=8)
        self._live.start()

    def say(self, at_s: float, text: str) -> None:
        """Adds a line to the events."""
        self._events.append(f"{at_s:6.1f} s  {text}")

    def show(self, story: Story) -> None:
        """Renews the table."""
        events = Panel("\n".join(self._events[-EVENTS_SHOWN:]) or " ", title="events", title_align="left")
        self._live.update(Group(table(story), events))

    def close(self) -> None:
        """Leaves the last state standing."""
        self._live.stop()


class PlainScreen:
    """One line an event, and one line for each cycle of rounds."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last_round = 0

    def say(self, at_s: float, text: str) -> None:
        """Prints the event."""
        self._print(f"{at_s:6.1f} s  {text}")

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
            self._print(
                f"          round {round_:3d}: {len(training)} peers, epoch {first.epoch}, loss {loss:.4f}, "
                f"{sent:.1f} MB sent by each, state {first.digest}"
            )

    def close(self) -> None:
        """Nothing to put back."""

    def _print(self, text: str) -> None:
        self._console.print(text, soft_wrap=True, markup=False, highlight=False)


def choose(console: Console) -> Screen:
    """The live table where `console` is a terminal."""
    return LiveScreen(console) if console.is_terminal else PlainScreen(console)


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
