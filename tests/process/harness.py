# SPDX-License-Identifier: MIT
"""Real processes for tests: a master, and peers that run functions of the test's own module.

A test file holds both sides: `def reducing(line, address): ...` is what a peer process does, and
`run.peer(reducing)` starts one. They talk in JSON lines; every wait has a limit, and a peer that fails shows its
traceback in the test's failure.
"""

from __future__ import annotations

import faulthandler
import importlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import FunctionType, TracebackType
from typing import Any

import pccl
from pccl import fleet
from pccl.fleet import Child, Fleet, Line, Master

ROOT = Path(__file__).parents[2]
PATIENCE = float(os.environ.get("PCCL_TEST_PATIENCE", "1"))  # sanitizers make all slower
LIMIT_S = 30.0 * PATIENCE
fleet.MASTER_LIMIT_S *= PATIENCE


class Run:
    """A master (unless `master=False`) and its peers. Leaving the `with` block kills what still runs."""

    def __init__(
        self, folder: Path, *, master: bool = True, journal: bool = False, options: Sequence[str] = ()
    ) -> None:
        """`options` are further ones of `pccl master`."""
        self._folder = folder
        self._has_master = master
        self.master = Master(folder, folder / "journal" if journal else None, options=options)
        self._fleet = Fleet(folder)
        self._early: dict[str, list[dict[str, Any]]] = {}
        self._children: list[Child] = []

    def __enter__(self) -> Run:
        if self._has_master:
            self.master.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._fleet.close()
        self.master.kill()

    def peer(self, function: FunctionType, *arguments: str, address: str | None = None) -> Child:
        """Starts a process that calls `function(line, address, *arguments)`; `address` is the master's if not given."""
        name = f"peer{len(self._early)}"
        self._early[name] = []
        module = ".".join(Path(function.__code__.co_filename).relative_to(ROOT).with_suffix("").parts)
        command = ["-m", "tests.process.harness", module, function.__name__, address or self.master.address]
        child = self._fleet.start(name, [*command, *arguments], {"PYTHONPATH": str(ROOT)})
        self._children.append(child)
        return child

    def next(self, child: Child) -> dict[str, Any]:
        """The next message of that child. Messages of others wait for their turn; an end is of kind "ended"."""
        early = self._early[child.name]
        while not early:
            for _ in range(int(LIMIT_S)):  # second by second: one in which the whole machine stood still is not counted
                arrived = self._fleet.next(1.0)
                if arrived is not None:
                    break
            assert arrived is not None, f"{child.name} was silent for {LIMIT_S:.0f} s\n{self._stacks()}"
            sender, message = arrived
            self._early[sender.name].append(message if message is not None else {"kind": "ended"})
        return early.pop(0)

    def expect(self, child: Child, kind: str) -> dict[str, Any]:
        """The next message of that child, which must be of that kind."""
        message = self.next(child)
        assert message["kind"] == kind, (
            f"{child.name}: {message} instead of {kind!r}, exit {child.exit_code}\n{self.log(child)}"
        )
        return message

    def next_of(self, child: Child, kind: str) -> dict[str, Any]:
        """The next message of that kind; others of that child are skipped, but for its failure and its end."""
        while (message := self.next(child))["kind"] not in (kind, "failed", "ended"):
            pass
        assert message["kind"] == kind, f"{child.name}: {message} instead of {kind!r}\n{self.log(child)}"
        return message

    def ended(self, child: Child) -> int:
        """Waits for the child's end: its exit code."""
        self.expect(child, "ended")
        assert child.exit_code is not None
        return child.exit_code

    def log(self, child: Child) -> str:
        """What the child wrote to stderr."""
        return (self._folder / f"{child.name}.log").read_text()

    def _stacks(self) -> str:
        """What all children were doing; it ends them."""
        for child in self._children:
            child.kill(signal.SIGABRT)
            child.kill(signal.SIGCONT)
        for child in self._children:
            child.process.wait(LIMIT_S)
        return "".join(f"--- {child.name}\n{self.log(child)}\n" for child in self._children)


class Stopwatch:
    """Seconds from the begin of its `with` block, without those in which the machine let this process wait: it counts
    short sleeps, which end late when the processor is others' or all is stopped. For the process that tests another."""

    TICK_S = 0.01

    def __init__(self) -> None:
        self._ticks = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._count, daemon=True)

    def __enter__(self) -> Stopwatch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    @property
    def seconds(self) -> float:
        """So far."""
        return self._ticks * self.TICK_S

    def _count(self) -> None:
        while not self._over.wait(self.TICK_S):
            self._ticks += 1


def gather(comm: pccl.Communicator, peers: int) -> None:
    """Admits newcomers until `peers` are there. Only for a start: it asks again and again."""
    while comm.group_world_size < peers:
        if comm.are_peers_pending():
            comm.update_topology()


def join(address: str, peers: int, **options: Any) -> pccl.Communicator:
    """A connected communicator in a group of `peers`."""
    comm = pccl.Communicator(address, **options)
    comm.connect()
    gather(comm, peers)
    return comm


def named_segments() -> set[str]:
    """What lies in the folder of named shared memory, of whomever."""
    return set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()


def main() -> None:
    """The peer's process. An exception goes to the test and is the exit code 1."""
    faulthandler.enable()
    line = Line.to_supervisor()
    module, function, *arguments = sys.argv[1:]
    try:
        getattr(importlib.import_module(module), function)(line, *arguments)
    except SystemExit:
        raise
    except BaseException as failure:
        line.send(kind="failed", error=type(failure).__name__, text=str(failure), pid=os.getpid())
        traceback.print_exc()
        sys.exit(1)


if __name__ == "__main__":
    main()
