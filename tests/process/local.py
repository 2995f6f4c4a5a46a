# SPDX-License-Identifier: MIT
"""Whole runs in one process, a thread per member: for what needs no process of its own, as it starts in no time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

import pccl
from tests.process.harness import LIMIT_S, gather

T = TypeVar("T")


class Local:
    """A master and `peers` members, by rank. A context manager."""

    def __init__(self, peers: int, **options: Any) -> None:
        self._node = pccl.MasterNode("127.0.0.1:0")
        self._node.run()
        self.address = self._node.address
        self.comms = [pccl.Communicator(self.address, **{"min_world_size": 1, **options}) for _ in range(peers)]

    def __enter__(self) -> Local:
        try:
            self.all(self._join)
        except BaseException:
            self.close()
            raise
        self.comms.sort(key=lambda comm: comm.rank)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for comm in self.comms:
            comm.close()
        self._node.destroy()

    def all(self, call: Callable[[pccl.Communicator], T]) -> list[T]:
        """`call` on all members at once: the results by rank. Raises the first one's failure."""
        return self.each([call] * len(self.comms))

    def each(self, calls: list[Callable[[pccl.Communicator], T]]) -> list[T]:
        """One call for each member, all at once: the results by rank. Raises the first one's failure."""
        results: dict[int, T] = {}
        failures: list[BaseException] = []

        def work(rank: int) -> None:
            try:
                results[rank] = calls[rank](self.comms[rank])
            except BaseException as failure:
                failures.append(failure)

        threads = [threading.Thread(target=work, args=(rank,)) for rank in range(len(calls))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(0 if failures else LIMIT_S)  # perhaps it waits for the one that failed
            if thread.is_alive() and not failures:
                raise AssertionError("a member has not come back")
        if failures:
            raise failures[0]
        return [results[rank] for rank in range(len(calls))]

    def failures(self, call: Callable[[pccl.Communicator], object], error: type[pccl.PCCLError]) -> list[str]:
        """As `all`, where the call has to fail on every member: the texts by rank."""
        return self.refused([call] * len(self.comms), error)

    def refused(self, calls: list[Callable[[pccl.Communicator], object]], error: type[pccl.PCCLError]) -> list[str]:
        """As `each`, where every call has to fail: the texts by rank."""

        def expect(call: Callable[[pccl.Communicator], object]) -> Callable[[pccl.Communicator], str]:
            def caught(comm: pccl.Communicator) -> str:
                try:
                    call(comm)
                except error as failure:
                    return str(failure)
                raise AssertionError(f"no {error.__name__}")

            return caught

        return self.each([expect(call) for call in calls])

    def _join(self, comm: pccl.Communicator) -> None:
        comm.connect()
        gather(comm, len(self.comms))


def at_once(calls: list[Callable[[], object]]) -> list[object]:
    """Makes each call in a thread of its own: what they returned. Raises what one raised."""
    outcomes: list[object] = [None] * len(calls)
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            outcomes[number] = calls[number]()
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return outcomes


def outcome(call: Callable[[], object]) -> str:
    """The name of what it raises, "" for nothing."""
    try:
        call()
    except pccl.PCCLError as failure:
        return type(failure).__name__
    return ""


def joined(address: str, groups: list[int], peers: int, **options: Any) -> list[pccl.Communicator]:
    """One communicator per entry, `peers` of each group. An option that is a list has a value for each."""

    def own(number: int) -> dict[str, Any]:
        return {name: it[number] if isinstance(it, list) else it for name, it in options.items()}

    comms = [pccl.Communicator(address, group, min_world_size=1, **own(n)) for n, group in enumerate(groups)]

    def join(comm: pccl.Communicator) -> None:
        comm.connect()
        while comm.global_world_size < len(groups) or comm.group_world_size < peers:
            if comm.are_peers_pending():
                comm.update_topology()

    at_once([partial(join, comm) for comm in comms])
    return comms


def close(comms: list[pccl.Communicator]) -> None:
    at_once([comm.close for comm in comms])
