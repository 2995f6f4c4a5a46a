# SPDX-License-Identifier: MIT
"""The first minute of a run: the plainest use, calls that come too early, a master that comes late, ids that clash."""

from __future__ import annotations

import logging
import secrets
import socket
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import pccl
from pccl import control, reach
from pccl.addresses import HostPort
from pccl.fleet import Line
from pccl.stress.relay import Relay
from tests.process.faults import long
from tests.process.harness import LIMIT_S, Run, gather
from tests.process.local import Local

pytestmark = pytest.mark.process


def plainest(line: Line, address: str, lives: str, updates: str) -> None:
    """What a first script does: connect, (update,) ten blocking averages in place; again and again."""
    base = (np.arange(1_000_000) % 1009).astype(np.float32)
    for _ in range(int(lives)):
        with pccl.Communicator(address) as comm:
            comm.connect()
            gather(comm, 2)
            for step in range(10):
                if updates == "updates":
                    comm.update_topology()
                x = base + (comm.rank + step)
                comm.all_reduce(x, op=pccl.ReduceOp.AVG)
                assert (x == base + (step + 0.5)).all()
            comm.barrier()
        line.send(kind="lived")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("updates", ["updates", "no updates"])
@pytest.mark.parametrize("lives", [5, *long(100)])
def test_the_plainest_use(tmp_path: Path, lives: int, updates: str) -> None:
    """B28: two local peers, exact means, each life ends."""
    with Run(tmp_path) as run:
        pair = [run.peer(plainest, str(lives), updates) for _ in range(2)]
        for _ in range(lives):
            for peer in pair:
                run.expect(peer, "lived")
        assert [run.ended(peer) for peer in pair] == [0, 0]


def test_calls_that_come_too_early_say_so() -> None:
    """B39: before connect, and while nobody else is a member yet; nothing crashes, and later they work."""
    with pccl.MasterNode("127.0.0.1:0") as node:
        node.run()
        first, second = pccl.Communicator(node.address), pccl.Communicator(node.address)
        with first, second:
            x = np.ones(10)
            for call in (
                lambda: first.all_reduce(x),
                lambda: first.all_reduce_async(x),
                first.barrier,
                first.update_topology,
            ):
                with pytest.raises(pccl.InvalidArgument, match="connect"):
                    call()
            first.connect()
            with pytest.raises(pccl.TooFewPeers):
                first.all_reduce(x)
            newcomer = threading.Thread(target=second.connect)
            newcomer.start()
            while not first.are_peers_pending():
                pass
            with pytest.raises(pccl.TooFewPeers):  # it was announced, and not let in yet
                first.all_reduce(x)
            with pytest.raises(pccl.InvalidArgument, match="connect"):
                second.all_reduce(x)
            first.update_topology()
            newcomer.join(LIMIT_S)
            handle = second.all_reduce_async(np.ones(10))
            first.all_reduce(x)
            assert handle.wait().world_size == 2
            assert (x == 2).all()


class Attempts(logging.Handler):
    """Waits for a number of failed attempts to find the master."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.count = threading.Semaphore(0)

    def emit(self, record: logging.LogRecord) -> None:
        if "no master at" in record.getMessage():
            self.count.release()

    def wait(self, count: int, seconds: float = 0.0) -> None:
        """For so many, and for those of so long."""
        begun = time.monotonic()
        while count > 0 or time.monotonic() - begun < seconds:
            assert self.count.acquire(timeout=LIMIT_S)
            count -= 1


@pytest.fixture
def attempts() -> Attempts:
    handler, before = Attempts(), reach.logger.level
    reach.logger.addHandler(handler)
    reach.logger.setLevel(logging.DEBUG)
    yield handler
    reach.logger.removeHandler(handler)
    reach.logger.setLevel(before)


@pytest.mark.parametrize("away_s", [0.0, *long(10.0)])
def test_a_peer_may_be_there_before_its_master(attempts: Attempts, away_s: float) -> None:
    """B58: nobody listens at the master's address; the peer tries again until somebody does."""
    with pccl.MasterNode("127.0.0.1:0") as node, Relay() as relay:
        node.run()
        link = relay.link(node.address)
        link.refuse()
        with pccl.Communicator(link.address) as comm:
            connecting = threading.Thread(target=comm.connect)
            connecting.start()
            attempts.wait(4, away_s)
            link.refuse(False)
            connecting.join(LIMIT_S)
            assert comm.group_world_size == 1


@pytest.mark.parametrize("unknown_s", [0.0, *long(5.0)])
def test_the_master_s_name_may_be_unknown_at_first(
    attempts: Attempts, monkeypatch: pytest.MonkeyPatch, unknown_s: float
) -> None:
    """B58: the name resolves only after a while; if it never does, the error says so."""
    real, known = reach._attempt, threading.Event()

    async def attempt(address: HostPort, timeout_s: float) -> tuple[HostPort, str]:
        if not known.is_set():
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return await real(HostPort("127.0.0.1", address.port), timeout_s)

    monkeypatch.setattr(reach, "_attempt", attempt)
    with pccl.MasterNode("127.0.0.1:0") as node:
        node.run()
        name = f"master.example:{node.address.rpartition(':')[2]}"
        with pccl.Communicator(name, connect_timeout=0.3) as comm, pytest.raises(pccl.MasterLost) as caught:
            comm.connect()
        assert "master.example" in str(caught.value)
        assert "Name or service not known" in str(caught.value)
        attempts.wait(1)
        with pccl.Communicator(name) as comm:
            connecting = threading.Thread(target=comm.connect)
            connecting.start()
            attempts.wait(4, unknown_s)
            known.set()
            connecting.join(LIMIT_S)
            assert comm.group_world_size == 1


def test_two_peers_that_claim_one_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """B45: the second is refused, in words; the first and the master go on."""
    same = SimpleNamespace(
        randbelow=lambda bound: 6,
        token_bytes=lambda count: b"same id, 15 byte"[:15] if count == 15 else secrets.token_bytes(count),
    )
    with Local(2) as local:
        monkeypatch.setattr(control, "secrets", same)
        with pccl.Communicator(local.address) as first, pccl.Communicator(local.address) as second:
            joining = threading.Thread(target=first.connect)
            joining.start()
            while not local.all(lambda comm: comm.are_peers_pending())[0]:
                pass
            local.all(lambda comm: comm.update_topology())
            joining.join(LIMIT_S)
            assert first.group_world_size == 3
            with pytest.raises(pccl.PCCLError, match="taken"):
                second.connect()
            voting = threading.Thread(target=first.update_topology)
            voting.start()
            local.all(lambda comm: comm.update_topology())
            voting.join(LIMIT_S)
            handle = first.all_reduce_async(np.ones(4))
            local.all(lambda comm: comm.all_reduce(np.ones(4)))
            assert handle.wait().world_size == 3
