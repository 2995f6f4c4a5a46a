# SPDX-License-Identifier: MIT
"""A background thread that can be started, and its end waited for, from any thread, Ctrl-C included.

The one idea: a signal's exception may leave any function that is written in Python between any two of its steps, also
those of `threading`. Up to CPython 3.12 an interrupted `Thread.join` takes a thread that still runs for one that has
ended, and whoever asks next believes it; an interrupted `Event` may stay locked for good, and whoever asks next hangs,
be it the new thread of an interrupted `Thread.start`. So what is waited for here is a plain variable, where a lock only
cuts the sleep short, and what must not be interrupted is done by a thread: signals are the main thread's.
"""

from __future__ import annotations

import _thread
import math
import threading
import time
from collections.abc import Callable

SLICE_S = 0.2
"""The longest sleep: a signal that comes just before a thread falls asleep does not wake it."""


class Flag:
    """Is set once, and may be waited for. As `threading.Event`, but works whatever interrupts either side."""

    __slots__ = ("_gate", "_up")

    def __init__(self) -> None:
        self._up = False
        # Free once the flag is set, but for moments, or a lost moment of a slice's length.
        self._gate = threading.Lock()
        self._gate.acquire()

    def is_set(self) -> bool:
        """Whether it is."""
        return self._up

    def set(self) -> None:
        """Wakes who waits for it. Idempotent."""
        self._up = True
        self._open()

    def wait(self, timeout_s: float = math.inf) -> bool:
        """Blocks until it is set, at most so long: whether it is. Ctrl-C works."""
        until = time.monotonic() + timeout_s
        while not self._up:
            left_s = until - time.monotonic()
            if left_s <= 0:
                return False
            if self._gate.acquire(timeout=min(SLICE_S, left_s)):
                self._open()
        return True

    def _open(self) -> None:
        try:
            self._gate.release()
        except RuntimeError:  # somebody else did
            pass


class Worker(threading.Thread):
    """Runs `work` once, as a daemon. Wait for its end with `wait`, never with `join`.

    Whoever interrupts `start` cannot know whether there will be a thread. Nobody needs to: `wait` and `prevent` then
    decide that there will be none, unless it has begun."""

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        super().__init__(name=name, daemon=True)
        self._work = work
        self._obstacle: RuntimeError | None = None
        self._launched = Flag()
        self._started_well = False
        self._decided: dict[str, bool] = {}  # "runs": whoever comes first decides, in one step of the interpreter
        self._over = Flag()

    def start(self) -> None:
        """Returns once the thread is there. Raises RuntimeError when the system has none left."""
        _thread.start_new_thread(self._launch, ())
        self._launched.wait()
        if self._obstacle is not None:
            raise self._obstacle
        self._started_well = True

    def run(self) -> None:
        """On the thread."""
        try:
            if self._decided.setdefault("runs", True):
                self._work()
        finally:
            self._over.set()

    def prevent(self) -> bool:
        """Whether `work` will never be done: `start` was not called, or did not return, and now it is too late."""
        return not self._started_well and not self._decided.setdefault("runs", False)

    def wait(self, timeout_s: float = math.inf) -> bool:
        """Blocks until it has ended, at most so long: whether it has. Ctrl-C works, and the wait may be repeated. What
        was not started counts as ended, and is so from then on."""
        if self.prevent():
            return True
        if not self._over.wait(timeout_s):
            return False
        self.join()  # none of our code runs there any more
        return True

    def _launch(self) -> None:
        try:
            super().start()
        except RuntimeError as obstacle:
            self._obstacle = obstacle
        finally:
            self._launched.set()
