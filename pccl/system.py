# SPDX-License-Identifier: MIT
"""What only the operating system knows: interfaces, the host's identity and cores, descriptors inherited by a
fork, file locks.

All Linux-only code of the Python side is here, behind functions with a portable fallback. Nothing here knows pccl.
"""

from __future__ import annotations

import array
import ctypes
import fcntl
import hashlib
import ipaddress
import os
import signal
import socket
import stat
import struct
import sys
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

_SIOCGIFCONF = 0x8912
_PR_SET_PDEATHSIG = 1
_IFREQ_BYTES = 40 if struct.calcsize("P") == 8 else 32


def interface_addresses() -> list[tuple[str, str]]:
    """(interface name, numeric address) of every configured address, IPv4 first. Link-local IPv6 is left out: it
    means nothing to another host without a scope."""
    if not sys.platform.startswith("linux"):
        return [("lo", "127.0.0.1")]
    return _ipv4_addresses() + _ipv6_addresses()


def _ipv4_addresses() -> list[tuple[str, str]]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as query:
        capacity = 64
        while True:
            buffer = array.array("B", bytes(capacity * _IFREQ_BYTES))
            pointer, size = buffer.buffer_info()
            request = struct.pack("iP", size, pointer)
            used: int = struct.unpack("iP", fcntl.ioctl(query, _SIOCGIFCONF, request))[0]
            if used < size:
                break
            capacity *= 2
    raw = buffer.tobytes()
    entries = [raw[start : start + _IFREQ_BYTES] for start in range(0, used, _IFREQ_BYTES)]
    return [(entry[:16].split(b"\0", 1)[0].decode(), socket.inet_ntoa(entry[20:24])) for entry in entries]


def _ipv6_addresses() -> list[tuple[str, str]]:
    try:
        lines = Path("/proc/net/if_inet6").read_text().splitlines()
    except OSError:
        return []
    rows = [line.split() for line in lines]
    found = [(row[5], ipaddress.IPv6Address(bytes.fromhex(row[0]))) for row in rows]
    return [(name, str(address)) for name, address in found if not address.is_link_local]


_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
"""Made once: each Path interns its parts, for which CPython sooner or later doubles a table of half a MiB."""


def host_id() -> int:
    """A number (1 to 2^64 - 1) that is equal for processes of one boot of one host and network namespace."""
    try:
        namespace = os.stat("/proc/self/ns/net")
        identity = f"{_BOOT_ID.read_text()} {namespace.st_dev} {namespace.st_ino}"
    except OSError:
        identity = f"{uuid.getnode()}"
    digest = hashlib.blake2b(identity.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") | 1


def usable_cores() -> int:
    """How many cores this process may run on; 0 where the system does not say. Knows no quota of processor time."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 0


def require_descriptors(count: int) -> None:
    """Raises OSError unless this process can open `count` more descriptors now. Keeps none."""
    taken: list[int] = []
    try:
        for _ in range(count):
            taken.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as failure:
        raise OSError(failure.errno, f"{os.strerror(failure.errno or 0)} ({count} more are needed)") from None
    finally:
        for descriptor in taken:
            os.close(descriptor)


def close_connections_to(host: str, port: int) -> None:
    """Closes every descriptor of this process that is a TCP connection to the address.

    For a forked child: as long as it holds its parent's connection open, the other end cannot notice the parent's
    death. The parent's descriptors are not touched.
    """
    _close_sockets(lambda inherited: inherited.getpeername()[:2] == (host, port))


def close_sockets_at(port: int) -> None:
    """Closes every descriptor of this process that listens on the TCP port, or was accepted there.

    For a forked child: as long as it holds them, nobody else can listen on its parent's port.
    """
    _close_sockets(lambda inherited: inherited.getsockname()[1] == port)


def _close_sockets(chosen: Callable[[socket.socket], bool]) -> None:
    try:
        descriptors = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        return
    for descriptor in descriptors:
        if _is_chosen(descriptor, chosen):
            os.close(descriptor)


def _is_chosen(descriptor: int, chosen: Callable[[socket.socket], bool]) -> bool:
    """False also for what is no TCP socket, or not connected."""
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return False
        with socket.socket(fileno=os.dup(descriptor)) as inherited:
            internet = inherited.family in (socket.AF_INET, socket.AF_INET6)
            return internet and inherited.type == socket.SOCK_STREAM and chosen(inherited)
    except OSError:
        return False


def blind(descriptor: int) -> None:
    """Lets a descriptor lead nowhere, for a forked child that inherited an open file: the lock on it is its parent's
    alone again, and nothing that is buffered for it is written twice."""
    nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(nowhere, descriptor, inheritable=False)
    os.close(nowhere)


def lock_file(file: BinaryIO) -> bool:
    """Takes the exclusive lock on an open file, held until it is closed. False if another process has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def die_with_parent() -> None:
    """From now on the system kills this process when the thread that started it ends, whatever it is doing, and also
    while it is stopped. Elsewhere than on Linux nothing happens, and for a parent that has ended before."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def dying_with_us(command: Sequence[str]) -> list[str]:
    """The command for a program that is not ours, so that it begins with `die_with_parent`."""
    if not sys.platform.startswith("linux"):
        return [*command]
    first = f"ctypes.CDLL(None).prctl({_PR_SET_PDEATHSIG}, {signal.SIGKILL:d}, 0, 0, 0)"
    then = "os.execvp(sys.argv[1], sys.argv[1:])"
    return [sys.executable, "-ISc", f"import ctypes, os, sys; {first}; {then}", *command]
