# SPDX-License-Identifier: MIT
"""Where a peer's data plane listens, and what it tells the others."""

from __future__ import annotations

import contextlib
import inspect
import os
import pickle
import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import zmq

import pccl
from pccl.messages import Member
from pccl.sockets import seal

pytestmark = pytest.mark.process

LISTEN = "0A"
LIMIT_MS = 20_000


@pytest.fixture
def node() -> Iterator[pccl.MasterNode]:
    with pccl.MasterNode("127.0.0.1:0") as node:
        node.run()
        yield node


def member(comm: pccl.Communicator) -> Member:
    """What the others are told of this peer."""
    assert comm._control is not None
    assert comm._control.view is not None
    return comm._control.view.members[comm.rank]


def listeners(port: int) -> list[str]:
    """IPv4 addresses of this host that listen on the port."""
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    local = [row[1].split(":") for row in rows if row[3] == LISTEN]
    return [socket.inet_ntoa(bytes.fromhex(host)[::-1]) for host, number in local if int(number, 16) == port]


def own_listeners() -> list[str]:
    """All ports that this process listens on, as /proc has them, with the address in hexadecimal digits."""
    mine = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the listing itself
            mine.add(os.readlink(f"/proc/self/fd/{name}"))
    rows = [row.split() for table in ("tcp", "tcp6") for row in Path("/proc/net", table).read_text().splitlines()[1:]]
    return sorted(row[1] for row in rows if row[3] == LISTEN and f"socket:[{row[9]}]" in mine)


def test_it_listens_on_the_route_to_the_master_only() -> None:
    """B62: a master and a peer listen on one port each, on the loopback address that they were told, and no other."""
    before = own_listeners()
    with pccl.MasterNode("127.0.0.1:0") as node:
        node.run()
        with pccl.Communicator(node.address, min_world_size=1) as comm:
            comm.connect()
            assert member(comm).address == "127.0.0.1"
            assert listeners(member(comm).port) == ["127.0.0.1"]
            ports = sorted((int(node.address.rpartition(":")[2]), member(comm).port))
            opened = [it for it in own_listeners() if it not in before]
            assert opened == [f"0100007F:{port:04X}" for port in ports]


class Intruder:
    """Unpickling it creates a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self._path,)


def test_nothing_is_unpickled(node: pccl.MasterNode, tmp_path: Path) -> None:
    """B62: a message is data, never code."""
    path = tmp_path / "created"
    code = pickle.dumps(Intruder(path))
    pickle.loads(code)
    assert path.exists()
    path.unlink()
    with pccl.Communicator(node.address, min_world_size=1) as comm:
        comm.connect()
        for port in (int(node.address.rpartition(":")[2]), member(comm).port):
            with socket.create_connection(("127.0.0.1", port)) as stranger:
                stranger.sendall(code)
        with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
            dealer.setsockopt(zmq.ROUTING_ID, b"intruder-16bytes")
            dealer.connect(f"tcp://{node.address}")
            dealer.send(code)
            dealer.send(seal(code))
            assert dealer.poll(LIMIT_MS)  # it was refused, by an answer
        comm.update_topology()
        assert comm.all_reduce(np.ones(3)).world_size == 1
    assert not path.exists()


def test_an_interface_can_be_chosen(node: pccl.MasterNode) -> None:
    with pccl.Communicator(node.address, interface="127.0.0.0/8", min_world_size=1) as comm:
        comm.connect()
        assert member(comm).address == "127.0.0.1"
    with pytest.raises(pccl.InvalidArgument, match=r"'eth99' matches nothing here; there are .*lo \(127\.0\.0\.1\)"):
        pccl.Communicator(node.address, interface="eth99")


def test_an_advertised_address_is_what_others_dial(node: pccl.MasterNode) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
    with pccl.Communicator(node.address, advertise=f"203.0.113.7:{port}", min_world_size=1) as comm:
        comm.connect()
        assert (member(comm).address, member(comm).port) == ("203.0.113.7", port)
        assert listeners(port) == ["127.0.0.1"]


def test_a_taken_port_fails_the_connect(node: pccl.MasterNode) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        comm = pccl.Communicator(node.address, advertise=f"127.0.0.1:{holder.getsockname()[1]}")
        with pytest.raises(pccl.SystemFailure, match="in use"):
            comm.connect()
    comm.connect()
    assert comm.rank == 0
    comm.close()


def test_the_own_name_is_never_looked_up(node: pccl.MasterNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """B51."""

    def no_name(*_: object) -> str:
        raise AssertionError("asked for the own host's name")

    for function in ("gethostname", "getfqdn", "gethostbyname", "gethostbyname_ex"):
        monkeypatch.setattr(socket, function, no_name)
    with pccl.Communicator(node.address, min_world_size=1) as comm:
        comm.connect()
        assert comm.all_reduce(np.ones(3)).world_size == 1


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"link_timeout": 20.0, "operation_timeout": 10.0}, r"link_timeout \(20 s\) must not be longer than operation"),
        ({"connect_timeout": 0.0}, "connect_timeout must be a positive"),
        ({"master_timeout": -1.0}, "master_timeout must be a positive"),
        ({"joint_timeout": 0.0}, "joint_timeout must be a positive"),
        ({"min_world_size": 0}, "min_world_size must be"),
        ({"peer_group": 2**32}, "peer_group must be"),
        ({"p2p_connection_pool_size": 65}, "p2p_connection_pool_size must be"),
        ({"commit": "sometimes"}, 'commit is "each" or "deferred"'),
        ({"checksum": "maybe"}, "checksum is"),
        ({"shm": "always"}, 'shm is "auto" or "off"'),
        ({"rdma": "always"}, 'rdma is "off", "auto" or "require"'),
        ({"rdma_device": ""}, "rdma_device is"),
        ({"interface": "lo,,"}, "empty"),
        ({"advertise": "a:b:c"}, "brackets"),
    ],
)
def test_wrong_options_are_refused_at_once(options: dict[str, object], text: str) -> None:
    with pytest.raises(pccl.InvalidArgument, match=text):
        pccl.Communicator("127.0.0.1:1", **options)  # type: ignore[arg-type]


def test_calls_before_connect_say_so() -> None:
    comm = pccl.Communicator("127.0.0.1:1")
    for call in (comm.update_topology, comm.barrier, comm.barrier_async, lambda: comm.rank, comm.explain):
        with pytest.raises(pccl.InvalidArgument, match="connect"):
            call()
    comm.close()


def test_a_heartbeat_timeout_has_a_lower_limit() -> None:
    with pytest.raises(pccl.InvalidArgument, match="heartbeat_timeout"):
        pccl.MasterNode("127.0.0.1:0", heartbeat_timeout=0.1)


def test_timeouts_that_contradict_the_masters_are_refused_by_connect(node: pccl.MasterNode) -> None:
    """B97: the rule is in the message, and the same communicator with another master would be fine."""
    for name in ("operation_timeout", "master_timeout"):
        with pccl.Communicator(node.address, **{"link_timeout": 1.0, name: 4.5}) as comm:  # type: ignore[arg-type]
            for _ in range(2):
                with pytest.raises(
                    pccl.InvalidArgument, match=rf"{name} \(4.5 s\) must not be shorter than the heartb"
                ):
                    comm.connect()


def test_every_timeout_is_documented() -> None:
    """B97: each has its row with a default, and each rule is told."""
    text = (Path(__file__).parents[2] / "docs" / "timeouts.md").read_text()
    parameters = {
        **inspect.signature(pccl.Communicator).parameters,
        **inspect.signature(pccl.MasterNode).parameters,
    }
    timeouts = {name: parameter.default for name, parameter in parameters.items() if name.endswith("timeout")}
    assert len(timeouts) == 6
    for name, default in timeouts.items():
        (row,) = [line for line in text.splitlines() if line.startswith(f"| `{name}` |")]
        assert f"| {default:g} |" in row
    assert "All timeouts are in seconds" in text
    rules = text.partition("## Rules")[2]
    for rule in (
        "`link_timeout` must not be longer than `operation_timeout`",
        "`operation_timeout` must not be shorter",
        "`master_timeout` must not be shorter",
        "`heartbeat_timeout` must be at least 0.2 s",
        "no largest world size",
    ):
        assert rule in " ".join(rules.split()), rule
