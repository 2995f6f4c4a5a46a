# SPDX-License-Identifier: MIT
"""Operations that run while the caller does something else: the handle that the user holds, the flight that lasts.

The one idea: what an operation borrows must live until it has *ended*, whatever the user does with the handle. So the
memory belongs to a `Flight`, which the communicator's `Flights` keeps until the engine says that the operation has
ended; a `Handle` is only a view of it, and may be dropped, waited for from any thread, or awaited in asyncio.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Generator, Sequence
from typing import Any, NoReturn

from pccl._native import SLICE_MS, Operation, ReduceInfo
from pccl.arguments import patience
from pccl.awaited import Awaited
from pccl.errors import Closed, PCCLError, WaitTimeout


class Flight:
    """One unfinished operation: what it borrows, who awaits it, and, once it has ended, its outcome."""

    __slots__ = ("_seen", "awaited", "memory", "operation", "outcome")

    def __init__(self, memory: object, seen: Callable[[PCCLError], None] | None = None) -> None:
        """`seen` is called with each failure that the user is shown."""
        self.memory = memory
        self._seen = seen
        self.operation: Operation | None = None
        self.outcome: ReduceInfo | PCCLError | None = None
        self.awaited = Awaited()

    def poll(self, timeout_ms: int) -> ReduceInfo | PCCLError | None:
        """The outcome, or None when the operation has not ended within `timeout_ms`."""
        operation = self.operation
        if self.outcome is None and operation is not None:
            try:
                info = operation.wait(timeout_ms)
            except Closed as failure:
                # Either the operation ended so, or the engine is gone: then `land` has left the outcome.
                self.outcome = self.outcome or failure
            except PCCLError as failure:
                self.outcome = failure
            else:
                if info is not None:  # None must not take back what another thread has seen meanwhile
                    self.outcome = info
        return self.outcome

    def describe(self) -> str:
        """What it is, how long it has run, and whom it waits for."""
        operation = self.operation
        return "it has just ended" if operation is None else operation.describe()

    def show(self, failure: PCCLError) -> NoReturn:
        """Raises what the operation ended with."""
        if self._seen is not None:
            with contextlib.suppress(Closed):
                self._seen(failure)
        raise failure

    def land(self) -> None:
        """The operation has ended, or its engine is gone: gives its memory back and wakes who awaits it."""
        self.poll(0)
        self.memory = self.operation = None
        self.awaited.end()

    def landing(self) -> asyncio.Future[None]:
        """Of the running loop; it is done once the operation has landed."""
        future = self.awaited.future()
        self.prompt()
        return future

    def prompt(self) -> None:
        """Somebody sleeps until it lands."""
        operation = self.operation
        if operation is not None:
            with contextlib.suppress(Closed):  # then it lands with the engine's end
                operation.prompt()


class Flights:
    """All unfinished operations of one communicator, by the token that the engine gives when they end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._flights: dict[int, Flight] = {}
        self._tokens = itertools.count(1)

    def launch(
        self, memory: object, start: Callable[[int], Operation], seen: Callable[[PCCLError], None] | None = None
    ) -> Flight:
        """Starts an operation with `start(token)`, whose errors it passes on; keeps `memory` until it has ended."""
        flight = Flight(memory, seen)
        with self._lock:  # the token may come before start has returned
            token = next(self._tokens)
            self._flights[token] = flight  # before it starts: a signal's exception may come right after
            try:
                flight.operation = start(token)
            except Exception:
                del self._flights[token]
                raise
        return flight

    def ended(self, tokens: Sequence[int]) -> None:
        """The engine said that these operations have ended."""
        with self._lock:  # once: the other side of it may be launching hundreds
            flights = [self._flights.pop(token, None) for token in tokens]
        for flight in flights:
            if flight is not None:
                flight.land()

    def poll(self) -> None:
        """Notes the outcome of all that have ended, while the engine can still tell."""
        with self._lock:
            flights = list(self._flights.values())
        for flight in flights:
            flight.poll(0)

    def land(self) -> None:
        """The engine is gone: those without an outcome end with Closed."""
        with self._lock:
            flights = list(self._flights.values())
            self._flights.clear()
        for flight in flights:
            flight.land()


class Handle:
    """A started operation. `wait` and `await` give its `ReduceInfo` or raise what it ended with, as often as asked.

    The tensors must not be touched until it has ended. Dropping a handle does not stop the operation.
    """

    __slots__ = ("_flight", "_keeper")

    def __init__(self, flight: Flight, keeper: object) -> None:
        """`keeper` (the communicator) stays open as long as somebody holds a handle."""
        self._flight = flight
        self._keeper = keeper

    def wait(self, timeout: float | None = None) -> ReduceInfo:
        """Blocks until the operation has ended, up to `timeout` seconds (None: as long as the operation itself may
        take). Raises what it ended with, or WaitTimeout while it still goes on. Ctrl-C interrupts the wait only."""
        flight = self._flight
        outcome = flight.poll(SLICE_MS) if timeout is None else self._within(timeout)
        while outcome is None:
            outcome = flight.poll(SLICE_MS)
        if isinstance(outcome, PCCLError):
            flight.show(outcome)
        return outcome

    def _within(self, timeout: float) -> ReduceInfo | PCCLError:
        deadline = time.monotonic() + patience(timeout)
        while True:
            left_s = deadline - time.monotonic()
            outcome = self._flight.poll(int(min(SLICE_MS, max(0, left_s * 1000))))
            if outcome is not None:
                return outcome
            if left_s <= 0:
                raise WaitTimeout(f"not ended within {timeout:g} s: {self._flight.describe()}")

    def done(self) -> bool:
        """Whether it has ended, well or not. Never blocks."""
        return self._flight.poll(0) is not None

    def on_end(self, callback: Callable[[], None]) -> None:
        """Calls `callback` once it has ended, on whichever thread: it must not block nor raise."""
        self._flight.awaited.call(callback)
        self._flight.prompt()

    def __repr__(self) -> str:
        outcome = self._flight.poll(0)
        if outcome is not None:
            return f"<pccl.Handle, ended: {outcome!r}>"
        try:
            return f"<pccl.Handle, {self._flight.describe()}>"
        except Closed as failure:
            return f"<pccl.Handle, {failure}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a pccl.Handle cannot be copied or pickled: it belongs to an operation of this process")

    def __await__(self) -> Generator[Any, None, ReduceInfo]:
        if not self.done():
            yield from self._flight.landing()
        return self.wait()
