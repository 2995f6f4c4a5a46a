# SPDX-License-Identifier: MIT
"""pccl/trace/dump.py: when a file appears, how many, and that nothing here breaks a run."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import pccl
from pccl.trace import dump, file
from pccl.trace.record import Header, Trace

LIMIT_S = 20.0


def take(reason: str, text: str) -> Trace:
    return Trace(Header("ab" * 16, 0, 1, 7, "host", 1, reason, text, 10**18, 10**9))


def traces(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def test_a_failure_of_a_kind_and_epoch_leaves_one_file(tmp_path: Path) -> None:
    tracer = dump.Tracer(take, tmp_path / "new")
    failure = pccl.PeerLost("rank 2 was lost")
    for epoch in (7, 7, 8):
        tracer.failed(failure, epoch)
    tracer.failed(pccl.OperationTimeout("nobody came"), 8)
    found = [file.decode(path.read_bytes()).header for path in traces(tmp_path / "new")]
    assert [(it.reason, it.text) for it in found] == [
        ("PeerLost", "rank 2 was lost"),
        ("PeerLost", "rank 2 was lost"),
        ("OperationTimeout", "nobody came"),
    ]
    if sys.version_info >= (3, 11):
        assert f"flight record: {traces(tmp_path / 'new')[0]}" in failure.__notes__


def test_callers_own_mistakes_and_unasked_failures_leave_none(tmp_path: Path) -> None:
    tracer = dump.Tracer(take, tmp_path)
    tracer.failed(pccl.InvalidArgument("no"), 1)
    tracer.failed(pccl.TooFewPeers("alone"), 1)
    dump.Tracer(take, None).failed(pccl.PeerLost("lost"), 1)
    assert traces(tmp_path) == []


def test_a_folder_keeps_the_newest_files_and_foreign_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dump, "KEPT_FILES", 3)
    (tmp_path / "notes.txt").write_text("mine")
    tracer = dump.Tracer(take, tmp_path)
    written = [tracer.dump_into(tmp_path, "signal") for _ in range(5)]
    assert traces(tmp_path) == [tmp_path / "notes.txt", *written[2:]]


def test_a_folder_that_cannot_be_written_costs_a_log_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "occupied").write_text("")
    dump.Tracer(take, tmp_path / "occupied").failed(pccl.PeerLost("lost"), 1)
    assert "no flight record written" in caplog.text
    with pytest.raises(pccl.SystemFailure, match="cannot write"):
        dump.write(tmp_path / "occupied" / "file", take("asked", ""))


def test_the_folder_is_the_arguments_else_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(dump.FOLDER_VARIABLE, raising=False)
    assert dump.chosen_folder(None) is None
    monkeypatch.setenv(dump.FOLDER_VARIABLE, "elsewhere")
    assert dump.chosen_folder(None) == Path("elsewhere")
    assert dump.chosen_folder("here") == Path("here")
    assert dump.chosen_folder("") is None


def test_wrong_signals_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(pccl.InvalidArgument, match="signal 9 cannot be handled"):
        pccl.install_trace_signal(signal.SIGKILL)
    monkeypatch.setenv(dump.SIGNAL_VARIABLE, "ABSENT")
    with pytest.raises(pccl.InvalidArgument, match="names no signal"):
        dump.install_from_environment()


HANGING = """
import os, signal, sys, threading, time
from pathlib import Path
from pccl import install_trace_signal
from pccl.trace import dump
from pccl.trace.record import Header, Trace

def take(reason, text):
    return Trace(Header("ab" * 16, 0, 1, 7, "host", os.getpid(), reason, text, 10**18, 10**9))

tracer = dump.Tracer(take, None)
folder = Path(sys.argv[1])
install_trace_signal(signal.SIGUSR1, folder / "first")
install_trace_signal(signal.SIGUSR2, folder / "second")
child = os.fork()
if child == 0:  # it is without the handler, so the signal ends it
    os.read(0, 1)
    os._exit(0)
print(child, flush=True)
import ctypes
ctypes.CDLL(None).pause()  # native code that never returns to the interpreter: a handler that returns would end it
while True:
    ctypes.CDLL(None).poll(None, 0, -1)
"""


def test_a_signal_is_answered_while_the_main_thread_hangs_in_native_code(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HANGING, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        try:
            os.kill(child, signal.SIGUSR2)
            seconds = tmp_path / "second"
            os.kill(process.pid, signal.SIGUSR2)
            while not (seconds.exists() and any(it.suffix == dump.SUFFIX for it in seconds.iterdir())):
                assert process.poll() is None
                select.select([], [], [], 0.01)
            found = [file.decode(it.read_bytes()).header for it in seconds.iterdir() if it.suffix == dump.SUFFIX]
            assert [(it.reason, it.pid) for it in found] == [("signal", process.pid)]
            assert not (tmp_path / "first").exists()
        finally:
            process.kill()


def test_ctrl_c_ends_the_wait_for_the_watcher_and_it_may_be_repeated(tmp_path: Path) -> None:
    """The watcher is busy with a record, so that taking the signal back has to wait for it."""
    taking, release = threading.Event(), threading.Event()

    def slow(reason: str, text: str) -> Trace:
        taking.set()
        assert release.wait(LIMIT_S)
        return take(reason, text)

    tracer = dump.Tracer(slow, tmp_path)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        dump.install_trace_signal(signal.SIGUSR2)
        os.kill(os.getpid(), signal.SIGUSR2)
        assert taking.wait(LIMIT_S)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyboardInterrupt):
            dump.install_trace_signal(None)
        release.set()
        dump.install_trace_signal(None)
        assert len(traces(tmp_path)) == 1
        assert "pccl-trace" not in [thread.name for thread in threading.enumerate()]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        release.set()
        tracer.close()


def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        dump.write(path, take("asked", "in a pipe"))
        assert file.decode(os.read(reader, 1 << 20)) == take("asked", "in a pipe")
        assert path.is_fifo()
    finally:
        os.close(reader)
