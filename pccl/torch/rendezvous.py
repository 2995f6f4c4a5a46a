# SPDX-License-Identifier: MIT
"""How the processes of a torch group find one master: through the Store that torch made for them.

The first of them carries the master, and tells the others where it is. Must not know: groups, operations.

The one idea: every meeting has keys of its own in the store, since a program may end a group and make it again through
the same one. Each rank counts its meetings there, and the k-th of one meets the k-th of the others. All tell which host
they run on before the master chooses where it listens: nobody else can reach it where all share one host.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from pccl import addresses, system
from pccl.addresses import HostPort, Selection
from pccl.errors import InvalidArgument, MasterLost, OperationTimeout, PCCLError
from pccl.master import MasterNode

_LOOPBACK = "127.0.0.1"
_ELSEWHERE = ("192.0.2.1", 9)
"""An address of nobody (RFC 5737): the route to it is that to other hosts. Nothing is sent."""
_FAILED = "!"
"""What the address begins with where there is none, but a reason."""


class Meeting:
    """One meeting of `size` ranks. `store` is one of torch's, for this group alone."""

    def __init__(self, store: Any, rank: int, size: int, timeout_s: float) -> None:
        self._store, self._rank, self._size = store, rank, size
        self._timeout = timedelta(seconds=timeout_s)
        self._number = store.add(f"pccl/meetings/{rank}", 1)

    def host(self, heartbeat_timeout: float, interface: str | None) -> MasterNode:
        """Of rank 0: a running master whose address the others are told. Raises what its making raises."""
        try:
            local = self._all_on_this_host()
            node = MasterNode(
                str(HostPort(_listen_host(self._store, interface, local), 0)),
                heartbeat_timeout=heartbeat_timeout,
                founders=self._size,
            )
        except PCCLError as failure:
            self._store.set(self._key("master"), f"{_FAILED}{failure}")
            raise
        node.run()
        self._store.set(self._key("master"), node.address)
        return node

    def find(self) -> str:
        """Of the others: where the master is. Raises OperationTimeout, MasterLost."""
        self._tell_host()
        address = self._get("master", "rank 0 to say where the master is")
        if address.startswith(_FAILED):
            raise MasterLost(f"rank 0 has no master for the group: {address.removeprefix(_FAILED)}")
        return address

    def _all_on_this_host(self) -> bool:
        """Waits until all have told where they are."""
        self._tell_host()
        self._get("all here", f"all {self._size} ranks to come to the group")
        return bool(self._store.add(self._key(f"host/{system.host_id()}"), 0) == self._size)

    def _tell_host(self) -> None:
        self._store.add(self._key(f"host/{system.host_id()}"), 1)
        if self._store.add(self._key("here"), 1) == self._size:
            self._store.set(self._key("all here"), "yes")

    def _get(self, name: str, what: str) -> str:
        key = self._key(name)
        try:
            self._store.wait([key], self._timeout)
            value: bytes = self._store.get(key)
        except RuntimeError as failure:  # DistStoreError among them
            here = ""
            with contextlib.suppress(RuntimeError):
                here = f" ({self._store.add(self._key('here'), 0)} of {self._size} are here)"
            waited = f"rank {self._rank} waited {self._timeout.total_seconds():g} s for {what}{here}"
            raise OperationTimeout(f"{waited}: {str(failure).splitlines()[0]}") from None
        return value.decode()

    def _key(self, name: str) -> str:
        return f"pccl/{self._number}/{name}"


def _listen_host(store: Any, interface: str | None, local: bool) -> str:
    """Where the master listens, so that all ranks reach it."""
    if interface is not None:
        return Selection(interface).choose()
    if local:
        return _LOOPBACK
    own = [address for _, address in system.interface_addresses()]
    known = [address for address in _store_hosts(store) if not _is_loopback(address)]
    for address in known:
        if address in own:
            return address
    for target in [*((address, _ELSEWHERE[1]) for address in known), _ELSEWHERE]:
        if (source := _route(target)) and not _is_loopback(source):
            return source
    outward = [address for address in own if not _is_loopback(address)]
    if not outward:
        raise InvalidArgument("ranks run on other hosts, and this one has no address but loopback: pass interface=")
    return outward[0]


def _store_hosts(store: Any) -> Iterable[str]:
    """Numeric addresses of the host that serves a TCPStore; none for other stores."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    host = getattr(store, "host", None)
    if not isinstance(host, str) or not host:
        return ()
    try:
        return [it.host for it in addresses.resolve(HostPort(host, 0))]
    except OSError:
        return ()


def _route(target: tuple[str, int]) -> str:
    """The local address from which the system would send there; empty if there is no way."""
    family = socket.AF_INET6 if addresses.is_ipv6(target[0]) else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as asked:
            asked.connect(target)
            return str(asked.getsockname()[0])
    except OSError:
        return ""


def _is_loopback(address: str) -> bool:
    return address == "::1" or address.startswith("127.")
