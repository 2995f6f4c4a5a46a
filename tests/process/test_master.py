# SPDX-License-Identifier: MIT
"""The master as a process and in a process: its command, ports, journal, death and return."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import pccl
from pccl import messages
from pccl.fleet import Line
from pccl.protocol.types import Settings
from tests.process.harness import LIMIT_S, Run, join
from tests.process.test_threads import at_once, close, joined

pytestmark = pytest.mark.process


# ---------------------------------------------------------------------------------------------- the command


def started(*arguments: str) -> tuple[subprocess.Popen[str], str]:
    """`pccl master` with its first line read: the process and the address that it prints."""
    command = [sys.executable, "-m", "pccl", "master", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().split()[-1]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_the_command_and_free_its_port(number: signal.Signals, code: int) -> None:
    process, address = started("--listen", "127.0.0.1:0")
    host, port = address.split(":")
    assert int(port) > 0
    process.send_signal(number)
    _, errors = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, errors) == (code, "")
    with pccl.MasterNode(f"{host}:{port}") as again:
        assert again.address == address


def test_a_busy_port_is_one_line_and_an_error() -> None:
    """B53."""
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        command = [sys.executable, "-m", "pccl", "master", "--listen", f"127.0.0.1:{port}"]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert f"127.0.0.1:{port}" in done.stderr
    assert "in use" in done.stderr


def test_a_journal_has_one_master(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    with pccl.MasterNode("127.0.0.1:0", journal=journal) as first:
        first.run()
        command = [sys.executable, "-m", "pccl", "master", "--listen", "127.0.0.1:0", "--journal", str(journal)]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode == 1
        assert "in use by another master" in done.stderr


# ---------------------------------------------------------------------------------------------- in the process


def test_a_master_that_cannot_write_its_journal_says_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even what other peers ask while it stops: the core believes what is not on disk."""
    peer, said, told = b"p" * 16, [], []
    hello = messages.encode(messages.Hello(messages.PROTOCOL_VERSION, b"s" * 16, 0, 0))
    register = messages.encode(messages.Register("127.0.0.1", 7, 1))
    node = pccl.MasterNode("127.0.0.1:0", journal=tmp_path / "journal")

    def append(record: object) -> None:
        if isinstance(record, Settings):
            node._loop.call_soon(node._received, peer, hello)  # type: ignore[union-attr]
            node._loop.call_soon(node._received, peer, register)  # type: ignore[union-attr]
            return
        told.append(len(said))
        node._loop.call_soon(node._received, peer, hello)  # type: ignore[union-attr]
        raise OSError(errno.ENOSPC, "No space left on device")

    def send(receiver: bytes, data: bytes) -> bool:
        said.append(messages.decode(data))
        return True

    monkeypatch.setattr(node._journal, "append", append)
    monkeypatch.setattr(node._link, "send", send)
    node.run()
    with pytest.raises(OSError, match="No space left"):
        node.wait(LIMIT_S)
    assert (told, [type(it) for it in said]) == ([1], [messages.Welcome])
    assert tmp_path.joinpath("journal").exists()
    node.destroy()


def test_many_masters_choose_ports_of_their_own() -> None:
    nodes = [pccl.MasterNode("127.0.0.1:0") for _ in range(20)]
    try:
        for node in nodes:
            node.run()
        assert len({node.address for node in nodes}) == 20
    finally:
        for node in nodes:
            node.destroy()


def test_twenty_masters_and_two_hundred_groups_at_once() -> None:
    """B53: every port is chosen by the system and never given up in between, so nobody finds it taken."""
    masters, groups = 20, 10

    def begun(number: int) -> set[int]:
        with pccl.MasterNode("127.0.0.1:0") as node:
            node.run()
            comms = joined(node.address, list(range(groups)), 1)
            found = {comm._view().members[0].port for comm in comms}
            assert all(comm.num_groups == groups for comm in comms)
            close(comms)
            return found

    ports = at_once([partial(begun, number) for number in range(masters)])
    assert all(len(found) == groups for found in ports)  # type: ignore[arg-type]


def test_a_successor_on_the_same_port_need_not_wait(tmp_path: Path) -> None:
    """B53: killed with connections open, and started again at once."""
    with Run(tmp_path) as run:
        peer = run.peer(connected)
        run.expect(peer, "connected")
        for _ in range(3):
            run.master.kill()
            run.master.start()
        peer.tell(kind="end")
        assert run.ended(peer) == 0


def connected(line: Line, address: str) -> None:
    with pccl.Communicator(address, min_world_size=1) as comm:
        comm.connect()
        line.send(kind="connected")
        line.receive()


def test_a_child_that_outlives_a_master_holds_neither_its_port_nor_its_journal(tmp_path: Path) -> None:
    """B64, for masters: a pool worker, say."""
    (read, write), (ready, begun) = os.pipe(), os.pipe()
    journal = tmp_path / "journal"
    with pccl.MasterNode("127.0.0.1:0", journal=journal) as node:
        node.run()
        child = os.fork()
        if child == 0:
            os.close(write)
            os.write(begun, b"x")
            os.read(read, 1)
            os._exit(0)
        os.read(ready, 1)
    with pccl.MasterNode(node.address, journal=journal) as successor:
        assert successor.address == node.address
    os.write(write, b"x")
    assert os.waitpid(child, 0)[1] == 0
    for descriptor in (read, write, ready, begun):
        os.close(descriptor)


def test_it_binds_only_where_told() -> None:
    """B62."""
    with pccl.MasterNode("127.0.0.2:0") as node:
        node.run()
        port = int(node.address.rpartition(":")[2])
        socket.create_connection(("127.0.0.2", port), timeout=LIMIT_S).close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S)


def test_ipv6_needs_brackets_and_works() -> None:
    with pytest.raises(pccl.InvalidArgument, match="brackets"):
        pccl.MasterNode("::1:0")
    with pccl.MasterNode("[::1]:0") as node, pccl.Communicator(node.address) as comm:
        node.run()
        assert node.address.startswith("[::1]:")
        comm.connect()
        assert (comm.rank, comm.global_world_size) == (0, 1)


def test_foreign_bytes_do_not_disturb_it() -> None:
    with pccl.MasterNode("127.0.0.1:0") as node:
        node.run()
        host, port = node.address.split(":")
        for garbage in (b"", b"GET / HTTP/1.0\r\n\r\n", b"\x16\x03\x01" * 1000, bytes(range(256)) * 64):
            with socket.create_connection((host, int(port)), timeout=LIMIT_S) as foreign:
                foreign.sendall(garbage)
        with pccl.Communicator(node.address) as comm:
            comm.connect()
            assert comm.group_world_size == 1


def test_a_node_is_used_once() -> None:
    node = pccl.MasterNode("127.0.0.1:0")
    node.run()
    with pytest.raises(pccl.InvalidArgument):
        node.run()
    node.interrupt()
    assert node.wait(LIMIT_S)
    node.destroy()
    node.destroy()


# ---------------------------------------------------------------------------------------------- death and return


def streaming(line: Line, address: str, peers: str) -> None:
    """Reduces without a pause; on "admit" lets a newcomer in."""
    size = int(peers)
    with join(address, size) as comm:
        line.send(kind="ready")
        done = 0
        while True:
            # Whoever has a command makes it known through the reduction, so all act in the same step.
            message = line.receive(timeout_s=0)
            wish = np.array([0 if message is None else {"admit": 1, "stop": 2}[message["kind"]]], np.int32)
            info = comm.all_reduce(wish, op=pccl.ReduceOp.MAX)
            assert info.world_size == size
            done += 1
            if done % 200 == 0:
                line.send(kind="step", done=done, epoch=comm.epoch)
            if wish[0] == 1:
                comm.update_topology()
                size = comm.group_world_size
                line.send(kind="admitted", world_size=size, epoch=comm.epoch)
            if wish[0] == 2:
                break
        line.send(kind="stopped")


def joining(line: Line, address: str) -> None:
    comm = pccl.Communicator(address)
    line.send(kind="joining")
    comm.connect()
    line.send(kind="joined", world_size=comm.group_world_size)
    wish = np.zeros(1, np.int32)
    while wish[0] != 2:
        wish[0] = 0
        comm.all_reduce(wish, op=pccl.ReduceOp.MAX)
    comm.close()


def steps(run: Run, child: object, count: int) -> int:
    """Waits for so many reports of steps: the epoch of the last."""
    return [run.expect(child, "step")["epoch"] for _ in range(count)][-1]  # type: ignore[arg-type]


def test_a_killed_master_stops_nobody_and_its_successor_carries_on(tmp_path: Path) -> None:
    with Run(tmp_path, journal=True) as run:
        peers = [run.peer(streaming, "3") for _ in range(3)]
        for peer in peers:
            run.expect(peer, "ready")
        epoch = steps(run, peers[0], 2)
        run.master.kill()
        assert steps(run, peers[0], 5) == epoch
        run.master.start()
        newcomer = run.peer(joining)
        run.expect(newcomer, "joining")
        peers[0].tell(kind="admit")
        while (message := run.next(peers[0]))["kind"] == "step":
            assert message["epoch"] == epoch
        assert message["kind"] == "admitted"
        while message["world_size"] < 4:  # the newcomer was not registered yet
            peers[0].tell(kind="admit")
            message = run.next_of(peers[0], "admitted")
        assert run.expect(newcomer, "joined")["world_size"] == 4
        assert message["epoch"] > epoch
        peers[0].tell(kind="stop")
        for peer in peers:
            run.next_of(peer, "stopped")
        assert [run.ended(peer) for peer in (*peers, newcomer)] == [0, 0, 0, 0]


# ---------------------------------------------------------------------------------------------- its end


def test_a_master_waits_for_the_last_peer_to_leave() -> None:
    with pccl.MasterNode("127.0.0.1:0") as node:
        assert node.drain(0)  # it does not even run
        node.run()
        comm = pccl.Communicator(node.address, min_world_size=1)
        comm.connect()
        assert not node.drain(0.05)
        leaving = threading.Thread(target=comm.close)
        leaving.start()
        assert node.drain(LIMIT_S)
        leaving.join()


def test_a_master_that_cannot_return_is_lost_as_soon_as_it_ends() -> None:
    process, address = started("--listen", "127.0.0.1:0")
    with pccl.Communicator(address, min_world_size=1, master_returns=False) as comm:
        comm.connect()
        process.kill()
        with pytest.raises(pccl.MasterLost, match="has ended"):
            comm.update_topology()
        with pytest.raises(pccl.MasterLost, match="has ended"):
            comm.barrier()
    process.communicate()
