# SPDX-License-Identifier: MIT
"""The board of long-running commands, and plain lines."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from pccl import board


def console() -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, force_terminal=True, width=80, color_system=None), out


def test_the_last_events_stand_below_what_is_shown() -> None:
    terminal, out = console()
    made = board.Board(terminal)
    for number in range(board.EVENTS_SHOWN + 3):
        made.say(float(number), f"event [{number}]")
    made.show("a table")
    made.close()
    text = out.getvalue()
    assert "a table" in text
    assert "   2.0 s  event [2]" not in text
    assert "   3.0 s  event [3]" in text
    assert f"event [{board.EVENTS_SHOWN + 2}]" in text


def test_a_line_is_printed_as_it_is() -> None:
    terminal, out = console()
    text = "[bold]" + "x" * 200 + " 127.0.0.1:5 'quoted'"
    board.print_line(terminal, text)
    assert out.getvalue() == text + "\n"


def test_a_board_needs_a_terminal_with_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert board.fits(Console(force_terminal=True, width=80))
    assert not board.fits(Console(force_terminal=True, width=40))
    assert not board.fits(Console(file=io.StringIO(), width=80))
    monkeypatch.setenv("TERM", "dumb")
    assert not board.fits(Console(force_terminal=True, width=80))
