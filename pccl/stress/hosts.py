# SPDX-License-Identifier: MIT
"""Where the processes of a stress test run: this machine, network namespaces of it, or other machines over ssh.

`parse` reads what the user wrote. A `Site` is a set of hosts: one for the master, one
for each seat of a peer.

Must not know: what the processes do.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import wait

from pccl import system
from pccl.fleet import LOCAL, Host

SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
SSH_LIMIT_S = 30.0
HOSTS_MAX = 200


class HostsError(ValueError):
    """The hosts that were asked for cannot be had; the text says why, and what would help."""


@dataclass(frozen=True)
class Wanted:
    """`--hosts` as understood: "local", "netns" with a number, or "ssh" with destinations."""

    kind: str
    count: int = 0
    destinations: tuple[str, ...] = ()


def parse(text: str) -> Wanted:
    """Reads local, netns:N or ssh://A,B. Raises HostsError."""
    if text == "local":
        return Wanted("local")
    found = re.fullmatch(r"netns:(\d+)", text)
    if found is not None and 2 <= int(found.group(1)) <= HOSTS_MAX:
        return Wanted("netns", int(found.group(1)))
    if text.startswith("ssh://"):
        destinations = tuple(part.strip() for part in text.removeprefix("ssh://").split(","))
        if all(destinations):
            return Wanted("ssh", len(destinations), destinations)
    raise HostsError(
        f"--hosts is local, netns:N with N from 2 to {HOSTS_MAX}, or ssh://A,B,... with destinations as ssh has them, "
        f"not {text!r}"
    )


class Ssh(Host):
    """Another machine. pccl has to be installed there for `python`, and ssh must not ask for anything.

    A destination is [USER@]NAME[:PORT]; `address`, where the other hosts reach it, is NAME unless `=ADDRESS` follows.
    """

    def __init__(self, destination: str, python: str = "python3") -> None:
        login, _, address = destination.partition("=")
        target, colon, port = login.rpartition(":")
        self._target = target if colon else login
        self._options = ["-p", port] if colon else []
        self._python = python
        super().__init__(login, address or self._target.rpartition("@")[2])

    def command(self, arguments: Sequence[str], environment: Mapping[str, str]) -> list[str]:
        """The shell there says its process id and becomes Python. If we die, so does the connection, and with it what
        is stopped there."""
        settings = "".join(f" {name}={shlex.quote(value)}" for name, value in environment.items())
        there = f"echo $$; exec env{settings} {self._python} {shlex.join(arguments)}"
        return system.dying_with_us([*SSH, *self._options, self._target, there])

    def started(self, process: subprocess.Popen[bytes]) -> int:
        """Reads the process id, and not a byte more. Raises HostsError when there is none in time."""
        assert process.stdout is not None
        deadline = time.monotonic() + SSH_LIMIT_S
        text = b""
        while not text.endswith(b"\n"):
            left = max(0.0, deadline - time.monotonic())
            data = os.read(process.stdout.fileno(), 1) if wait([process.stdout.fileno()], left) else b""
            if not data:
                raise HostsError(f"ssh {self.name} did not start a process; try: {shlex.join(self._plain('true'))}")
            text += data
        return int(text)

    def signal(self, process: subprocess.Popen[bytes], pid: int, number: int) -> None:
        """By a second connection; the first one may be what the process is stopped in."""
        if process.poll() is None:
            self.run(f"kill -{number} {pid} 2> /dev/null || true")

    def end(self, process: subprocess.Popen[bytes], pid: int) -> None:
        """By a second connection, then the first one ends; with it, so does a worker whose host cannot be asked."""
        with suppress(HostsError):
            self.signal(process, pid, signal.SIGKILL)
        process.kill()

    def run(self, there: str) -> str:
        """Has a shell command executed there: what it printed. Raises HostsError."""
        try:
            ran = subprocess.run(self._plain(there), capture_output=True, text=True, timeout=SSH_LIMIT_S, check=False)
        except subprocess.TimeoutExpired:
            raise HostsError(f"{shlex.join(self._plain(there))}: no answer within {SSH_LIMIT_S:.0f} s") from None
        if ran.returncode != 0:
            raise HostsError(f"{shlex.join(self._plain(there))}: {ran.stderr.strip() or ran.returncode}")
        return ran.stdout.strip()

    def _plain(self, there: str) -> list[str]:
        return [*SSH, *self._options, self._target, there]


@dataclass(frozen=True)
class Site:
    """Hosts in use. Seats are dealt to `hosts` in turn. `scratch` is a folder on the master's host, where that has no
    file system in common with us."""

    master: Host
    hosts: Sequence[Host]
    scratch: str | None = None

    def host(self, seat: int) -> Host:
        """Where the peer of a seat runs."""
        return self.hosts[seat % len(self.hosts)]

    def mates(self, seat: int) -> list[int]:
        """All seats of that seat's host; up to a number that no scenario exceeds."""
        if len(self.hosts) == 1:
            return [seat]
        return list(range(seat % len(self.hosts), HOSTS_MAX, len(self.hosts)))


def local() -> Site:
    """This machine alone."""
    return Site(LOCAL, [LOCAL])


@contextmanager
def ssh(destinations: Sequence[str], python: str) -> Iterator[Site]:
    """Other machines; the first also runs the master. Raises HostsError when one cannot be reached."""
    hosts = [Ssh(destination, python) for destination in destinations]
    for host in hosts:
        host.run(f"{python} -c 'import pccl'")
    scratch = hosts[0].run("mktemp -d")
    try:
        yield Site(hosts[0], hosts, scratch)
    finally:
        with suppress(HostsError):  # a host that is gone keeps it, and must not hide what the test has found
            hosts[0].run(f"rm -rf {shlex.quote(scratch)}")
