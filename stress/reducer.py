# SPDX-License-Identifier: MIT
"""The peer that the stress scripts drive: it joins, all-reduces as told, checks every element, reports what it saw
when.

Contributions are those of `pccl.stress.values`, as tensor 0 of a step: a wrong sum, a missing or doubled contribution,
a chunk at the wrong place all show.
"""

from __future__ import annotations

import argparse
import faulthandler
import sys
import time
from typing import Literal

import pccl
from pccl.fleet import Line, Message, gather
from pccl.stress import values
from pccl.trace.record import Event, Operation

PROGRESS_OPERATIONS = 50


class Reducer:
    """Buffers of one size and a communicator."""

    def __init__(self, line: Line, comm: pccl.Communicator, serial: int, size_bytes: int) -> None:
        self._line = line
        self._comm = comm
        self._serial = serial
        self._buffers = values.tensor(0, size_bytes), values.tensor(0, size_bytes)
        self._source, self._other = self._buffers
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
        """All-reduces (the first `elements` where that is given) until a result of `until` members is there; PeerLost
        is answered by calling again, at once.

        Reports `outcomes`: of each call, in order, (world size, 0 where a peer was lost; begin and end, monotonic ns).
        """
        outcomes: list[tuple[int, int, int]] = []
        serials = command["serials"]
        self._source, self._other = (buffer[: command.get("elements")] for buffer in self._buffers)
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

    def do_end(self, command: Message) -> None:
        """How the last epoch that broke ended for the operation of tag 0 that was open then. Its `end`: its number,
        "aborted" or "committed", and how many microseconds its data had been done before the break (None: not yet).
        """
        engine = self._comm._engine
        assert engine is not None
        records = engine.trace()
        frozen = [it for it in records if isinstance(it, Event) and it.kind == "frozen"][-1]
        opened = [it for it in records if isinstance(it, Operation) and it.epoch == frozen.epoch and it.tag == 0]
        last = max(opened, key=lambda it: it.sequence, default=None)
        if last is None or last.ended_ns < frozen.at_ns:
            self._line.send(end=[-1, "between", None])
        else:
            ended = "aborted" if last.status else "committed"
            done = last.data_done_ns if last.data_done_ns and last.data_done_ns <= frozen.at_ns else None
            self._line.send(end=[last.sequence, ended, None if done is None else (frozen.at_ns - done) // 1000])

    def do_multiple(self, command: Message) -> None:
        """Rounds of all_reduce_multiple_with_retry on `tensors`, until one is of `survivors` alone.

        Reports `rounds`: of each, in order, the number of members in each tensor. Every tensor must be reduced, each
        with all survivors in it and nobody else but those who were there before.
        """
        tensors = [values.tensor(index, command["tensor_bytes"]) for index in range(command["tensors"])]
        survivors, everybody = set(command["survivors"]), set(command["serials"])
        rounds: list[list[int]] = []
        while not rounds or set(rounds[-1]) != {len(survivors)}:
            step = command["step"] + len(rounds)
            for index, tensor in enumerate(tensors):
                values.contribute(tensor, self._serial, step, index)
            self._comm.all_reduce_multiple_with_retry(tensors, max_in_flight=command["in_flight"])
            sizes = []
            for index, tensor in enumerate(tensors):
                took_part = values.members(tensor)
                if took_part is None or not survivors <= set(took_part) <= everybody:
                    self._line.send(wrong=f"tensor {index} of round {len(rounds)}: reduced over {took_part}")
                elif not values.is_sum(tensor, took_part, step, index):
                    self._line.send(wrong=f"tensor {index} of round {len(rounds)}: not the sum over {took_part}")
                else:
                    sizes.append(len(took_part))
            rounds.append(sizes)
        self._line.send(rounds=rounds)

    def do_stream(self, command: Message) -> None:
        """`operations` all_reduces in a row, each checked; says every so often how far it is."""
        self._source, self._other = self._buffers
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
    faulthandler.enable()
    parser = argparse.ArgumentParser()
    parser.add_argument("master")
    parser.add_argument("serial", type=int)
    parser.add_argument("bytes", type=int)
    parser.add_argument("--advertise", help="HOST:PORT of a relay before this peer")
    parser.add_argument("--connections", type=int, default=0, help="of each link; 0 lets pccl choose")
    options = parser.parse_args()
    line = Line.to_supervisor()
    shm: Literal["auto", "off"] = "auto" if options.advertise is None else "off"
    with pccl.Communicator(
        options.master, p2p_connection_pool_size=options.connections, advertise=options.advertise, shm=shm
    ) as comm:
        reducer = Reducer(line, comm, options.serial, options.bytes)
        line.send(ready=True)
        reducer.serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
