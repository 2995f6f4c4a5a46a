# SPDX-License-Identifier: MIT
"""Something that ends once, on some thread, and that any number of event loops may await, or others be told of."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

_lock = threading.Lock()
"""One for all: it is held for moments, and most things end before anybody awaits them."""


class Awaited:
    """Futures of those who await an end, and what is to be called then."""

    __slots__ = ("_callbacks", "_futures", "_over")

    def __init__(self) -> None:
        self._over = False
        self._futures: list[asyncio.Future[None]] | None = None
        self._callbacks: list[Callable[[], None]] | None = None

    def future(self) -> asyncio.Future[None]:
        """One of the running loop that is done after the end. Cancelling it disturbs nobody else."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with _lock:
            if not self._over:
                self._futures = [*(self._futures or ()), future]
                return future
        future.set_result(None)
        return future

    def call(self, callback: Callable[[], None]) -> None:
        """Calls it after the end, at once if that has come, on whichever thread: it must not block nor raise."""
        with _lock:
            if not self._over:
                self._callbacks = [*(self._callbacks or ()), callback]
                return
        callback()

    def end(self) -> None:
        """Wakes all. Any thread may call, more than once."""
        with _lock:
            futures, self._futures, self._over = self._futures, None, True
            callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            callback()
        for future in futures or ():
            try:
                future.get_loop().call_soon_threadsafe(_wake, future)
            except RuntimeError:  # that loop is closed; nobody awaits any more
                continue


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
