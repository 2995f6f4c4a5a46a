# SPDX-License-Identifier: MIT
"""Calls that take several operations: each tag of each scope is a lane, in which such calls run one after the other, in
the order in which they were made. So they meet the calls of the other members, however these are waited for.

The one idea: a lane's thread makes the calls, and the user only waits. Ctrl-C reaches the main thread alone, so a call
that has begun goes on to its last operation, for which the other members wait.

A call that was made behind one which failed with its epoch, before the user looked at that failure, fails too: as in
the engine (unseen.h), it would meet what other members call again. What counts is the moment when it was made, not when
it is its turn.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar

from pccl.arguments import patience
from pccl.awaited import Awaited
from pccl.errors import PCCLError, PeerLost, SystemFailure, WaitTimeout
from pccl.thread import Flag, Worker

T = TypeVar("T")
Key = tuple[int, int]
"""Scope and tag."""


class Loss(NamedTuple):
    """What is kept of a failure that an epoch's end brought. The failure itself would keep all that its call held."""

    epoch: int
    text: str


class Job(Generic[T]):
    """A call under way. `wait` and `await` give what it returned, or raise what it raised, as often as asked.

    Dropping it does not stop it; nor does cancelling what awaits it."""

    __slots__ = ("_awaited", "_failure", "_name", "_over", "_result", "_seen", "_work")

    def __init__(self, name: str, work: Callable[[], T], seen: Callable[[BaseException], None]) -> None:
        """`seen` is called with the failure each time that the user is shown it."""
        self._name = name
        self._work: Callable[[], T] | None = work
        self._seen = seen
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
            self._seen(self._failure)
            raise self._failure
        return self._result

    def done(self) -> bool:
        """Whether it has ended, well or not. Never blocks."""
        return self._over.is_set()

    def on_end(self, callback: Callable[[], None]) -> None:
        """Calls `callback` once it has ended, on whichever thread: it must not block nor raise."""
        self._awaited.call(callback)

    def __repr__(self) -> str:
        state = "goes on" if not self.done() else "failed" if self._failure is not None else "done"
        return f"<pccl.Job, {self._name}: {state}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a pccl.Job cannot be copied or pickled: it belongs to operations of this process")

    def __await__(self) -> Generator[Any, None, T]:
        if not self.done():
            yield from self._awaited.future()
        return self.wait()

    def run(self, behind: Loss | None) -> Loss | None:
        """On the lane's thread, once. `behind` is the failure that it stands behind. Returns a failure that others
        stand behind from now on. Nobody is woken before `end`."""
        work, self._work = self._work, None
        assert work is not None
        try:
            if behind is not None:
                raise _lost_behind(behind)
            self._result = work()
        except BaseException as failure:
            self._failure = failure
            return Loss(failure.epoch, str(failure)) if isinstance(failure, PCCLError) and failure.epoch else None
        finally:
            del work  # else a failure's traceback keeps it
        return None

    def end(self) -> None:
        """Wakes who waits for it. What it held is gone."""
        self._over.set()
        self._awaited.end()


def _lost_behind(loss: Loss) -> PeerLost:
    lost = PeerLost(f"called behind a failure that was not looked at yet: {loss.text}")
    lost.epoch = loss.epoch
    return lost


class _Lane:
    """Jobs of one lane that have not begun, each with the epoch up to whose end the user knew all failures when it made
    the call; the one that has begun, and the thread that makes them. `failed` is the newest failure that an epoch's end
    brought, `seen` the newest such epoch that the user knows of."""

    __slots__ = ("begun", "failed", "jobs", "seen", "worker")

    def __init__(self) -> None:
        self.jobs: deque[tuple[Job[Any], int]] = deque()
        self.begun: Job[Any] | None = None
        self.worker: Worker | None = None
        self.failed: Loss | None = None
        self.seen = 0

    def stands_behind(self, known: int) -> Loss | None:
        """The failure that a job stands behind whose caller knew of those up to epoch `known`."""
        return self.failed if self.failed is not None and self.failed.epoch > known else None

    def note(self, failure: Loss | None) -> None:
        """A job has ended with it, or well."""
        if failure is not None and (self.failed is None or failure.epoch > self.failed.epoch):
            self.failed = failure


class Lanes:
    """Those of one communicator. A lane has a thread while it has calls to make."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lanes: dict[Key, _Lane] = {}

    def submit(self, key: Key, name: str, work: Callable[[], T]) -> Job[T]:
        """`work` is done when all that was submitted under this key before has been done. Raises SystemFailure."""
        with self._lock:
            lane = self._lanes.setdefault(key, _Lane())
            job, known = Job(name, work, partial(self._look, lane)), lane.seen
            lane.jobs.append((job, known))
            if lane.worker is not None and not lane.worker.wait(0):
                return job
            lane.worker = worker = Worker(f"pccl-lane-{key[1]}", lambda: self._drain(key, lane))
        try:
            worker.start()
        except RuntimeError as failure:
            with self._lock:
                if (job, known) in lane.jobs:
                    lane.jobs.remove((job, known))
                    raise SystemFailure(f"no thread for {name}: {failure}") from None
        return job

    def pending(self) -> int:
        """Jobs that have not ended."""
        with self._lock:
            lanes = list(self._lanes.values())
            begun = [lane.begun for lane in lanes]
            return sum(len(lane.jobs) for lane in lanes) + sum(job is not None and not job.done() for job in begun)

    def _look(self, lane: _Lane, failure: BaseException) -> None:
        """The user is shown a failure."""
        if isinstance(failure, PCCLError):
            with self._lock:
                lane.seen = max(lane.seen, failure.epoch)

    def _drain(self, key: Key, lane: _Lane) -> None:
        while True:
            with self._lock:
                lane.begun = None
                if not lane.jobs:
                    lane.worker = None
                    if self._lanes.get(key) is lane and lane.stands_behind(lane.seen) is None:
                        del self._lanes[key]
                    return
                job, known = lane.jobs.popleft()
                lane.begun = job
            lane.note(job.run(lane.stands_behind(known)))
            job.end()
            del job
