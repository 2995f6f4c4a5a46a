# SPDX-License-Identifier: MIT
"""When a trace becomes a file: on a failure, when asked, and on a signal.

It knows traces only as objects that somebody takes. The one idea: a dump must never be what breaks a run. So it is
bounded (one file for one kind of failure in one epoch; the newest KEPT_FILES of a folder stay, whoever wrote them), a
file appears whole or not at all, and a folder that cannot be written to costs a line in the log.

Log records go to the logger `pccl.trace`.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable
from io import FileIO
from pathlib import Path

from pccl._native import signal_pipe
from pccl.arguments import whole
from pccl.errors import InvalidArgument, PCCLError, RemoteError, SystemFailure, TooFewPeers
from pccl.thread import Worker
from pccl.trace import file
from pccl.trace.record import Trace

logger = logging.getLogger("pccl.trace")

FOLDER_VARIABLE = "PCCL_TRACE_DIR"
SIGNAL_VARIABLE = "PCCL_TRACE_SIGNAL"
SUFFIX = ".pccltrace"
KEPT_FILES = 64
"""So many trace files stay in a folder: 32 MiB or so."""

TakeTrace = Callable[[str, str], Trace]
"""Takes a trace, given its reason and text."""


class Tracer:
    """Writes one communicator's traces. Any thread may call."""

    def __init__(self, take: TakeTrace, folder: Path | None) -> None:
        """`folder` None: failures leave no file, dumps on request and on a signal do."""
        self.trace = take
        self.folder = folder
        self._lock = threading.Lock()
        self._dumped: set[tuple[str, int]] = set()
        with _tracers_lock:
            _tracers.add(self)

    def failed(self, failure: PCCLError, epoch: int) -> None:
        """The user is about to see `failure`. Writes a file if that was asked for and this is news."""
        if self.folder is None or not isinstance(failure, RemoteError) or isinstance(failure, TooFewPeers):
            return
        reason = type(failure).__name__
        with self._lock:
            if (reason, epoch) in self._dumped:
                return
            self._dumped = {it for it in self._dumped if it[1] >= epoch} | {(reason, epoch)}
        path = self.dump_into(self.folder, reason, str(failure))
        if path is not None and hasattr(failure, "add_note"):  # from Python 3.11 on
            failure.add_note(f"flight record: {path}")

    def dump_into(self, folder: Path, reason: str, text: str = "") -> Path | None:
        """Writes a file of a fresh name into `folder`; never raises."""
        try:
            trace = self.trace(reason, text)
            now = time.time_ns()
            stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now // 10**9))
            name = f"pccl-{stamp}.{now // 1000 % 10**6:06d}-{trace.header.peer[:8]}-{reason}{SUFFIX}"
            folder.mkdir(parents=True, exist_ok=True)
            _prune(folder, KEPT_FILES - 1)
            write(folder / name, trace)
        except (OSError, PCCLError) as obstacle:
            logger.warning("no flight record written to %s: %s", folder, obstacle)
            return None
        logger.info("flight record written to %s", folder / name)
        return folder / name

    def close(self) -> None:
        """Signals pass it by from now on."""
        with _tracers_lock:
            _tracers.discard(self)


def write(path: Path, trace: Trace) -> None:
    """Writes `trace` to `path`, whole or not at all; into a pipe or a device, which stays one. Raises SystemFailure."""
    partial = path.parent / f"{path.name}.{os.getpid()}.{threading.get_ident()}"
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if path.exists() and not path.is_file():
            path.write_bytes(file.encode(trace))
            return
        partial.write_bytes(file.encode(trace))
        partial.replace(path)
    except OSError as failure:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise SystemFailure(f"cannot write {path}: {failure.strerror}") from None


_tracers: weakref.WeakSet[Tracer] = weakref.WeakSet()
_tracers_lock = threading.RLock()
"""For additions: a set that grows cannot be iterated. Re-entrant, since the garbage collector may close a tracer in any
thread, also in one that holds it."""


def chosen_folder(folder: str | os.PathLike[str] | None) -> Path | None:
    """Where failures are dumped: the argument, else the environment's; an empty one is none."""
    chosen = os.environ.get(FOLDER_VARIABLE, "") if folder is None else folder
    return path_of("trace_dir", chosen) if chosen else None


def path_of(name: str, path: str | os.PathLike[str]) -> Path:
    """What a user gave as a path. Raises InvalidArgument."""
    try:
        found = Path(os.fsdecode(path))
        if "\0" in str(found):
            raise ValueError("there is a null character in it")
    except (TypeError, ValueError) as failure:
        raise InvalidArgument(f"{name} {path!r} is no path: {failure}") from None
    return found


def _prune(folder: Path, keep: int) -> None:
    """Deletes the oldest traces in `folder`; their names begin with the time. Other processes may do the same."""
    for path in sorted(folder.glob(f"pccl-*{SUFFIX}"))[: -keep or None]:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()


# ---------------------------------------------------------------------------------------------- the signal


class _Watcher:
    """A thread that dumps every communicator of the process when the pipe says that the signal came. It needs nothing
    of the main thread, which may hang. It ends with the pipe's other end."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        read, write = os.pipe()
        os.set_blocking(write, False)
        self._read, self._write = FileIO(read, "rb"), FileIO(write, "wb")
        self._thread = Worker("pccl-trace", self._work)

    def start(self, number: int) -> None:
        """From now on it does. Raises InvalidArgument."""
        self._thread.start()
        signal_pipe(number, self._write.fileno())

    def stop(self) -> None:
        """Takes the handler back and ends the thread, after the records that it is writing. A call that Ctrl-C ended is
        to be made again."""
        signal_pipe(0, -1)
        self._write.close()
        self._thread.wait()
        self._read.close()

    def forked(self) -> None:
        """In a forked child, where the thread does not exist: the handler would write to the parent's pipe."""
        signal_pipe(0, -1)
        self._write.close()
        self._read.close()

    def _work(self) -> None:
        with self._read as pipe:
            while pipe.read(1):
                with _tracers_lock:
                    tracers = list(_tracers)
                for tracer in tracers:
                    tracer.dump_into(tracer.folder or self._folder, "signal")


_watcher: _Watcher | None = None
_watcher_lock = threading.Lock()


def install_trace_signal(number: int | None = signal.SIGUSR1, folder: str | os.PathLike[str] | None = None) -> None:
    """From now on signal `number` makes every communicator of this process, present or later, write its flight record
    into its `trace_dir`, else `folder`, else PCCL_TRACE_DIR, else the working directory. `None` takes that back.

    It works whatever the main thread does, also while it hangs in native code. A handler that was installed before is
    called too; one that is installed later (`signal.signal`) replaces this one. A forked child is without it.
    Raises InvalidArgument for a signal that cannot be handled.
    """
    global _watcher
    with _watcher_lock:
        if _watcher is not None:
            _watcher.stop()
            _watcher = None
        if number is not None:
            _watcher = _Watcher(chosen_folder(folder) or Path.cwd())
            try:
                _watcher.start(whole("number", number, 0, signal.NSIG))
            except PCCLError:
                _watcher.stop()
                _watcher = None
                raise


def install_from_environment() -> None:
    """Does what PCCL_TRACE_SIGNAL asks for, unless a signal is installed already. Raises InvalidArgument."""
    wanted = os.environ.get(SIGNAL_VARIABLE, "")
    if not wanted or _watcher is not None:
        return
    try:
        number = int(wanted) if wanted.isdigit() else signal.Signals["SIG" + wanted.upper().removeprefix("SIG")]
    except KeyError:
        raise InvalidArgument(f"{SIGNAL_VARIABLE}={wanted} names no signal") from None
    install_trace_signal(number)


def _forked() -> None:
    global _watcher, _watcher_lock, _tracers_lock
    _watcher_lock, _tracers_lock = threading.Lock(), threading.RLock()
    if _watcher is not None:
        _watcher.forked()
        _watcher = None
    _tracers.clear()


os.register_at_fork(after_in_child=_forked)
