# SPDX-License-Identifier: MIT
"""Processes under one supervisor that speak JSON, one object a line. For the demo, the bench and the stress scripts.

A supervisor owns a `Fleet` of `Child`ren; a worker process has one `Line` to its supervisor. Both ends are the same
class: messages are small dicts, read without threads, so a supervisor is one loop over `Fleet.next`.

Every process runs on a `Host`, this machine where nothing else is said. A host is what stands before a command and how
a signal gets to it; `pccl.stress.hosts` has others.

`Master` is the one process among them that speaks plain text: `pccl master`, which may be killed and started again.
`gather` is how workers find each other at the start.

However a supervisor ends, SIGKILL included, its workers end at once. `close` kills them; if there is no time for that,
the system does where it can, for it reaches a stopped process and one that hangs; and everywhere, also on another
machine, a thread in each worker sees that the line has no other end.

Must not know: what the messages mean, or what the workers compute. No wait here is without a limit, but for a worker's
for its supervisor.
"""

from __future__ import annotations

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from multiprocessing.connection import wait
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pccl import system

if TYPE_CHECKING:
    from pccl import Communicator

Message = dict[str, Any]

READ_BYTES = 1 << 16
EXIT_LIMIT_S = 10.0
MASTER_LIMIT_S = 20.0
POLL_S = 0.01
ORPHANED = 1
"""Exit status of a worker whose supervisor is gone."""


class Line:
    """One end of a connection that carries a JSON object a line, over a pair of file descriptors it owns."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self.read_fd = read_fd
        self._write_fd = write_fd
        self._partial = b""
        self._ready: deque[bytes] = deque()
        self.ended = False

    @classmethod
    def over_stdio(cls) -> Line:
        """Stdin and stdout. From then on `print` goes to stderr: stdout is the line's."""
        line = cls(os.dup(0), os.dup(1))
        os.dup2(2, 1)
        return line

    @classmethod
    def to_supervisor(cls, path: str | None = None) -> Line:
        """The line of a worker that a `Fleet` started, over stdin and stdout or, where those are not its own (mpiexec),
        over the supervisor's Unix socket at `path`. From now on this process ends when its supervisor does."""
        if path is None:
            line = cls.over_stdio()
            system.die_with_parent()
        else:
            with socket.socket(socket.AF_UNIX) as dialled:
                dialled.connect(path)
                line = cls(os.dup(dialled.fileno()), os.dup(dialled.fileno()))
        threading.Thread(target=_end_with, args=(line.read_fd,), name="pccl-line", daemon=True).start()
        return line

    def send(self, **fields: Any) -> None:
        """Blocks while the pipe is full. Raises BrokenPipeError when the other end is gone."""
        view = memoryview(json.dumps(fields).encode() + b"\n")
        while view:
            view = view[os.write(self._write_fd, view) :]

    def receive(self, timeout_s: float | None = None) -> Message | None:
        """The next message, or None when none came within `timeout_s` (None: wait on). EOFError: the other end is gone.
        ValueError: it sent a line that is no JSON.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._ready:
            if self.ended:
                raise EOFError("the other end of the line is gone")
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not wait([self.read_fd], left):
                return None
            self.fill()
        return self.take()

    def fill(self) -> None:
        """Reads once what has arrived. Blocks when nothing has."""
        try:
            data = os.read(self.read_fd, READ_BYTES)
        except ConnectionResetError:
            data = b""
        self.ended = not data
        *lines, self._partial = (self._partial + data).split(b"\n")
        self._ready.extend(lines)

    def take(self) -> Message | None:
        """A message that has been read already, else None. Never blocks. Raises ValueError as `receive`."""
        if not self._ready:
            return None
        message: Message = json.loads(self._ready.popleft())
        return message

    def close(self) -> None:
        """Gives both descriptors back."""
        os.close(self.read_fd)
        os.close(self._write_fd)


class Host:
    """A machine that processes are started on; `address` is where the others reach it. This one: the local machine."""

    def __init__(self, name: str = "local", address: str = "127.0.0.1") -> None:
        self.name = name
        self.address = address

    def command(self, arguments: Sequence[str], environment: Mapping[str, str]) -> list[str]:
        """What to execute here so that `python ARGUMENTS` runs there, with `environment` in addition to its own."""
        settings = [f"{name}={value}" for name, value in environment.items()]
        return [*(["env", *settings] if settings else []), sys.executable, *arguments]

    def started(self, process: subprocess.Popen[bytes]) -> int:
        """The process id there of what `command` has just started. May block for as long as reaching it takes."""
        return process.pid

    def signal(self, process: subprocess.Popen[bytes], pid: int, number: int) -> None:
        """Sends a signal to a process there; one that has ended already is no error. May block in the same way."""
        process.send_signal(number)

    def end(self, process: subprocess.Popen[bytes], pid: int) -> None:
        """SIGKILL. Raises nothing: where the host cannot be reached, at least our end of it is gone."""
        process.kill()


LOCAL = Host()


class Child:
    """A process of a fleet: its name, its line, its end. `pid` is its number on its host."""

    def __init__(
        self, name: str, process: subprocess.Popen[bytes], line: Line, host: Host = LOCAL, pid: int | None = None
    ) -> None:
        self.name = name
        self.process = process
        self.line = line
        self.host = host
        self.pid = process.pid if pid is None else pid
        self.over = False

    def tell(self, **fields: Any) -> None:
        """Sends it a message. A child that is gone is no error here: `Fleet.next` reports its end."""
        if self.over:
            return
        try:
            self.line.send(**fields)
        except (BrokenPipeError, ConnectionResetError):
            return

    def kill(self, number: int = signal.SIGKILL) -> int:
        """Sends it a signal and returns the monotonic time in nanoseconds just before that."""
        now = time.monotonic_ns()
        self.host.signal(self.process, self.pid, number)
        return now

    @property
    def exit_code(self) -> int | None:
        """As subprocess has it: minus the signal's number when a signal ended it, None while it runs."""
        return self.process.poll()


class Fleet:
    """All children of a supervisor. Leaving the `with` block kills those that still run."""

    def __init__(self, log_folder: Path | None = None) -> None:
        self._log_folder = log_folder
        self._children: list[Child] = []

    def __enter__(self) -> Fleet:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(
        self,
        name: str,
        arguments: Sequence[str],
        environment: Mapping[str, str] | None = None,
        host: Host = LOCAL,
    ) -> Child:
        """Starts `python ARGUMENTS` on a host. Its stderr goes to NAME.log in the log folder, or to ours where there
        is none. It ends with the thread that calls this, at the latest."""
        process, pid = _popen(host, arguments, _log_path(self._log_folder, name), environment)
        assert process.stdin is not None
        assert process.stdout is not None
        line = Line(os.dup(process.stdout.fileno()), os.dup(process.stdin.fileno()))
        process.stdin.close()
        process.stdout.close()
        return self.adopt(Child(name, process, line, host, pid))

    def adopt(self, child: Child) -> Child:
        """Takes over a child that was started in another way."""
        self._children.append(child)
        return child

    def next(self, timeout_s: float) -> tuple[Child, Message | None] | None:
        """The next message of any child; (child, None) once when a child has ended; None when nothing came in time."""
        deadline = time.monotonic() + timeout_s
        while True:
            for child in self._children:
                message = child.line.take()
                if message is not None:
                    return child, message
                if child.line.ended:
                    self._forget(child)
                    return child, None
            open_lines = {child.line.read_fd: child.line for child in self._children}
            readable = wait(open_lines, max(0.0, deadline - time.monotonic()))
            if not readable:
                return None
            for descriptor, line in open_lines.items():
                if descriptor in readable:
                    line.fill()

    def wait(self, timeout_s: float) -> None:
        """Blocks until all children have ended by themselves; `close` kills the rest. Drops what they still say."""
        deadline = time.monotonic() + timeout_s
        while self._children:
            if self.next(max(0.0, deadline - time.monotonic())) is None:
                return

    def close(self) -> None:
        """Kills what still runs, reaps all, closes all lines. May be called again."""
        for child in self._children:
            if child.process.poll() is None:
                child.host.end(child.process, child.pid)
        for child in list(self._children):
            self._forget(child)

    def _forget(self, child: Child) -> None:
        """It has ended, or will at once: nothing of it is kept, since a fleet may outlive thousands of children."""
        child.process.wait(EXIT_LIMIT_S)
        child.over = True
        child.line.close()
        self._children.remove(child)


def gather(comm: Communicator, peers: int) -> None:
    """Admits newcomers until the group has `peers` members. For a start-up, where all members do the same."""
    while comm.group_world_size < peers:
        if comm.are_peers_pending():
            comm.update_topology()
        else:
            time.sleep(POLL_S)


class Master:
    """A master's process on a port that stays the same, with or without a journal (a path on its host). A context
    manager."""

    def __init__(
        self,
        log_folder: Path | None = None,
        journal: Path | None = None,
        host: Host = LOCAL,
        options: Sequence[str] = (),
    ) -> None:
        """`options` are further ones of `pccl master`."""
        self._log = _log_path(log_folder, "master")
        self._options = [*options, *([] if journal is None else ["--journal", str(journal)])]
        self._host = host
        self._process: subprocess.Popen[bytes] | None = None
        self._pid = 0
        self.address = f"{host.address}:0"

    def __enter__(self) -> Master:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._host.end(self._process, self._pid)
            self._reap(self._process)

    def start(self) -> None:
        """Blocks until it listens; the system chooses the port the first time. Raises RuntimeError if it does not."""
        arguments = ["-m", "pccl", "master", "--until-eof", "--listen", self.address, *self._options]
        self._process, self._pid = _popen(self._host, arguments, self._log, None)
        assert self._process.stdout is not None
        if not wait([self._process.stdout.fileno()], MASTER_LIMIT_S):
            raise RuntimeError(f"the master said nothing within {MASTER_LIMIT_S:.0f} s")
        text = self._process.stdout.readline().decode()
        found = re.search(r"listening on (\S+:[1-9]\d*)", text)
        if found is None:
            raise RuntimeError(f"the master did not say where it listens, but: {text!r}")
        self.address = found.group(1)

    def kill(self) -> int:
        """SIGKILL, and waits for its end. May be called again. The monotonic time in nanoseconds just before."""
        now = time.monotonic_ns()
        if self._process is not None:
            self._host.signal(self._process, self._pid, signal.SIGKILL)
            self._reap(self._process)
        return now

    def _reap(self, process: subprocess.Popen[bytes]) -> None:
        process.communicate(timeout=EXIT_LIMIT_S)
        self._process = None


def _end_with(read_fd: int) -> None:
    """Waits until nobody holds the other end of a descriptor, and ends this process. Reads nothing."""
    watch = select.poll()
    watch.register(read_fd, getattr(select, "POLLRDHUP", 0))  # POLLHUP always counts; a half-closed socket lacks it
    watch.poll()
    os._exit(ORPHANED)


def _log_path(folder: Path | None, name: str) -> Path | None:
    return None if folder is None else folder / f"{name}.log"


def _popen(
    host: Host, arguments: Sequence[str], log: Path | None, environment: Mapping[str, str] | None
) -> tuple[subprocess.Popen[bytes], int]:
    """Python on a host, with pipes for stdin and stdout, and its process id there; stderr is appended to `log`, or
    ours where that is None."""
    stderr = None if log is None else os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        process = subprocess.Popen(
            host.command(arguments, environment or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            start_new_session=True,  # Ctrl-C at a terminal is for the supervisor, which ends its children
        )
    finally:
        if stderr is not None:
            os.close(stderr)
    try:
        return process, host.started(process)
    except BaseException:
        process.kill()
        process.communicate()
        raise
