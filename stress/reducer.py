# SPDX-License-Identifier: MIT
"""The peer that the stress scripts drive: it joins, all-reduces as told, checks every element, reports what it saw
when.

Contributions are those of `pccl.stress.values`, as tensor 0 of a step: a wrong sum, a missing or doubled contribution,
a chunk at the wrong place all show.
"""

from __future__ import annotations

import argparse
import sys
import time

import pccl
from pccl.fleet import Line, Message, gather
from pccl.stress import values

PROGRESS_OPERATIONS = 50


class Reducer:
    """Buffers of one size and a communicator."""

    def __init__(self, line: Line, comm: pccl.Communicator, serial: int, size_bytes: int) -> None:
        self._line = line
        self._comm = comm
        self._serial = serial
        self._source = values.tensor(0, size_bytes)
        self._other = values.tensor(0, size_bytes)
        self._result = self._source

    def serve(self) -> None:
        """Does what the supervisor says until it says stop."""
        while (command := self._line.receive()) is not None and command["do"] != "stop":
            try:
                getattr(self, "do_" + command["do"])(command)
            except pccl.PCCLError as failure:
                self._line.send(failed=f"{type(failure).__name__}: {failure}")

    def do_gather(self, command: Message) -> None:
        """Joins and waits until the group has `peers` members."""
        self._comm.connect()
        gather(self._comm, command["peers"])
        self._line.send(gathered=self._comm.group_world_size)

    def do_admit(self, command: Message) -> None:
        """Lets newcomers in until the group has `peers` members."""
        gather(self._comm, command["peers"])
        self._line.send(gathered=self._comm.group_world_size)

    def do_reduce(self, command: Message) -> None:
        """All-reduces until a result of `until` members is there; PeerLost is answered by calling again, at once.

        Reports `outcomes`: of each call, in order, (world size, 0 where a peer was lost; begin and end, monotonic ns).
        """
        outcomes: list[tuple[int, int, int]] = []
        serials = command["serials"]
        self._fill(command["step"])
        self._result = self._source if command["in_place"] else self._other
        self._line.send(started=True)
        while not outcomes or outcomes[-1][0] != command["until"]:
            begin_ns = time.monotonic_ns()
            try:
                world_size = self._comm.all_reduce(self._source, self._result, op=pccl.ReduceOp.SUM).world_size
            except pccl.PeerLost:
                world_size = 0
            outcomes.append((world_size, begin_ns, time.monotonic_ns()))
            if world_size == len(serials):
                if not self._is_right(command["step"], serials):
                    self._line.send(wrong=f"step {command['step']} with all members")
                self._fill(command["step"])
        self._line.send(outcomes=outcomes)

    def do_check(self, command: Message) -> None:
        """Is the last result exactly the sum over `serials`, and the input, where it is another buffer, as it was?"""
        right = self._is_right(command["step"], command["serials"])
        if self._result is not self._source:
            right = right and values.is_contribution(self._source, self._serial, command["step"], 0)
        self._line.send(right=right)

    def do_stream(self, command: Message) -> None:
        """`operations` all_reduces in a row, each checked; says every so often how far it is."""
        self._result = self._other
        for step in range(1, command["operations"] + 1):
            self._fill(step)
            self._comm.all_reduce(self._source, self._result, op=pccl.ReduceOp.SUM)
            if not self._is_right(step, command["serials"]):
                self._line.send(wrong=f"step {step}")
            if step % PROGRESS_OPERATIONS == 0:
                self._line.send(reached=step)

    def _fill(self, step: int) -> None:
        values.contribute(self._source, self._serial, step, 0)

    def _is_right(self, step: int, serials: list[int]) -> bool:
        took_part = values.members(self._result)
        return took_part == sorted(serial % values.SLOTS for serial in serials) and values.is_sum(
            self._result, serials, step, 0
        )


def main() -> int:
    """One peer on the line of stdin and stdout."""
    parser = argparse.ArgumentParser()
    parser.add_argument("master")
    parser.add_argument("serial", type=int)
    parser.add_argument("bytes", type=int)
    options = parser.parse_args()
    line = Line.over_stdio()
    with pccl.Communicator(options.master) as comm:
        reducer = Reducer(line, comm, options.serial, options.bytes)
        line.send(ready=True)
        reducer.serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
