# SPDX-License-Identifier: MIT
"""The end of a background thread: waited for, with a limit, and with Ctrl-C in the middle."""

from __future__ import annotations

import signal
import threading
from types import FrameType

import pytest

from pccl.thread import SLICE_S, Flag, Worker

LIMIT_S = 20.0


class Interrupted(Exception):
    """What the signal raises."""


class Alarm:
    """Interrupts the main thread between `set` and `clear`, and not later: where the system gives the signal to another
    thread, the main thread may hear of it when it has gone on."""

    def __init__(self) -> None:
        self._open = False

    def __enter__(self) -> Alarm:
        self._before = signal.signal(signal.SIGALRM, self._ring)
        return self

    def __exit__(self, *error: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)

    def set(self, after_s: float) -> None:
        self._open = True
        signal.setitimer(signal.ITIMER_REAL, after_s)

    def clear(self) -> None:
        self._open = False

    def _ring(self, number: int, frame: FrameType | None) -> None:
        if self._open:
            self._open = False
            raise Interrupted


def test_an_interrupted_wait_does_not_take_a_running_thread_for_an_ended_one() -> None:
    release = threading.Event()
    worker = Worker("test", lambda: release.wait(LIMIT_S) and None)
    worker.start()
    with Alarm() as alarm:
        alarm.set(0.01)
        with pytest.raises(Interrupted):
            worker.wait()
    assert worker.is_alive()
    assert not worker.wait(0)
    assert not worker.wait(SLICE_S / 100)
    release.set()
    assert worker.wait()
    assert not worker.is_alive()


def test_a_flag_wakes_all_who_wait_for_it() -> None:
    flag, woken = Flag(), threading.Barrier(5)
    for _ in range(4):
        threading.Thread(target=lambda: flag.wait(LIMIT_S) and woken.wait(LIMIT_S), daemon=True).start()
    assert not flag.is_set()
    assert not flag.wait(0)
    flag.set()
    flag.set()
    assert flag.is_set()
    assert flag.wait()
    woken.wait(LIMIT_S)


def test_interrupts_at_any_moment_leave_a_flag_that_works() -> None:
    """Thousands of signals, at ever other places of both functions."""
    interrupted = 0
    with Alarm() as alarm:
        for turn in range(2000):
            flag = Flag()
            try:
                alarm.set(1e-6 * (1 + turn % 200))
                if turn % 2:
                    flag.set()
                while not flag.wait(1e-4):
                    pass
                alarm.clear()
            except Interrupted:
                interrupted += 1
            waiting = Worker("test", lambda flag=flag: flag.wait(LIMIT_S) and None)  # type: ignore[misc]
            waiting.start()
            flag.set()
            assert waiting.wait(LIMIT_S)
            assert flag.wait(LIMIT_S)
    assert interrupted > 100


def test_who_was_interrupted_in_start_may_wait_and_no_work_is_done_later() -> None:
    """Hundreds of signals at ever other places of it: the work has been done when the wait is over, or never is."""
    interrupted = prevented = 0
    with Alarm() as alarm:
        for turn in range(2000):
            done: list[int] = []
            worker = Worker("test", lambda done=done: done.append(1))  # type: ignore[misc]
            try:
                alarm.set(1e-6 * (1 + turn % 200))
                worker.start()
                alarm.clear()
            except Interrupted:
                interrupted += 1
            else:
                assert not worker.prevent()
            prevented += worker.prevent()
            assert worker.wait(LIMIT_S)
            assert len(done) == (not worker.prevent())
    assert interrupted > 100
    assert prevented > 0


def test_what_was_not_started_has_ended() -> None:
    worker = Worker("test", lambda: pytest.fail("it was too late"))
    assert worker.wait()
    assert worker.prevent()
    worker.start()
    assert worker.wait(LIMIT_S)


def test_a_system_without_threads_is_an_error_of_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*arguments: object) -> None:
        raise RuntimeError("can't start new thread")

    worker = Worker("test", lambda: None)
    monkeypatch.setattr(threading.Thread, "start", none_left)
    with pytest.raises(RuntimeError, match="can't start"):
        worker.start()
    assert worker.wait(LIMIT_S)
