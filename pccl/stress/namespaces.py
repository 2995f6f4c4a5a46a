# SPDX-License-Identifier: MIT
"""Several hosts on one machine: network namespaces on a bridge, each with an address and a link rate of its own.

Needs root and iproute2; makes no change outside of what it creates, and takes all of that away again. Namespaces that
an earlier run left behind (it was killed with SIGKILL) are removed when the next one begins: their names carry the
process id of their maker. Nobody is left in them, since workers end with their supervisor.

Must not know: what runs in them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from pccl.fleet import Host
from pccl.stress.hosts import HostsError

PREFIX = "pccl"
_OURS = re.compile(rf"{PREFIX}(\d+)(in|-m|-\d+)")
BRIDGE = "bridge"
SUBNET = "10.213.{}.{}"
"""The third number is drawn from the process id, so that two runs at a time do not meet."""
COMMAND_LIMIT_S = 20.0
BURST = "256kb"
QUEUE_MS = 50


class Namespace(Host):
    """One of them, as a host for processes."""

    def __init__(self, name: str, address: str, port: str) -> None:
        super().__init__(name, address)
        self.port = port
        """The end of its link on the bridge's side."""

    def command(self, arguments: Sequence[str], environment: Mapping[str, str]) -> list[str]:
        """`ip netns exec` becomes the command, so the process is ours to signal."""
        return ["ip", "netns", "exec", self.name, *super().command(arguments, environment)]


class Namespaces:
    """`count` hosts and one for the master, for the time of a `with` block. Raises HostsError."""

    def __init__(self, count: int, rate_bits: int = 0) -> None:
        """`rate_bits` a second is what each host may send and receive; 0 is no limit."""
        self._count = count
        self._rate_bits = rate_bits
        self._mark = f"{PREFIX}{os.getpid()}"
        self._inside = f"{self._mark}in"
        self.master: Namespace
        self.hosts: list[Namespace] = []

    def __enter__(self) -> Namespaces:
        check()
        sweep()
        try:
            self._create()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Removes everything, also what was only half made; what is gone already is no error."""
        _remove(name for name, maker in _made() if maker == os.getpid())
        self.hosts.clear()

    # ------------------------------------------------------------ what can be done to links

    def set_up(self, host: Namespace, on: bool) -> None:
        """Plugs the cable of a host in or pulls it."""
        self._ip("link", "set", host.port, "up" if on else "down")

    def set_rate(self, host: Namespace, rate_bits: int) -> None:
        """What a host may send and receive from now on; 0 is no limit."""
        for inside, device in ((self._inside, host.port), (host.name, "eth0")):
            if rate_bits:
                bucket = ("rate", str(rate_bits), "burst", BURST, "latency", f"{QUEUE_MS}ms")
                _run("tc", "-n", inside, "qdisc", "replace", "dev", device, "root", "tbf", *bucket)
            else:
                _try("tc", "-n", inside, "qdisc", "del", "dev", device, "root")

    def block(self, source: Namespace, target: Namespace, on: bool) -> None:
        """Whether packets from `source` to `target` vanish without a word."""
        route = ("ip", "-n", source.name, "route", "add" if on else "del", "blackhole", target.address)
        (_run if on else _try)(*route)

    # ------------------------------------------------------------ making

    def _create(self) -> None:
        """The bridge lives in a namespace of its own: nothing of ours can be seen outside."""
        _run("ip", "netns", "add", self._inside)
        self._ip("link", "add", BRIDGE, "type", "bridge", "forward_delay", "0")
        self._ip("link", "set", BRIDGE, "up")
        self.master = self._add("m", 250)
        for index in range(self._count):
            self.hosts.append(self._add(str(index), index + 1))
            if self._rate_bits:
                self.set_rate(self.hosts[-1], self._rate_bits)

    def _add(self, suffix: str, last: int) -> Namespace:
        address = SUBNET.format(os.getpid() % 250, last)
        host = Namespace(f"{self._mark}-{suffix}", address, f"port{suffix}")
        _run("ip", "netns", "add", host.name)
        self._ip("link", "add", host.port, "type", "veth", "peer", "name", "eth0", "netns", host.name)
        self._ip("link", "set", host.port, "master", BRIDGE, "up")
        _run("ip", "-n", host.name, "link", "set", "lo", "up")
        _run("ip", "-n", host.name, "addr", "add", f"{address}/24", "dev", "eth0")
        _run("ip", "-n", host.name, "link", "set", "eth0", "up")
        return host

    def _ip(self, *arguments: str) -> None:
        _run("ip", "-n", self._inside, *arguments)


def check() -> None:
    """Raises HostsError when namespaces cannot be made here."""
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            raise HostsError(f"network namespaces need `{tool}`: install iproute2")
    if os.geteuid() != 0:
        raise HostsError("only root may make network namespaces: try sudo, or run on this host alone")


def sweep() -> None:
    """Removes namespaces whose maker does not live any more."""
    _remove(name for name, maker in _made() if not Path("/proc", str(maker)).exists())


def _made() -> list[tuple[str, int]]:
    """All namespaces that some run has made, each with its maker's process id."""
    listed = subprocess.run(["ip", "netns", "list"], stdout=subprocess.PIPE, text=True, check=False).stdout
    names = [line.split()[0] for line in listed.splitlines() if line.strip()]
    return [(name, int(found.group(1))) for name in names if (found := _OURS.fullmatch(name))]


def _remove(names: Iterable[str]) -> None:
    for name in names:
        _try("ip", "netns", "del", name)


def _run(*command: str) -> None:
    ran = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_LIMIT_S, check=False)
    if ran.returncode != 0:
        raise HostsError(f"`{' '.join(command)}`: {ran.stderr.strip() or ran.returncode}")


def _try(*command: str) -> None:
    subprocess.run(command, capture_output=True, timeout=COMMAND_LIMIT_S, check=False)
