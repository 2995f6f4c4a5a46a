# SPDX-License-Identifier: MIT
"""How long-running commands show themselves: a board that stays in place in a terminal, or plain lines.

Must not know: what is shown.
"""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

EVENTS_SHOWN = 14
COLUMNS_LEAST = 70
"""Of a terminal in which a table of peers can be read."""


class Board:
    """Something that changes above, the last events below."""

    def __init__(self, console: Console) -> None:
        self._events: list[str] = []
        self._live = Live(console=console, refresh_per_second=8)
        self._live.start()

    def say(self, at_s: float, text: str) -> None:
        """Adds a line to the events; it is seen with the next `show`."""
        self._events = [*self._events, event(at_s, text)][-EVENTS_SHOWN:]

    def show(self, above: RenderableType) -> None:
        """Renews all."""
        events = Panel(Text("\n".join(self._events) or " "), title="events", title_align="left")
        self._live.update(Group(above, events))

    def close(self) -> None:
        """Leaves the last state standing."""
        self._live.stop()


def fits(console: Console) -> bool:
    """Whether a board can be shown there: in a terminal that can move its cursor and is not too narrow."""
    return console.is_terminal and not console.is_dumb_terminal and console.width >= COLUMNS_LEAST


def event(at_s: float, text: str) -> str:
    """An event as a line; seconds since the start."""
    return f"{at_s:6.1f} s  {text}"


def print_line(console: Console, text: str) -> None:
    """A line as it is: rich breaks, colours and reads nothing in it."""
    console.print(text, soft_wrap=True, markup=False, highlight=False)
