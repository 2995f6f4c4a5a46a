# SPDX-License-Identifier: MIT
"""The supervisor's side of the stress scripts: a master and a number of `reducer` processes, some of which get killed.

Every answer has a deadline; a silence or a failure ends the script with the name of who it was.
"""

from __future__ import annotations

import signal
from pathlib import Path
from types import TracebackType
from typing import Any

from pccl.fleet import Child, Fleet, Master, Message
from pccl.stress.relay import Relay

ANSWER_LIMIT_S = 60
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class Failed(Exception):
    """What the stress was to find: a wrong number, a split verdict, a hang, an error that should not be."""


class Crew:
    """All peers by serial number, which are never used again. A context manager."""

    def __init__(
        self,
        size_bytes: int,
        journal: Path | None = None,
        relay: Relay | None = None,
        connections: int = 0,
        **faults: Any,
    ) -> None:
        """With a relay, all that the peers say to each other goes through it and meets its `faults` (`relay_faults`).
        `connections` of each link, 0 lets pccl choose."""
        self.master = Master(journal=journal)
        self._fleet = Fleet()
        self._size_bytes = size_bytes
        self._relay = relay
        self._connections = connections
        self._faults = faults
        self._next_serial = 0
        self.peers: dict[int, Child] = {}

    def __enter__(self) -> Crew:
        self.master.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._fleet.close()
        self.master.kill()

    @property
    def serials(self) -> list[int]:
        """Of the peers that live."""
        return list(self.peers)

    def recruit(self, count: int) -> list[int]:
        """Starts processes that do not connect yet; returns when they are ready."""
        serials = self.call_up(count)
        self.answers("ready", serials)
        return serials

    def call_up(self, count: int) -> list[int]:
        """Starts processes and does not wait for them."""
        serials = list(range(self._next_serial, self._next_serial + count))
        self._next_serial += count
        for serial in serials:
            program = str(Path(__file__).with_name("reducer.py"))
            arguments = [program, self.master.address, str(serial), str(self._size_bytes)]
            arguments += ["--connections", str(self._connections)]
            if self._relay is not None:
                link = self._relay.before_peer()
                link.set(**self._faults)
                arguments += ["--advertise", link.address]
            self.peers[serial] = self._fleet.start(f"peer {serial}", arguments, ONE_THREAD)
        return serials

    def tell(self, serials: list[int], /, **command: Any) -> None:
        """The same command for several peers."""
        for serial in serials:
            self.peers[serial].tell(**command)

    def doom(self, serial: int) -> Child:
        """Takes a peer off the list: somebody is going to kill it, and what it says until then counts for nothing."""
        return self.peers.pop(serial)

    def kill(self, serial: int) -> int:
        """SIGKILL. The monotonic time in nanoseconds just before."""
        return self.peers.pop(serial).kill()

    def answers(self, key: str, serials: list[int]) -> dict[int, Any]:
        """The next `key` of each of the peers. Raises Failed on silence, failure, a wrong result, an unexpected end."""
        found: dict[int, Any] = {}
        while len(found) < len(serials):
            serial, message = self.next()
            if serial in serials and key in message:
                found[serial] = message[key]
        return found

    def next(self) -> tuple[int, Message]:
        """The next message of a living peer. Raises Failed."""
        while True:
            arrived = self._arrived()
            if arrived is None:
                for child in self.peers.values():
                    child.kill(signal.SIGABRT)  # shows on stderr what it was doing
                raise Failed(f"a hang: nobody said anything for {ANSWER_LIMIT_S} s")
            child, message = arrived
            serial = next((serial for serial, peer in self.peers.items() if peer is child), None)
            if serial is None:
                continue
            if message is None:
                raise Failed(f"{child.name} ended with exit status {child.exit_code}")
            if "failed" in message or "wrong" in message:
                raise Failed(f"{child.name}: {message.get('failed') or 'wrong result in ' + message['wrong']}")
            return serial, message

    def _arrived(self) -> tuple[Child, Message | None] | None:
        """Waits second by second, so that the time in which the whole machine stood still is not counted."""
        for _ in range(ANSWER_LIMIT_S):
            arrived = self._fleet.next(1.0)
            if arrived is not None:
                return arrived
        return None
