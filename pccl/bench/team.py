# SPDX-License-Identifier: MIT
"""The processes of one contender, seen from the supervisor: all are asked the same, all answers come back together.

A team that is not asked sleeps in a read, so that it takes nothing from the one that is timed.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pccl.bench import mpiexec
from pccl.bench.contenders.contender import Seat
from pccl.fleet import LOCAL, Child, Fleet, Host, Line, Message

ANSWER_LIMIT_S = 120.0
STOP_LIMIT_S = 10.0
POLL_S = 0.1
# Processes may outnumber cores: a library's own threads would only fight each other.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class TeamFailed(Exception):
    """A process of a team ended, did not answer, or could not do what it was asked; the text names it."""


class Team:
    """Starts the processes and lets them meet. A context manager; leaving it ends them all."""

    def __init__(
        self,
        name: str,
        peers: int,
        master: str,
        settings: dict[str, Any],
        folder: Path,
        hosts: Sequence[Host] = (LOCAL,),
    ) -> None:
        """The processes are dealt to `hosts` in turn; those of mpi are all here."""
        self.name = name
        self._hosts = hosts
        self._fleet = Fleet()
        self._peers = peers
        seats = [Seat(rank, peers, master, settings) for rank in range(peers)]
        if name == "mpi":
            self._children = self._start_mpi(seats[0], folder)
        else:
            self._children = [self._start(seat) for seat in seats]

    def __enter__(self) -> Team:
        try:
            self.ask(offers=[answer["offer"] for answer in self._answers()])
        except TeamFailed:
            self._fleet.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            for child in self._children:
                child.tell(do="stop")
            self._fleet.wait(STOP_LIMIT_S)
        self._fleet.close()

    def ask(self, **command: Any) -> list[Message]:
        """One answer per process. Raises TeamFailed."""
        for child in self._children:
            child.tell(**command)
        return self._answers()

    def _answers(self) -> list[Message]:
        found: dict[str, Message] = {}
        while len(found) < self._peers:
            arrived = self._fleet.next(ANSWER_LIMIT_S)
            if arrived is None:
                silent = [child.name for child in self._children if child.name not in found]
                raise TeamFailed(f"no answer within {ANSWER_LIMIT_S:.0f} s from {', '.join(silent)}")
            child, message = arrived
            if message is None:
                raise TeamFailed(f"{child.name} ended with exit status {child.exit_code}")
            if "failed" in message:
                raise TeamFailed(f"{child.name}: {message['failed']}")
            found[child.name] = message
        return [found[child.name] for child in self._children]

    def _start(self, seat: Seat) -> Child:
        arguments = ["-m", "pccl.bench.worker", self.name, json.dumps(asdict(seat))]
        host = self._hosts[seat.rank % len(self._hosts)]
        return self._fleet.start(f"{self.name}-{seat.rank}", arguments, ENVIRONMENT, host)

    def _start_mpi(self, seat: Seat, folder: Path) -> list[Child]:
        """mpiexec owns its processes' stdin and stdout, so they dial a Unix socket instead."""
        path = str(folder / "mpi")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen(self._peers)
            listener.settimeout(POLL_S)
            worker = [sys.executable, "-m", "pccl.bench.worker", "mpi", json.dumps(asdict(seat)), "--socket", path]
            process = subprocess.Popen(
                mpiexec.command(seat.settings["transport"], self._peers, worker),
                stdin=subprocess.DEVNULL,
                env={**ENVIRONMENT, **mpiexec.ENVIRONMENT, **os.environ},
            )
            try:
                return [self._adopt(listener, index, process) for index in range(self._peers)]
            except TeamFailed:
                process.kill()
                raise

    def _adopt(self, listener: socket.socket, index: int, process: subprocess.Popen[bytes]) -> Child:
        with _accept(listener, process) as accepted:
            line = Line(os.dup(accepted.fileno()), os.dup(accepted.fileno()))
        return self._fleet.adopt(Child(f"mpi-{index}", process, line))


def _accept(listener: socket.socket, process: subprocess.Popen[bytes]) -> socket.socket:
    """The next worker that dials. Raises TeamFailed when mpiexec ends first, or nobody dials in time."""
    deadline = time.monotonic() + ANSWER_LIMIT_S
    while time.monotonic() < deadline:
        try:
            return listener.accept()[0]
        except TimeoutError:
            if process.poll() is not None:
                raise TeamFailed(f"mpiexec ended with exit status {process.returncode}") from None
    raise TeamFailed(f"the processes of mpiexec did not answer within {ANSWER_LIMIT_S:.0f} s")
