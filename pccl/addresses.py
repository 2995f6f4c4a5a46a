# SPDX-License-Identifier: MIT
"""Addresses as users write them: HOST:PORT, and which local address the data plane listens on.

Nothing here asks for the own host's name: the local address is the one that the system's route to the master starts
from (or the one that the user chose by interface name, address or network), so a machine without working DNS joins
like any other. What interfaces exist is the only question to the operating system, asked through `system`.
"""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass

from pccl import system
from pccl.errors import InvalidArgument

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class HostPort:
    """A host (a name, an IPv4 or an IPv6 address without brackets) and a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if is_ipv6(self.host) else f"{self.host}:{self.port}"


def parse(text: str, *, default_port: int | None = None) -> HostPort:
    """Reads `HOST:PORT`, `IPV4:PORT` or `[IPV6]:PORT`; the port may be missing where there is a default.

    Raises InvalidArgument that shows what was expected.
    """
    if not isinstance(text, str):
        raise InvalidArgument(f"an address is a string, HOST:PORT, not {text!r}")
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")) or _literal(host) is None:
            raise _unreadable(text)
        port_text = rest[1:]
    elif text.count(":") > 1:
        raise InvalidArgument(f"address {text!r}: an IPv6 address needs brackets, as in [::1]:48148")
    else:
        host, _, port_text = text.partition(":")
    if not _is_host(host):
        raise _unreadable(text)
    if not port_text and default_port is not None and not text.endswith(":"):
        return HostPort(host, default_port)
    if not (port_text.isascii() and port_text.isdigit() and int(port_text) <= 65535):
        raise _unreadable(text)
    return HostPort(host, int(port_text))


def is_ipv6(host: str) -> bool:
    """Whether a numeric host is an IPv6 address."""
    return ":" in host


def resolve(address: HostPort) -> list[HostPort]:
    """Numeric addresses of a host, in the system's order of preference. May block on DNS.

    Raises OSError while the name is unknown.
    """
    if _literal(address.host) is not None:
        return [address]
    found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(HostPort(str(entry[4][0]), address.port) for entry in found))


class Selection:
    """Which local addresses may be used: `interface=` as the user wrote it.

    A comma-separated list of interface names ("eth0"), addresses ("10.0.0.5") and networks ("10.0.0.0/8"); an entry
    that starts with ^ excludes ("^docker0"). Only exclusions: everything else is allowed.
    """

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise InvalidArgument(f"interface is a string of names, addresses and networks, not {text!r}")
        entries = [entry.strip() for entry in text.split(",")]
        if not all(entry.removeprefix("^") for entry in entries):
            raise InvalidArgument(f"interface {text!r}: an entry of the list is empty")
        self._text = text
        self._wanted = [entry for entry in entries if not entry.startswith("^")]
        self._excluded = [entry[1:] for entry in entries if entry.startswith("^")]

    def choose(self, preferred: str = "") -> str:
        """The address to listen on: `preferred` if it is allowed, else the first allowed one of its family, else any.

        Raises InvalidArgument that lists what exists when an entry names nothing or nothing is left.
        """
        existing = system.interface_addresses()
        for entry in self._wanted + self._excluded:
            if not any(_matches(entry, name, address) for name, address in existing):
                raise InvalidArgument(f"interface {entry!r} matches nothing here; there are {_listed(existing)}")
        allowed = [address for name, address in existing if self._allows(name, address)]
        if not allowed:
            raise InvalidArgument(f"interface {self._text!r} leaves nothing; there are {_listed(existing)}")
        if preferred in allowed:
            return preferred
        same_family = [address for address in allowed if is_ipv6(address) == is_ipv6(preferred)]
        return (same_family or allowed)[0]

    def _allows(self, name: str, address: str) -> bool:
        if any(_matches(entry, name, address) for entry in self._excluded):
            return False
        return not self._wanted or any(_matches(entry, name, address) for entry in self._wanted)


def _matches(entry: str, name: str, address: str) -> bool:
    if entry == name:
        return True
    try:
        return ipaddress.ip_address(address) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return False


def _is_host(host: str) -> bool:
    """Whether a resolver may be asked for it: some raise what no caller expects for a label that is too long."""
    if not host.isprintable() or " " in host:
        return False
    try:
        return bool(host.encode("idna"))
    except UnicodeError:
        return False


def _literal(host: str) -> IPAddress | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _listed(existing: list[tuple[str, str]]) -> str:
    return ", ".join(f"{name} ({address})" for name, address in existing) or "none"


def _unreadable(text: str) -> InvalidArgument:
    return InvalidArgument(f"address {text!r} is not HOST:PORT, IPV4:PORT or [IPV6]:PORT")
