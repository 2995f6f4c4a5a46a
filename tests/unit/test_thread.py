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


def raise_it(number: int, frame: FrameType | None) -> None:
    raise Interrupted


def test_an_interrupted_wait_does_not_take_a_running_thread_for_an_ended_one() -> None:
    release = threading.Event()
    worker = Worker("test", lambda: release.wait(LIMIT_S) and None)
    worker.start()
    before = signal.signal(signal.SIGALRM, raise_it)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        with pytest.raises(Interrupted):
            worker.wait()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
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
    before = signal.signal(signal.SIGALRM, raise_it)
    interrupted = 0
    try:
        for turn in range(2000):
            flag = Flag()
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-6 * (1 + turn % 200))
                if turn % 2:
                    flag.set()
                while not flag.wait(1e-4):
                    pass
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Interrupted:
                interrupted += 1
            waiting = Worker("test", lambda flag=flag: flag.wait(LIMIT_S) and None)  # type: ignore[misc]
            waiting.start()
            flag.set()
            assert waiting.wait(LIMIT_S)
            assert flag.wait(LIMIT_S)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert interrupted > 100
