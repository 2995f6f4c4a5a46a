# SPDX-License-Identifier: MIT
"""Virtual time and the wires of the simulator.

What for: one heap of events, first-in-first-out wires with random delays, and only those faults that TCP can show: a
wire is delayed, held (one-way partition), or cut with the loss of a random tail. Must not know: what travels on it.

The one idea: everything random comes from one seeded generator and every event has a sequence number, so a seed is a
run.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import Any

Action = Callable[..., None]


class Clock:
    """Virtual milliseconds, and what happens when."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self.events = 0
        self._sequence = 0
        self._heap: list[tuple[float, int, Action, tuple[Any, ...]]] = []

    @property
    def ms(self) -> int:
        """The time as the cores see it."""
        return int(self.now)

    def at(self, time: float, action: Action, *arguments: Any) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (max(time, self.now), self._sequence, action, arguments))

    def after(self, delay: float, action: Action, *arguments: Any) -> None:
        self.at(self.now + delay, action, *arguments)

    def run(self, until: float, done: Callable[[], bool]) -> bool:
        """Performs events until `done()` (looked at once per virtual 50 ms) or the time is over: which of them."""
        look = self.now
        while self._heap and self._heap[0][0] <= until:
            time, _, action, arguments = heapq.heappop(self._heap)
            self.now = time
            self.events += 1
            action(*arguments)
            if time >= look:
                if done():
                    return True
                look = time + 50
        self.now = max(self.now, until)
        return done()


class Node:
    """Something that can be stopped (SIGSTOP) and can die. While it is stopped, what arrives waits."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.alive = True
        self.slowness = 1.0
        self._stopped = False
        self._backlog: list[tuple[Action, tuple[Any, ...]]] = []

    def deliver(self, action: Action, *arguments: Any) -> None:
        """Performs `action` here, now or when the node goes on; never if it is dead."""
        if not self.alive:
            return
        if self._stopped:
            self._backlog.append((action, arguments))
        else:
            action(*arguments)

    def later(self, delay: float, action: Action, *arguments: Any) -> None:
        """`action` after this node's own time for it."""
        self.clock.after(delay * self.slowness, self.deliver, action, *arguments)

    @property
    def stopped(self) -> bool:
        return self._stopped

    def stop(self) -> None:
        self._stopped = True

    def resume(self) -> None:
        if self._stopped:
            self._stopped = False
            backlog, self._backlog = self._backlog, []
            for index, (action, arguments) in enumerate(backlog):
                if self._stopped:
                    self._backlog = backlog[index:] + self._backlog
                    return
                self.deliver(action, *arguments)

    def kill(self) -> None:
        self.alive = False
        self._backlog.clear()


class Wire:
    """One direction of a TCP connection between two nodes. All that still comes of the one `before` comes first."""

    def __init__(self, clock: Clock, source: Node, target: Node, delay: float, before: Wire | None = None) -> None:
        self._clock, self._source, self._target = clock, source, target
        self.slowness = 1.0
        self._delay = delay
        self._last = before._last if before else 0.0
        self._held = False
        self._queue: list[list[Any]] = []  # [action, argument] of each item under way; action None: lost

    def send(self, action: Action, argument: Any) -> None:
        cell = [action, argument]
        self._queue.append(cell)
        if not self._held:
            self._launch(cell)

    def hold(self) -> None:
        """Nothing that is sent from now on arrives, until `release`."""
        self._held = True

    def release(self) -> None:
        if self._held:
            self._held = False
            for cell in self._queue:
                if len(cell) == 2:
                    self._launch(cell)

    def cut(self) -> None:
        """The connection is gone: a random tail of what is under way never arrives."""
        kept = self._clock.random.randint(0, len(self._queue)) if self._queue else 0
        for cell in self._queue[kept:]:
            cell[0] = None
        for cell in self._queue[:kept]:
            if len(cell) == 2:
                self._launch(cell)
        self._held = False
        self._queue.clear()

    def _launch(self, cell: list[Any]) -> None:
        pause = self._delay * self.slowness * self._source.slowness * self._clock.random.expovariate(1.0)
        self._last = max(self._last, self._clock.now + pause)
        cell.append(True)
        self._clock.at(self._last, self._arrive, cell)

    def _arrive(self, cell: list[Any]) -> None:
        if self._queue and self._queue[0] is cell:
            del self._queue[0]
        if cell[0] is not None:
            self._target.deliver(cell[0], cell[1])
