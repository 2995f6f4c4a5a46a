# SPDX-License-Identifier: MIT
"""A background thread whose end can be waited for from any thread, Ctrl-C included.

The one idea: `threading.Thread.join` must not be left by a signal's exception. Up to CPython 3.12 it then takes a
thread that still runs for one that has ended, and whoever asks next believes it. So the end is told by an event.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

SLICE_S = 0.2
"""The longest sleep: a signal that comes just before a thread falls asleep does not wake it."""


class Worker(threading.Thread):
    """Runs `work` once, as a daemon. Wait for its end with `wait`, never with `join`."""

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        super().__init__(name=name, daemon=True)
        self._work = work
        self._over = threading.Event()

    def run(self) -> None:
        """On the thread."""
        try:
            self._work()
        finally:
            self._over.set()

    def wait(self, timeout_s: float = math.inf) -> bool:
        """Blocks until it has ended, at most so long: whether it has. Ctrl-C works, and the wait may be repeated."""
        until = time.monotonic() + timeout_s
        while not self._over.wait(min(SLICE_S, max(0.0, until - time.monotonic()))):
            if time.monotonic() >= until:
                return False
        self.join()  # none of our code runs there any more
        return True
