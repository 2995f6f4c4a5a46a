# SPDX-License-Identifier: MIT
"""One peer under stress: `python -m pccl.stress.worker ORDERS`. A training loop that a user of pccl would write, with
values that are known beforehand, and a line to the supervisor on which it reports all that it sees.

`_train` is worth reading first. A step is one concurrent operation per tensor, and an all_reduce of the state's
gradient. Every few steps all members prove that their states are equal, let newcomers in, and carry on. Whoever was
expelled joins again, as the same process, with the state it had.

Must not know: which faults there are, and what others make of its reports.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import queue
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

import pccl
from pccl import retry
from pccl.fleet import Line, Message
from pccl.retry import Started
from pccl.stress import program, values
from pccl.stress.operation import Operation
from pccl.stress.usage import usage
from pccl.stress.workload import Memory

COMPANY_S = 0.05


@dataclass(frozen=True)
class Orders:
    """What the supervisor gives a worker on its way; `master` as this worker reaches it, sizes in bytes, `trace` where
    its flight record goes when it is asked to explain itself."""

    number: int
    master: str
    advertise: str | None
    shm: Literal["auto", "off"]
    seed: int
    tensors: list[int]
    collectives: list[str]
    state: int
    in_flight: int
    steps_per_sync: int
    pause_ms: float
    connections: int
    trace: str | None


class Reporter:
    """The line to the supervisor: reports from any thread, commands by a thread of its own."""

    def __init__(self, line: Line, trace: str | None) -> None:
        self._line = line
        self._trace = trace
        self._lock = threading.Lock()
        self.commands: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self.comm: pccl.Communicator | None = None

    def start(self) -> None:
        """From now on commands are read."""
        threading.Thread(target=self._read, name="stress-line", daemon=True).start()

    def send(self, kind: str, **fields: Any) -> None:
        """A report, with the time of now."""
        with self._lock:
            self._line.send(kind=kind, at_ns=time.monotonic_ns(), **fields)

    def _read(self) -> None:
        with contextlib.suppress(EOFError):
            while True:
                message = self._line.receive()
                assert message is not None
                if message["do"] == "explain":
                    self._explain()
                else:
                    self.commands.put(message)

    def _explain(self) -> None:
        """What hangs, if anything does: stacks go to the log, what the control plane waits for to the supervisor, what
        the data plane did to a file for `pccl trace`."""
        faulthandler.dump_traceback(sys.stderr)
        comm = self.comm
        try:
            if comm is not None and self._trace is not None:
                comm.dump_trace(self._trace)
            text = "no communicator" if comm is None else comm.explain()
        except (pccl.PCCLError, queue.Empty) as failure:
            text = f"{type(failure).__name__}: {failure}"
        self.send("explained", text=text or "waits for nobody in the control plane")


class Watched:
    """A handle that tells when a peer was lost in its operation."""

    def __init__(self, worker: Worker, index: int, handle: pccl.Handle) -> None:
        self._worker = worker
        self._index = index
        self._handle = handle

    def wait(self) -> pccl.ReduceInfo:
        """As the handle's."""
        try:
            return self._handle.wait()
        except pccl.PeerLost as loss:
            self._worker.lost(self._index, str(loss))
            raise


class Worker:
    """Buffers, the shared state, and the loop."""

    def __init__(self, orders: Orders, reporter: Reporter) -> None:
        self._orders = orders
        self._reporter = reporter
        self._memories = [Memory() for _ in orders.tensors]
        self._gradient = np.zeros(orders.state // 8, np.int64)
        self._weights = np.zeros(orders.state // 8, np.int64)
        self._steps = np.zeros(1, np.int64)
        tensors = {"weights": self._weights, "steps": self._steps}
        self._state = pccl.SharedState([pccl.TensorInfo.from_numpy(array, name) for name, array in tensors.items()])
        self._agreed = 0
        self._retries = 0
        self._leaving = self._finishing = False

    # ------------------------------------------------------------ the life of a peer

    def run(self) -> None:
        """Until the supervisor says that it is over."""
        over = False
        while not over:
            comm = pccl.Communicator(
                self._orders.master,
                p2p_connection_pool_size=self._orders.connections,
                advertise=self._orders.advertise,
                shm=self._orders.shm,
            )
            try:
                with comm:
                    comm.connect()
                    self._reporter.comm = comm
                    self._reporter.send("joined", peer=comm.peer_id, epoch=comm.epoch, world=comm.group_world_size)
                    over = self._train(comm)
                    if over and not self._leaving:
                        self._wait_for_the_end(comm)
            except pccl.Expelled as why:
                self._reporter.send("expelled", why=str(why))
            finally:
                self._reporter.comm = None

    def _train(self, comm: pccl.Communicator) -> bool:
        """True when it is over, for all or for us."""
        while True:
            self._find_company(comm)
            if self._leaving:
                return True
            self._synchronise(comm)
            try:
                for _ in range(self._orders.steps_per_sync):
                    self._step(comm)
                    self._obey()
                    if self._leaving:
                        return True
                over = self._agree_to_finish(comm)
            except pccl.TooFewPeers:
                self._reporter.send("alone")
                continue
            if over:
                self._synchronise(comm)
                return True
            if comm.are_peers_pending():
                comm.update_topology()

    def _find_company(self, comm: pccl.Communicator) -> None:
        while comm.group_world_size < 2 and not self._leaving:
            time.sleep(COMPANY_S)
            comm.update_topology()
            self._obey()

    def _wait_for_the_end(self, comm: pccl.Communicator) -> None:
        self._reporter.send("finished", revision=self._agreed, steps=int(self._steps[0]), **self._sample(comm))
        while (command := self._reporter.commands.get())["do"] != "end":
            if command["do"] == "idle":
                begin, cpu = time.monotonic(), time.process_time()
                with contextlib.suppress(queue.Empty):
                    command = self._reporter.commands.get(timeout=command["seconds"])
                self._reporter.send("idle", wall_s=time.monotonic() - begin, cpu_s=time.process_time() - cpu)
                if command["do"] == "end":
                    return

    def _obey(self) -> None:
        """Takes in what the supervisor said meanwhile."""
        with contextlib.suppress(queue.Empty):
            while True:
                command = self._reporter.commands.get_nowait()
                self._leaving = self._leaving or command["do"] == "leave"
                self._finishing = self._finishing or command["do"] == "finish"

    # ------------------------------------------------------------ what it does together with others

    def _step(self, comm: pccl.Communicator) -> None:
        """One step, reported with what the ballots and the elements of its results say."""
        step = int(self._steps[0]) + 1
        operations = self._operations(comm, step)
        values.gradient(self._gradient, step)
        self._retries = 0
        starts: list[Callable[[], Started]] = [one.start for one in operations]
        starts.append(partial(self._average, comm, len(operations)))
        begin_ns, cpu_ns = time.monotonic_ns(), time.process_time_ns()
        retry.until_done(starts, self._orders.in_flight)
        end_ns, cpu_ns = time.monotonic_ns(), time.process_time_ns() - cpu_ns
        tensors = [one.report() for one in operations]
        self._weights += self._gradient
        self._steps += 1
        self._state.revision = self._agreed + 1
        self._reporter.send(
            "step",
            step=step,
            begin_ns=begin_ns,
            end_ns=end_ns,
            cpu_ns=cpu_ns,
            epoch=comm.epoch,
            retries=self._retries,
            tensors=tensors,
            faults=[fault for one in operations for fault in one.faults],
        )
        time.sleep(self._orders.pause_ms / 1000)

    def _operations(self, comm: pccl.Communicator, step: int) -> list[Operation]:
        """Ready to start."""
        orders, made = self._orders, []
        for index, (size, memory) in enumerate(zip(orders.tensors, self._memories, strict=True)):
            task = program.task(orders.seed, step, index, size, orders.collectives)
            made.append(Operation(comm, task, orders.number, step, index, memory, self.lost))
            made[-1].prepare()
        return made

    def _average(self, comm: pccl.Communicator, tag: int) -> Watched:
        handle = comm.all_reduce_async(self._gradient, self._gradient, op=pccl.ReduceOp.AVG, tag=tag)
        return Watched(self, tag, handle)

    def lost(self, index: int, why: str) -> None:
        """A peer was lost in the operation of a tensor; it will be repeated."""
        self._retries += 1
        self._reporter.send("lost", tensor=index, why=why)

    def _synchronise(self, comm: pccl.Communicator) -> None:
        begin_ns = time.monotonic_ns()
        info = comm.sync_shared_state(self._state)
        end_ns = time.monotonic_ns()
        self._agreed = info.revision
        self._reporter.send(
            "synced",
            begin_ns=begin_ns,
            end_ns=end_ns,
            revision=info.revision,
            world=info.world_size,
            steps=int(self._steps[0]),
            right=values.is_state(self._weights, int(self._steps[0])),
            received_bytes=info.rx_bytes,
            **self._sample(comm),
        )

    def _agree_to_finish(self, comm: pccl.Communicator) -> bool:
        """True on all members once any of them was told to: a decision that is reduced cannot differ."""
        wish = np.array([self._finishing], np.int32)
        while True:
            try:
                comm.all_reduce(wish, op=pccl.ReduceOp.MAX)
                return bool(wish[0])
            except pccl.PeerLost as loss:
                self.lost(-1, str(loss))

    @staticmethod
    def _sample(comm: pccl.Communicator) -> dict[str, int]:
        """What must not grow."""
        return {"epoch": comm.epoch, "links": len(comm.transports), **vars(usage())}


def main() -> int:
    """One worker on the line of stdin and stdout. Exit status 2: it met an error that nothing justifies."""
    faulthandler.enable()
    orders = Orders(**json.loads(sys.argv[1]))
    reporter = Reporter(Line.to_supervisor(), orders.trace)
    worker = Worker(orders, reporter)
    reporter.start()
    try:
        worker.run()
    except pccl.PCCLError as failure:
        reporter.send("failed", error=type(failure).__name__, text=str(failure))
        faulthandler.dump_traceback(sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
