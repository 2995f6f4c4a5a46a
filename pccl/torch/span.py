# SPDX-License-Identifier: MIT
"""An operation as torch's profiler sees it: an event that begins where it is called, and ends on another thread.

The one idea: the profiler must have the event's end before anybody can know that the operation has ended, who may stop
the profiler next, which frees what the end would be written to.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, cast

import torch


class Span:
    """Begins at once. One that is not to outlive its beginner's call `close`s there; otherwise `end` ends it."""

    def __init__(self, title: str) -> None:
        self._record = cast(Any, torch.autograd.profiler.record_function(title))
        self._record.__enter__()
        self._ended: torch.futures.Future[Any] = torch.futures.Future()
        self._over = threading.Event()

    def close(self) -> None:
        """Ends it where it began."""
        self._over.set()
        self._record.__exit__(None, None, None)

    def hand_over(self, ending: Callable[[Callable[[], None]], object]) -> None:
        """Calls `ending` with what is to be called at the operation's end, on another thread."""
        self._record._call_end_callbacks_on_future(self._ended)
        ending(self._end)

    def wait(self) -> None:
        """Until the profiler knows of its end."""
        self._over.wait()

    def _end(self) -> None:
        self._ended.set_result(None)
        self._over.set()
