# SPDX-License-Identifier: MIT
"""A storm of interrupts: Ctrl-C at any moment of a life, hundreds of times; each time what follows works.

The moments are drawn from a seed, over a little more than what an undisturbed life takes, and the signal comes from a
timer of the process itself, so that many fall between two steps of Python code. What an interrupt leaves is cleared
away by the call that is made again, and at the end nothing of it is left: no thread, no port, no vote.
"""

from __future__ import annotations

import contextlib
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import numpy as np
import pytest

import pccl
from pccl.fleet import Line
from pccl.shared_state import SharedState, SharedStateSyncStrategy, TensorInfo
from tests.process.faults import long
from tests.process.harness import LIMIT_S, Run, join

pytestmark = [pytest.mark.process, pytest.mark.alone]

LEAST = 0.1
"""This share of all lives is interrupted, at least: a busy machine stretches them."""


class Storm:
    """Interrupts lives of one kind."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)
        self._span_s = 0.01
        self.lives = self.interrupted = 0
        self._open = False
        signal.signal(signal.SIGALRM, self._ring)

    def strike(self, life: Callable[[], None]) -> None:
        """Lives, perhaps not to the end. How long the next interrupt may take to come is learned from that."""
        self.lives += 1
        begun = time.monotonic()
        try:
            self._open = True
            signal.setitimer(signal.ITIMER_REAL, self._random.uniform(1e-6, self._span_s))
            life()
            self._open = False
            self._span_s = 1.2 * (time.monotonic() - begun)
        except KeyboardInterrupt:
            self.interrupted += 1
            self._span_s *= 1.05
        finally:
            self._open = False
            signal.setitimer(signal.ITIMER_REAL, 0)  # it must not ring when the process has no handler any more

    def _ring(self, number: int, frame: FrameType | None) -> None:
        """The system may have given the signal to another thread: then the main thread may hear of it too late."""
        if self._open:
            self._open = False
            raise KeyboardInterrupt


def threads() -> list[str]:
    """Of the library; the line has one of its own."""
    return [it.name for it in threading.enumerate() if it.name.startswith("pccl-") and it.name != "pccl-line"]


def report(line: Line, storm: Storm) -> None:
    """That it is over, and what is left once threads that nobody waited for have had time to end."""
    deadline = time.monotonic() + LIMIT_S / 2
    while threads() and time.monotonic() < deadline:
        pass
    line.send(kind="over", lives=storm.lives, interrupted=storm.interrupted, threads=threads())


def over(run: Run, function: Callable[..., None], seed: int) -> None:
    """One process lives through its storm."""
    peer = run.peer(function, str(seed))  # type: ignore[arg-type]
    said = run.expect(peer, "over")
    assert said["threads"] == []
    assert said["interrupted"] > LEAST * said["lives"], said
    assert run.ended(peer) == 0


# ---------------------------------------------------------------------------------------------- lives


def tracing(line: Line, address: str, seed: str) -> None:
    """Installs a signal and takes it back."""
    storm = Storm(seed)

    def life() -> None:
        pccl.install_trace_signal(signal.SIGUSR1, "/")
        pccl.install_trace_signal(None)

    for _ in range(2000):
        storm.strike(life)
        pccl.install_trace_signal(None)
    life()
    report(line, storm)


def mastering(line: Line, address: str, seed: str) -> None:
    """Runs masters; each one's port is free afterwards."""
    storm = Storm(seed)
    for _ in range(200):
        node = pccl.MasterNode("127.0.0.1:0")

        def life(node: pccl.MasterNode = node) -> None:
            node.run()
            node.destroy()

        storm.strike(life)
        node.destroy()
        pccl.MasterNode(node.address).destroy()
    report(line, storm)


def communicating(line: Line, address: str, seed: str) -> None:
    """Connects, at a second try if need be, and closes."""
    storm = Storm(seed)
    for _ in range(60):
        comm = pccl.Communicator(address, min_world_size=1)
        storm.strike(comm.connect)
        with contextlib.suppress(pccl.InvalidArgument):  # it is connected already
            comm.connect()
        comm.all_reduce(np.ones(100))
        storm.strike(comm.close)
        comm.close()
    with join(address, 1, min_world_size=1) as comm:
        assert comm.global_world_size == 1
    report(line, storm)


LIVES = [tracing, mastering, communicating]


@pytest.mark.parametrize("seed", [1, *long(2, 3, 4, 5)])
@pytest.mark.parametrize("life", LIVES)
def test_an_interrupt_at_any_moment_leaves_something_that_can_be_cleared_away(
    tmp_path: Path, life: Callable[..., None], seed: int
) -> None:
    with Run(tmp_path) as run:
        over(run, life, seed)


# ---------------------------------------------------------------------------------------------- shared state

SYNCS = 40
SEND, RECEIVE = SharedStateSyncStrategy.SEND_ONLY, SharedStateSyncStrategy.RECEIVE_ONLY


def synchronising(line: Line, address: str, seed: str, strategy: str) -> None:
    """Sends its state, or fetches it; the other does the opposite."""
    comm, storm = join(address, 2), Storm(seed)
    sends = strategy == SEND.name
    state = SharedState([TensorInfo("x", np.full(1 << 19, 7.0 if sends else 0.0))], revision=SYNCS)

    def life() -> None:
        if not sends:
            state.tensors[0].content[:] = 0
            state.revision = 0
        try:
            comm.sync_shared_state(state, SharedStateSyncStrategy[strategy])
        except pccl.SharedStateError:
            pass  # the other heard of the interrupt before

    for _ in range(SYNCS):
        storm.strike(life)
        while True:
            life()
            if state.revision == SYNCS:
                break
        assert (state.tensors[0].content.view(np.float64) == 7).all()
    comm.close()
    report(line, storm)


def partner(line: Line, address: str, strategy: str) -> None:
    """Synchronises until the other has left."""
    comm = join(address, 2)
    sends = strategy == SEND.name
    x = np.full(1 << 19, 7.0 if sends else 0.0)
    state = SharedState([TensorInfo("x", x)], revision=SYNCS)
    while comm.group_world_size == 2:
        if not sends:
            x[:] = 0
            state.revision = 0
        try:
            comm.sync_shared_state(state, SharedStateSyncStrategy[strategy])
        except (pccl.SharedStateError, pccl.PeerLost):
            pass
    comm.close()


@pytest.mark.parametrize("strategy", [SEND, RECEIVE])
def test_an_interrupt_at_any_moment_of_a_synchronisation_ends_with_a_whole_state(
    tmp_path: Path, strategy: SharedStateSyncStrategy
) -> None:
    with Run(tmp_path) as run:
        other = run.peer(partner, (RECEIVE if strategy == SEND else SEND).name)
        peer = run.peer(synchronising, "1", strategy.name)
        said = run.expect(peer, "over")
        assert said["threads"] == []
        assert said["interrupted"] > LEAST * said["lives"], said
        assert [run.ended(it) for it in (peer, other)] == [0, 0]
