# SPDX-License-Identifier: MIT
"""Calls that take several operations: each tag is a lane, in which such calls run one after the other, in the order in
which they were made. So they meet the calls of the other members, however these are waited for.

The one idea: a lane's thread makes the calls, and the user only waits. Ctrl-C reaches the main thread alone, so a call
that has begun goes on to its last operation, for which the other members wait.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Generic, NoReturn, TypeVar

from pccl.arguments import patience
from pccl.awaited import Awaited
from pccl.errors import SystemFailure, WaitTimeout
from pccl.thread import Flag, Worker

T = TypeVar("T")


class Job(Generic[T]):
    """A call under way. `wait` and `await` give what it returned, or raise what it raised, as often as asked.

    Dropping it does not stop it; nor does cancelling what awaits it."""

    __slots__ = ("_awaited", "_failure", "_name", "_over", "_result", "_work")

    def __init__(self, name: str, work: Callable[[], T]) -> None:
        self._name = name
        self._work: Callable[[], T] | None = work
        self._result: T
        self._failure: BaseException | None = None
        self._over = Flag()
        self._awaited = Awaited()

    def wait(self, timeout: float | None = None) -> T:
        """Blocks until it has ended, up to `timeout` seconds (None: as long as it takes). Raises what it ended with, or
        WaitTimeout while it still goes on. Ctrl-C interrupts the wait only."""
        if not self._over.wait(patience(timeout)):
            raise WaitTimeout(f"not ended within {timeout:g} s: {self._name}")
        if self._failure is not None:
            raise self._failure
        return self._result

    def done(self) -> bool:
        """Whether it has ended, well or not. Never blocks."""
        return self._over.is_set()

    def __repr__(self) -> str:
        state = "goes on" if not self.done() else "failed" if self._failure is not None else "done"
        return f"<pccl.Job, {self._name}: {state}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a pccl.Job cannot be copied or pickled: it belongs to operations of this process")

    def __await__(self) -> Generator[Any, None, T]:
        if not self.done():
            yield from self._awaited.future()
        return self.wait()

    def run(self) -> None:
        """On the lane's thread, once."""
        work, self._work = self._work, None
        assert work is not None
        try:
            self._result = work()
        except BaseException as failure:
            self._failure = failure
        del work  # before anybody is woken, who may be about to drop what it holds
        self._over.set()
        self._awaited.end()


class _Lane:
    """Jobs of one tag that have not begun, the one that has, and the thread that makes them."""

    __slots__ = ("begun", "jobs", "worker")

    def __init__(self) -> None:
        self.jobs: deque[Job[Any]] = deque()
        self.begun: Job[Any] | None = None
        self.worker: Worker | None = None


class Lanes:
    """Those of one communicator. A lane has a thread while it has calls to make."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lanes: dict[int, _Lane] = {}

    def submit(self, tag: int, name: str, work: Callable[[], T]) -> Job[T]:
        """`work` is done when all that was submitted under this tag before has been done. Raises SystemFailure."""
        job = Job(name, work)
        with self._lock:
            lane = self._lanes.setdefault(tag, _Lane())
            lane.jobs.append(job)
            if lane.worker is not None and not lane.worker.wait(0):
                return job
            lane.worker = worker = Worker(f"pccl-lane-{tag}", lambda: self._drain(tag, lane))
        try:
            worker.start()
        except RuntimeError as failure:
            with self._lock:
                if job in lane.jobs:
                    lane.jobs.remove(job)
                    raise SystemFailure(f"no thread for {name}: {failure}") from None
        return job

    def pending(self) -> int:
        """Jobs that have not ended."""
        with self._lock:
            lanes = list(self._lanes.values())
            begun = [lane.begun for lane in lanes]
            return sum(len(lane.jobs) for lane in lanes) + sum(job is not None and not job.done() for job in begun)

    def _drain(self, tag: int, lane: _Lane) -> None:
        while True:
            with self._lock:
                lane.begun = None
                if not lane.jobs:
                    if self._lanes.get(tag) is lane:
                        del self._lanes[tag]
                    return
                lane.begun = job = lane.jobs.popleft()
            job.run()
            del job
