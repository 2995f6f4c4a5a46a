# SPDX-License-Identifier: MIT
"""The watchers of `stress/pulse.py` see when they are kept from waking, and nothing else."""

import importlib.util
import os
import signal
import time
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "stress" / "pulse.py"
STILL_NS = 30_000_000
LIMIT_S = 30


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pulse", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def may_be_real_time() -> bool:
    child = os.fork()
    if child == 0:
        try:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        except PermissionError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


@pytest.mark.skipif(not may_be_real_time(), reason="no right to real-time priority")
def test_a_watcher_that_is_kept_from_waking_tells_a_pause() -> None:
    with load().Pulse() as pulse:
        watcher = pulse.watchers[0]
        watcher.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, watcher.pid, os.WSTOPPED)
        begin_ns = time.monotonic_ns()
        while time.monotonic_ns() < begin_ns + STILL_NS:
            pass
        end_ns = time.monotonic_ns()
        watcher.send_signal(signal.SIGCONT)
        while pulse.pause_ms(begin_ns, end_ns) == 0 and time.monotonic_ns() < end_ns + LIMIT_S * 10**9:
            pass
        assert pulse.pause_ms(begin_ns, end_ns) >= STILL_NS / 1e6
        assert pulse.pause_ms(begin_ns - 10**10, begin_ns - 10**9) == 0


def test_watchers_end_with_their_pulse() -> None:
    with load().Pulse() as pulse:
        watchers = list(pulse.watchers)
        assert len(watchers) == len(os.sched_getaffinity(0))
        assert all(watcher.poll() is None for watcher in watchers) or not may_be_real_time()
    assert all(watcher.returncode == 0 for watcher in watchers)
