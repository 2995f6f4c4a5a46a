#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How long a peer is away when it leaves and comes back, while the master has other things to do.

Some peers work in steps without a pause: they let newcomers in and all-reduce. One of them leaves and is back at once,
again and again, in one of three ways:

    closed     it closes its communicator and makes a new one, in the same process
    replaced   SIGKILL, and a process that waits ready takes its place
    restarted  SIGKILL, and a new process is started

The master is kept busy in one of these ways meanwhile:

    quiet      by nothing but the steps
    voting     every step makes twenty joint calls
    crowded    more peers, in a group of their own; they make all joint calls, too
    besieged   two processes come to yet another group and are gone after 50 ms, let in or not, all the time
    sharing    every step synchronises a shared state that every step changes, and that the newcomer has to fetch

Times are from the moment when it left. `ready`: the new process is started and has imported all; `in`: `connect` has
returned; `works`: it has the right result of an all_reduce with all members. The exit status is 0 only if every return
took less than --limit-s from `ready` to `works`.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from types import TracebackType

import numpy as np

import pccl
from pccl.fleet import Child, Fleet, Line, Master, Message, gather

ELEMENTS = 1000
VOTES = 20
CROWD = 8
STAY_S = 0.05
CROWD_GROUP, SIEGE_GROUP = 1, 2
SILENCE_LIMIT_S = 120.0
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
WAYS = ("closed", "replaced", "restarted")
LOADS = ("quiet", "voting", "crowded", "besieged", "sharing")


class Failed(Exception):
    """A wrong number, a silence, an end that should not be."""


# ---------------------------------------------------------------------------------------------- the peers


class Stepper:
    """A member of the run that works in steps. All members of one group do the same in each."""

    def __init__(self, address: str, load: str, group: int, state_bytes: int) -> None:
        self._address = address
        self._group = group
        self._votes = VOTES if load == "voting" else 1
        self._state = np.zeros(state_bytes // 8, np.int64)
        self._shared = None
        if load == "sharing" and group == 0:
            self._shared = pccl.SharedState([pccl.TensorInfo.from_numpy(self._state, "state")])
        self.comm = pccl.Communicator(address, group, min_world_size=1)

    def renew(self) -> None:
        """Leaves; `comm` is another one afterwards."""
        self.comm.close()
        self.comm = pccl.Communicator(self._address, self._group, min_world_size=1)

    def let_in(self) -> None:
        """The first half of a step. Who has just been let in begins with the other one."""
        for _ in range(self._votes - 1):
            self.comm.are_peers_pending()
        if self.comm.are_peers_pending():
            self.comm.update_topology()

    def work(self) -> int:
        """The second half of a step: the members that took part."""
        if self._shared is not None:
            self.comm.sync_shared_state(self._shared)
            self._state += 1
            self._shared.push_revision()
        x = np.ones(ELEMENTS, np.float32)
        while True:
            try:
                members = self.comm.all_reduce(x).world_size
            except pccl.PeerLost:
                continue
            if not (x == members).all():
                raise Failed(f"the sum of {members} ones is {x[0]}")
            return members


def stay(line: Line, stepper: Stepper, peers: int) -> None:
    """Steps until it is told to stop."""
    stepper.comm.connect()
    gather(stepper.comm, peers)
    line.send(kind="gathered")
    while line.receive(timeout_s=0) is None:
        stepper.work()
        stepper.let_in()


def come_and_go(line: Line, stepper: Stepper, peers: int) -> None:
    """Joins when it is told to; whenever it is told something again, it leaves and is back at once."""
    line.send(kind="ready", at_ns=time.monotonic_ns())
    line.receive()
    while True:
        stepper.comm.connect()
        in_ns = time.monotonic_ns()
        if stepper.work() != peers + 1:
            raise Failed("it was let in without the others")
        line.send(kind="works", in_ns=in_ns, at_ns=time.monotonic_ns())
        while line.receive(timeout_s=0) is None:
            stepper.let_in()
            stepper.work()
        line.send(kind="left", at_ns=time.monotonic_ns())
        stepper.renew()


def besiege(line: Line, stepper: Stepper, peers: int) -> None:
    """Comes to a group of its own and is gone again in a moment, let in or not."""
    line.send(kind="gathered")
    while line.receive(timeout_s=0) is None:
        threading.Timer(STAY_S, stepper.comm.close).start()
        try:
            stepper.comm.connect()
        except pccl.Closed:
            pass
        stepper.renew()


# ---------------------------------------------------------------------------------------------- supervision


@dataclass
class Returns:
    """Milliseconds of all returns of one way under one load."""

    ready: list[float] = field(default_factory=list)
    entered: list[float] = field(default_factory=list)
    works: list[float] = field(default_factory=list)

    def add(self, left_ns: int, ready_ns: int, message: Message) -> None:
        """The times of one return."""
        self.ready.append((ready_ns - left_ns) / 1e6)
        self.entered.append((message["in_ns"] - left_ns) / 1e6)
        self.works.append((message["at_ns"] - left_ns) / 1e6)

    @property
    def longest_s(self) -> float:
        """From ready to work."""
        return max(works - ready for works, ready in zip(self.works, self.ready, strict=True)) / 1e3

    def row(self) -> str:
        """Median and maximum of each."""
        pairs = [(statistics.median(it), max(it)) for it in (self.ready, self.entered, self.works)]
        return " ".join(f"{median:8.0f} {worst:6.0f}" for median, worst in pairs)


class Scene:
    """A master under one load, and the peers that stay. A context manager."""

    def __init__(self, load: str, peers: int, state_bytes: int) -> None:
        self._master = Master()
        self._fleet = Fleet()
        self._load = load
        self._peers = peers
        self._options = ["--load", load, "--state-bytes", str(state_bytes)]
        self._inbox: dict[str, deque[Message]] = {}

    def __enter__(self) -> Scene:
        self._master.start()
        stayers = [self._start("stay", 0, self._peers) for _ in range(self._peers)]
        if self._load == "crowded":
            stayers += [self._start("stay", CROWD_GROUP, CROWD) for _ in range(CROWD)]
        if self._load == "besieged":
            stayers += [self._start("besiege", SIEGE_GROUP, 0) for _ in range(2)]
        for child in stayers:
            self.expect(child, "gathered")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._fleet.close()
        self._master.kill()

    def newcomer(self) -> Child:
        """A process that will be ready soon, and joins when it is told to."""
        return self._start("come_and_go", 0, self._peers)

    def expect(self, child: Child, kind: str) -> Message:
        """The next message of that child. Raises Failed when it is another one, on silence, and when somebody ends who
        was not killed."""
        while not self._inbox[child.name]:
            arrived = self._fleet.next(SILENCE_LIMIT_S)
            if arrived is None:
                raise Failed(f"nobody said anything for {SILENCE_LIMIT_S:.0f} s")
            sender, message = arrived
            if message is not None:
                self._inbox[sender.name].append(message)
            elif sender.exit_code != -signal.SIGKILL:
                raise Failed(f"{sender.name} ended with exit status {sender.exit_code}")
        found = self._inbox[child.name].popleft()
        if found["kind"] != kind:
            raise Failed(f"{child.name} said {found} instead of {kind}")
        return found

    def _start(self, role: str, group: int, peers: int) -> Child:
        name = f"peer {len(self._inbox)} ({role})"
        self._inbox[name] = deque()
        place = ["--master", self._master.address, "--group", str(group), "--peers", str(peers)]
        return self._fleet.start(name, [__file__, "--role", role, *place, *self._options], ONE_THREAD)


def measure(scene: Scene, way: str, repeats: int) -> Returns:
    """So many returns. The time of the first arrival does not count."""
    returns = Returns()
    child = scene.newcomer()
    scene.expect(child, "ready")
    child.tell(do="join")
    scene.expect(child, "works")
    for _ in range(repeats):
        if way == "closed":
            child.tell(do="leave")
            left_ns = ready_ns = scene.expect(child, "left")["at_ns"]
        else:
            before = child
            if way == "replaced":
                child = scene.newcomer()
                scene.expect(child, "ready")
                left_ns = ready_ns = before.kill()
            else:
                left_ns = before.kill()
                child = scene.newcomer()
                ready_ns = scene.expect(child, "ready")["at_ns"]
            child.tell(do="join")
        returns.add(left_ns, ready_ns, scene.expect(child, "works"))
    child.kill()
    return returns


def main() -> int:
    """The supervisor, or with --role one of its peers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--peers", type=int, default=3, help="that stay")
    parser.add_argument("--mebibytes", type=int, default=16, help="of shared state")
    parser.add_argument("--way", choices=WAYS, action="append", help="default: all")
    parser.add_argument("--load", choices=LOADS, action="append", help="default: all")
    parser.add_argument("--limit-s", type=float, default=1.0)
    for hidden, kind in {"role": str, "master": str, "group": int, "state-bytes": int}.items():
        parser.add_argument(f"--{hidden}", type=kind, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role:
        ROLES[options.role](
            Line.to_supervisor(),
            Stepper(options.master, options.load[0], options.group, options.state_bytes),
            options.peers,
        )
        return 0
    print(f"{options.repeats} returns to {options.peers} peers each; ms after it left, median and maximum")
    print(f"{'load':>9} {'way':>9}   {'ready':>15} {'in':>15} {'works':>15}", flush=True)
    late = 0
    try:
        for load in options.load or LOADS:
            with Scene(load, options.peers, options.mebibytes << 20) as scene:
                for way in options.way or WAYS:
                    returns = measure(scene, way, options.repeats)
                    print(f"{load:>9} {way:>9}   {returns.row()}", flush=True)
                    if returns.longest_s > options.limit_s:
                        late += 1
                        print(f"FAILED: once it took {returns.longest_s:.2f} s from ready to work")
    except (Failed, RuntimeError) as failure:
        print(f"FAILED: {failure}")
        return 1
    return 1 if late else 0


ROLES = {role.__name__: role for role in (stay, come_and_go, besiege)}

if __name__ == "__main__":
    sys.exit(main())
