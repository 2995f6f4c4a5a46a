# SPDX-License-Identifier: MIT
"""Port scans, garbage and silence at both kinds of ports disturb nobody and leave nothing (B59, B60)."""

from __future__ import annotations

import logging
import os
import random
import socket
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

import pccl
from tests.process.faults import long
from tests.process.harness import LIMIT_S

pytestmark = [pytest.mark.process, pytest.mark.alone]

CLOSING = 1000
SILENT = 50

# The first bytes of a sound greeting of either port; what follows is not.
GREETINGS = [b"pccl", b"\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00NULL" + bytes(48)]


class Job:
    """Two peers of this process that sum without end, until `stop`."""

    def __init__(self, address: str) -> None:
        self.comms = [pccl.Communicator(address, min_world_size=1) for _ in range(2)]
        self.comms[0].connect()
        joining = threading.Thread(target=self.comms[1].connect)
        joining.start()
        while self.comms[0].group_world_size < 2:
            self.comms[0].update_topology()
        joining.join()
        self.steps = 0
        self._stopping = False
        self._admitting = threading.Event()
        self._failures: list[BaseException] = []
        self._threads = [threading.Thread(target=self._work, args=(comm,)) for comm in self.comms]
        for thread in self._threads:
            thread.start()

    def _work(self, comm: pccl.Communicator) -> None:
        try:
            going = 1.0
            while going:
                data = np.array([1.0, 0.0 if self._stopping else 1.0, 0.0 if self._admitting.is_set() else 1.0])
                info = comm.all_reduce(data, data, op=pccl.ReduceOp.MIN)
                assert info.world_size == 2
                _, going, shut = data
                if not shut and comm.are_peers_pending():
                    comm.update_topology()
                    self._admitting.clear()
                self.steps += 1
        except BaseException as failure:
            self._failures.append(failure)

    @property
    def ports(self) -> list[int]:
        controls = [comm._control for comm in self.comms]
        return [member.port for member in controls[0].view.members]  # type: ignore[union-attr]

    def goes_on(self) -> None:
        """Waits until it has made ten more steps."""
        goal = self.steps + 10
        while self.steps < goal:
            assert not self._failures, self._failures
            self._threads[0].join(0.01)

    def admit(self) -> None:
        """Lets in whoever waits, or comes."""
        self._admitting.set()

    def stop(self) -> None:
        self._stopping = True
        for thread in self._threads:
            thread.join(LIMIT_S)
        assert not self._failures, self._failures
        for comm in self.comms:
            comm.close()


@pytest.fixture
def node() -> Iterator[pccl.MasterNode]:
    with pccl.MasterNode("127.0.0.1:0") as node:
        node.run()
        yield node


@pytest.fixture
def job(node: pccl.MasterNode) -> Iterator[Job]:
    job = Job(node.address)
    yield job
    job.stop()


def _dial(port: int) -> socket.socket:
    stranger = socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S)
    stranger.settimeout(LIMIT_S)
    return stranger


def _say(port: int, words: bytes) -> None:
    with _dial(port) as stranger:
        try:
            stranger.sendall(words)
        except OSError:
            pass  # it hung up in the middle


def _is_dropped(stranger: socket.socket) -> bool:
    """Waits until the other side has closed it."""
    try:
        while stranger.recv(4096):
            pass
    except ConnectionError:
        pass
    except TimeoutError:
        return False
    return True


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def _await_descriptors(job: Job, base: int) -> None:
    """What strangers cost is given back; the job's own links take a moment to settle."""
    for _ in range(300):
        if _descriptors() <= base + 3:
            return
        job.goes_on()
    pytest.fail(f"{_descriptors()} descriptors, {base} before")


def _ports(node: pccl.MasterNode, job: Job) -> list[int]:
    """All that anyone listens on."""
    return [int(node.address.rpartition(":")[2]), *job.ports]


def test_a_port_scan_disturbs_nobody(node: pccl.MasterNode, job: Job) -> None:
    job.goes_on()
    base = _descriptors()
    for port in _ports(node, job):
        for count in range(CLOSING):
            _dial(port).close()
            if count % 100 == 0:
                job.goes_on()
    _await_descriptors(job, base)


def test_a_newcomer_gets_in_between_strangers(node: pccl.MasterNode, job: Job) -> None:
    """B59: while all ports are scanned, by some who close at once, some who say nothing and some who say half."""
    base = _descriptors()
    ports, over = _ports(node, job), threading.Event()
    quiet: list[socket.socket] = []

    def scan(port: int) -> None:
        while not over.is_set():
            _dial(port).close()
            if len(quiet) < 2 * SILENT:
                quiet.append(_dial(port))
                quiet[-1].sendall(b"" if len(quiet) % 2 else GREETINGS[len(quiet) // 2 % 2])

    scanning = [threading.Thread(target=scan, args=(port,)) for port in ports]
    for thread in scanning:
        thread.start()
    try:
        while len(quiet) < SILENT:
            job.goes_on()
        with pccl.Communicator(node.address, 1, min_world_size=1) as newcomer:
            joining = threading.Thread(target=newcomer.connect)
            joining.start()
            job.admit()
            joining.join(LIMIT_S)
            assert newcomer.all_reduce(np.ones(3)).world_size == 1
            assert newcomer.num_groups == 2
    finally:
        over.set()
        for thread in scanning:
            thread.join(LIMIT_S)
        for stranger in quiet:
            stranger.close()
    _await_descriptors(job, base)


def test_silent_strangers_are_dropped(node: pccl.MasterNode, job: Job) -> None:
    job.goes_on()
    base = _descriptors()
    for port in _ports(node, job):
        silent = [_dial(port) for _ in range(2 * SILENT)]
        for place, stranger in enumerate(silent[SILENT:]):
            stranger.sendall(GREETINGS[place % 2])
        job.goes_on()
        for stranger in silent:
            assert _is_dropped(stranger), "in bounded time, which is seconds"
            stranger.close()
    _await_descriptors(job, base)


@pytest.mark.parametrize("times", [300, *long(10_000)])
@pytest.mark.timeout(900)
def test_garbage_is_refused_with_one_line_in_the_log(
    node: pccl.MasterNode, job: Job, caplog: pytest.LogCaptureFixture, times: int
) -> None:
    caplog.set_level(logging.WARNING, logger="pccl")
    job.goes_on()
    base, begun = _descriptors(), time.monotonic()
    noise = random.Random(1)
    sayings = [
        lambda: noise.randbytes(noise.randrange(1, 65536)),
        lambda: b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n",
        lambda: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + noise.randbytes(512),
        lambda: GREETINGS[0] + noise.randbytes(200),
        lambda: GREETINGS[1] + noise.randbytes(200),
    ]
    for port in _ports(node, job):
        for count in range(times):
            _say(port, sayings[count % len(sayings)]())
            if count % 50 == 0:
                job.goes_on()
    _await_descriptors(job, base)
    lines = [record.getMessage() for record in caplog.records if "not of this run" in record.getMessage()]
    turns = 1 + (time.monotonic() - begun) // 10
    assert 1 <= len(lines) <= turns * len(_ports(node, job)), "at most one in ten seconds and port"
    assert node.wait(0) is False, "the master works"
