# SPDX-License-Identifier: MIT
"""The peer process of fault tests: does what its test says, one command at a time, and reports what it saw.

It knows nothing of the faults that are done to it. Every result is checked where it arises; a wrong one fails the test
with this process's traceback. See `Team` for the other side.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import numpy as np

import pccl
from pccl import system
from pccl.fleet import Line
from pccl.stress import values
from pccl.stress.usage import release, usage
from pccl.stress.workload import COLLECTIVES, Turn, Work
from tests.process.harness import gather

IDLE_S = 0.25
SIGNAL_S = 0.2


def serving(line: Line, address: str, number: str, options: str) -> None:
    """Until it is told to stop, or its test is over. `options` is a dict of the Communicator's, as text, and perhaps
    "host", a number that stands for the host it is on."""
    chosen = eval(options, {})
    if host := chosen.pop("host", None):
        system.host_id = lambda: host
    member = Member(line, address, int(number), chosen)
    while True:
        try:
            # In short waits: a signal that comes just before one begins is not seen by Python until the next.
            while (command := line.receive(timeout_s=SIGNAL_S)) is None:
                pass
        except EOFError:
            return
        if command["kind"] == "stop":
            return
        getattr(member, "do_" + command.pop("kind"))(**command)


class Member:
    """A communicator, a number that no other member ever has, and a state to share."""

    def __init__(self, line: Line, address: str, number: int, options: dict[str, Any]) -> None:
        self._line = line
        self._address = address
        self._number = number
        self._options = options
        self._comm = pccl.Communicator(address, **options)
        self._flying: list[pccl.Handle] = []
        self._state = np.zeros(1 << 18, np.int64)
        self._shared = pccl.SharedState([pccl.TensorInfo.from_numpy(self._state, "state")])
        line.send(kind="up")

    # ------------------------------------------------------------ life

    def do_connect(self, peers: int) -> None:
        """Becomes one of so many members; reports what it failed with otherwise."""
        self._line.send(kind="connecting")
        try:
            self._comm.connect()
            gather(self._comm, peers)
        except pccl.PCCLError as failure:
            self._failed(failure)
        else:
            control = self._comm._control
            assert control is not None
            self._line.send(kind="connected", id=control.peer.hex(), epoch=self._comm.epoch)

    def do_admit(self, peers: int) -> None:
        """Lets newcomers in until there are so many."""
        gather(self._comm, peers)
        self._line.send(kind="admitted", epoch=self._comm.epoch)

    def do_rejoin(self, peers: int) -> None:
        """A new life for one that was expelled."""
        self._comm.close()
        self._comm = pccl.Communicator(self._address, **self._options)
        self.do_connect(peers)

    def do_leave(self) -> None:
        self._comm.close()
        self._line.send(kind="left")

    def do_arm(self, how: str) -> None:
        """SIGUSR1 makes it end: by "close" in good order, or by "exit" without any."""

        def end(signal_number: int, frame: object) -> None:
            if how == "close":
                self._comm.close()
            os._exit(0)

        signal.signal(signal.SIGUSR1, end)
        self._line.send(kind="armed")

    # ------------------------------------------------------------ work

    def do_run(self, collective: str, step: int, elements: int, in_place: bool, more: dict[str, Any]) -> None:
        """Calls until it succeeds, and where operations are deferred, until the step does, whose in-place inputs are
        then made anew. Reports `outcome`: why the attempts before were lost, and the result."""
        lost: list[str] = []
        while True:
            work, settling = COLLECTIVES[collective](self._turn(step), elements, in_place, **more), False
            try:
                info = work.call()
                if settling := self._options.get("commit") == "deferred":
                    self._comm.commit()
            except pccl.PeerLost as loss:
                assert settling or work.intact(), "the input did not survive"
                lost.append(str(loss))
            except pccl.PCCLError as failure:
                assert work.intact(), "the input did not survive"
                self._failed(failure)
                return
            else:
                members = work.members(info)
                self._line.send(
                    kind="outcome",
                    lost=lost,
                    members=members,
                    world_size=info.world_size,
                    epoch=info.epoch,
                    algorithm=info.algorithm,
                )
                return

    def do_fly(self, elements: int, count: int) -> None:
        """Starts one large all_reduce and more small ones, and does not wait for them."""
        sizes = [elements, *[1000] * (count - 1)]
        self._flying = [
            self._comm.all_reduce_async(np.ones(size, np.float32), tag=tag) for tag, size in enumerate(sizes)
        ]
        self._line.send(kind="flying")

    def do_land(self) -> None:
        """Waits for all that fly: the name and text of what each failed with, empty for success."""
        ends = []
        for handle in self._flying:
            try:
                handle.wait()
            except pccl.PCCLError as failure:
                ends.append([type(failure).__name__, str(failure)])
            else:
                ends.append(["", ""])
        self._flying.clear()
        self._line.send(kind="landed", ends=ends)

    def do_differ(self) -> None:
        """One all_reduce of 12 elements on rank 0 and of 1 on the others: reports what it failed with."""
        try:
            self._comm.all_reduce(np.ones(1 if self._comm.rank else 12, np.float32))
        except pccl.PCCLError as failure:
            self._failed(failure)
        else:
            self._line.send(kind="reduced")

    def do_stream(self, steps: int) -> None:
        """So many small all_reduces, each of which must succeed at once, in one epoch."""
        for step in range(steps):
            work = self._small(step)
            work.members(work.call())
        self._line.send(kind="streamed", epoch=self._comm.epoch)

    def do_round(self) -> None:
        """A step as users write it: a small all_reduce until it succeeds, then newcomers are let in."""
        lost: list[str] = []
        while True:
            work = self._small(1)
            try:
                info = work.call()
                break
            except pccl.PeerLost as loss:
                lost.append(str(loss))
        members = work.members(info)
        pending = self._comm.are_peers_pending()
        if pending:
            self._comm.update_topology()
        self._line.send(kind="round", lost=lost, members=members, epoch=info.epoch, admitted=pending)

    def do_vote(self) -> None:
        """One joint call without effect."""
        self._line.send(kind="voting")
        try:
            pending = self._comm.are_peers_pending()
        except pccl.PCCLError as failure:
            self._failed(failure)
        else:
            self._line.send(kind="voted", pending=pending, world_size=self._comm.group_world_size)

    def do_prepare(self, revision: int) -> None:
        """Sets the state to what it is after so many steps, or to nonsense for -1."""
        if revision >= 0:
            values.gradient(self._state, 0)
            self._state[:] = self._state * revision + revision * (revision + 1) // 2
        else:
            self._state[:] = 7
        self._shared.revision = max(revision, 0)
        self._line.send(kind="prepared")

    def do_sync(self) -> None:
        """Reports `synced` with the revision, after a check that the state is the one of that revision."""
        self._line.send(kind="syncing")
        try:
            info = self._comm.sync_shared_state(self._shared)
        except pccl.PCCLError as failure:
            self._failed(failure)
        else:
            assert values.is_state(self._state, self._shared.revision), "the state is not that of its revision"
            self._line.send(
                kind="synced", revision=self._shared.revision, rx=info.rx_bytes, digest=self._shared.hexdigest()
            )

    # ------------------------------------------------------------ what it takes

    def do_footprint(self) -> None:
        """Descriptors, threads, resident bytes, shared segments, and the share of a core that it uses while it has
        nothing to do."""
        release()
        begun, used = time.monotonic(), time.process_time()
        message = self._line.receive(timeout_s=IDLE_S)
        assert message is None, message
        cpu = (time.process_time() - used) / (time.monotonic() - begun)
        with open("/proc/self/maps") as maps:
            segments = sum("/memfd:pccl" in line for line in maps)
        self._line.send(kind="footprint", segments=segments, cpu=cpu, **vars(usage()))

    def do_transports(self) -> None:
        """How its bytes get to the others."""
        self._line.send(kind="transports", names=sorted(self._comm.transports.values()))

    def _small(self, step: int) -> Work:
        """A small all_reduce in place."""
        return COLLECTIVES["all_reduce"](self._turn(step), 1000, True)

    def _turn(self, step: int) -> Turn:
        return Turn(self._comm, self._number, step)

    def _failed(self, failure: pccl.PCCLError) -> None:
        self._line.send(kind="error", error=type(failure).__name__, text=str(failure))
