# SPDX-License-Identifier: MIT
"""How a peer finds its master, and from there the address that its data plane listens on.

The one idea: a TCP connection that the master accepts answers everything at once: that the master is there, which of
several addresses of its name works, and which local address the route to it starts from.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import time
from functools import partial

from pccl import addresses, system
from pccl.addresses import HostPort, Selection
from pccl.errors import InvalidArgument, MasterLost
from pccl.protocol.links import can_be_dialled

logger = logging.getLogger("pccl.reach")

_ATTEMPT_S = 3.0
_PAUSE_S = 0.05
_PAUSE_MAX_S = 0.25


async def master(address: HostPort, timeout_s: float) -> tuple[HostPort, str]:
    """Waits until the master accepts connections: its numeric address and the local one that it is reached from.

    Names that do not resolve yet and ports where nobody listens yet are tried again. Raises MasterLost that names the
    last failure.
    """
    deadline = time.monotonic() + timeout_s
    pause_s = _PAUSE_S
    while True:
        try:
            return await _attempt(address, min(_ATTEMPT_S, max(0.01, deadline - time.monotonic())))
        except (OSError, asyncio.TimeoutError) as failure:
            reason = _reason(failure)
        if time.monotonic() + pause_s > deadline:
            raise MasterLost(f"no master at {address} within {timeout_s:g} s (connect_timeout): {reason}")
        logger.debug("no master at %s yet: %s", address, reason)
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _PAUSE_MAX_S)


async def nobody_listens(address: HostPort) -> bool:
    """Whether the host of a numeric address answers, and refuses: not while it is silent or out of reach."""
    try:
        await _attempt(address, _ATTEMPT_S)
    except (OSError, asyncio.TimeoutError) as failure:
        return getattr(failure, "errno", None) == errno.ECONNREFUSED
    return False


def _reason(failure: Exception) -> str:
    """In the system's words where it has some; event loops word it each in their own way."""
    number = getattr(failure, "errno", None)
    if isinstance(number, int) and number in errno.errorcode:
        return os.strerror(number)
    return str(failure) or "no answer"


async def _attempt(address: HostPort, timeout_s: float) -> tuple[HostPort, str]:
    """`timeout_s` is for all of the addresses together."""
    deadline = time.monotonic() + timeout_s
    failure: Exception = OSError(f"{address.host} has no address")
    for family, host in await asyncio.wait_for(_resolve(address), timeout_s):
        # A socket and no transport: a transport ends only in a later turn of the loop, which may have no later turn.
        with socket.socket(family, socket.SOCK_STREAM) as dialled:
            try:
                await asyncio.wait_for(_dial(dialled, (host, address.port)), max(0.01, deadline - time.monotonic()))
            except (OSError, asyncio.TimeoutError) as reason:
                failure = reason
                continue
            return HostPort(host, address.port), str(dialled.getsockname()[0])
    raise failure


async def _resolve(address: HostPort) -> list[tuple[int, str]]:
    """In a thread of Python's, not of libuv's: those would end a forked child with a crash."""
    look_up = partial(socket.getaddrinfo, address.host, address.port, type=socket.SOCK_STREAM)
    try:
        found = look_up(flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        found = await asyncio.get_running_loop().run_in_executor(None, look_up)
    return list(dict.fromkeys((int(entry[0]), str(entry[4][0])) for entry in found))


async def _dial(dialled: socket.socket, address: tuple[str, int]) -> None:
    """As the loop's sock_connect, which would resolve the address in a thread of libuv's."""
    loop = asyncio.get_running_loop()
    dialled.setblocking(False)
    error = dialled.connect_ex(address)
    if error == errno.EINPROGRESS:
        writable = asyncio.Event()
        loop.add_writer(dialled, writable.set)
        try:
            await writable.wait()
        finally:
            loop.remove_writer(dialled)
        error = dialled.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if error:
        raise OSError(error, os.strerror(error))


def listen_address(local: str, advertise: HostPort | None, interface: str | None) -> str:
    """The numeric address that the data plane binds: the chosen interface's, else an advertised one that is ours, else
    `local`. Raises InvalidArgument when `interface` matches nothing."""
    if interface is not None:
        return Selection(interface).choose(local)
    if advertise is not None and any(advertise.host == address for _, address in system.interface_addresses()):
        return advertise.host
    return local


def numeric(advertise: str) -> HostPort:
    """Reads `HOST[:PORT]` of `advertise=` into a numeric address; port 0 is any. May block on DNS."""
    try:
        address = addresses.parse(advertise, default_port=0)
    except InvalidArgument as failure:
        raise InvalidArgument(f"advertise: {failure}") from None
    try:
        found = addresses.resolve(address)[0]
    except OSError as failure:
        raise InvalidArgument(f"advertise: cannot resolve {address.host!r}: {failure}") from None
    if not can_be_dialled(found.host):
        raise InvalidArgument(f"advertise: {found.host} is no address of one host, so that nobody could dial it")
    return found
