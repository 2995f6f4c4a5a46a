# SPDX-License-Identifier: MIT
"""The end of a background thread: waited for, with a limit, and with Ctrl-C in the middle."""

from __future__ import annotations

import signal
import threading
from types import FrameType

import pytest

from pccl.thread import SLICE_S, Worker

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
