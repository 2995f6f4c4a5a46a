# SPDX-License-Identifier: MIT
"""Which address a peer listens on and tells the others, on a host with several interfaces and a misleading name.

The host is a network namespace that this test makes for itself, which takes no privileges where users may do that.
"""

from __future__ import annotations

import logging
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pccl
from tests.process.test_listen import listeners, member

pytestmark = pytest.mark.process

LIMIT_S = 60.0
SETUP = """
mount --bind {hosts} /etc/hosts
ip link set lo up
ip link add bridge0 type bridge
ip addr add 172.30.0.1/16 dev bridge0
ip link set bridge0 up
ip link add wire0 type veth peer name wire1
ip addr add 10.98.0.2/24 dev wire0
ip link set wire0 up
"""
"""The bridge is there first, and the own name leads to loopback."""

WIRE, BRIDGE, LOOPBACK = "10.98.0.2", "172.30.0.1", "127.0.0.1"
CHOICES = {
    "": WIRE,
    "wire0": WIRE,
    WIRE: WIRE,
    "10.98.0.0/16": WIRE,
    "^bridge0": WIRE,
    "^bridge0,^lo": WIRE,
    "^10.98.0.0/24,^lo": BRIDGE,
    "bridge0": BRIDGE,
    "172.16.0.0/12": BRIDGE,
    "lo": LOOPBACK,
}


def inside(hosts: str) -> None:
    """In the namespace, which it sets up. Asserts what is chosen for each selection."""
    for command in SETUP.format(hosts=hosts).strip().splitlines():
        subprocess.run(command.split(), check=True)
    records: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("pccl.control").addHandler(handler)
    logging.getLogger("pccl.control").setLevel(logging.INFO)
    assert socket.gethostbyname(socket.gethostname()) == "127.0.1.1"
    with pccl.MasterNode(f"{WIRE}:0") as node:
        node.run()
        for interface, expected in CHOICES.items():
            with pccl.Communicator(node.address, interface=interface or None, min_world_size=1) as comm:
                comm.connect()
                me = member(comm)
                assert (me.address, listeners(me.port)) == (expected, [expected]), (interface, me)
                assert comm.all_reduce(np.ones(3)).world_size == 1
            assert any(f"data plane on {expected}" in text for text in records), records
            records.clear()
        for interface in ("wire9", "192.0.2.0/24", "^eth7", "^bridge0,^wire0,^lo"):
            with pytest.raises(pccl.InvalidArgument, match=r"bridge0 \(172\.30\.0\.1\), wire0 \(10\.98\.0\.2\)"):
                pccl.Communicator(node.address, interface=interface)
        Path("/etc/hosts").write_text("127.0.0.1 localhost\n")  # now the own name leads nowhere
        with pytest.raises(socket.gaierror):
            socket.gethostbyname(socket.gethostname())
        with pccl.Communicator(node.address, min_world_size=1) as comm:
            comm.connect()
            assert member(comm).address == WIRE
            assert comm.all_reduce(np.ones(3)).world_size == 1
    print("all is well")


@pytest.fixture
def hosts(tmp_path: Path) -> Path:
    """A file of names, in which the own one leads to loopback, as on many systems."""
    file = tmp_path / "hosts"
    file.write_text(f"127.0.0.1 localhost\n127.0.1.1 {socket.gethostname()}\n")
    return file


def test_the_address_is_that_of_the_route_to_the_master_or_of_the_chosen_interface(hosts: Path) -> None:
    """B49 and B51."""
    namespace = ["unshare", "--map-root-user", "--net", "--mount"]
    if shutil.which("ip") is None or subprocess.run([*namespace, "true"], check=False, capture_output=True).returncode:
        pytest.skip("needs iproute2, and namespaces for users")
    start = "import sys; from tests.process.test_interfaces import inside; inside(sys.argv[1])"
    command = [*namespace, sys.executable, "-c", start, str(hosts)]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=LIMIT_S, cwd=root)
    assert (done.returncode, done.stdout) == (0, "all is well\n"), done.stderr


def test_a_name_that_does_not_resolve_is_waited_for_and_named() -> None:
    """B51 and B58: no start fails for lack of DNS; it ends when its own time is over."""
    comm = pccl.Communicator("master.invalid:1", connect_timeout=0.5)
    with pytest.raises(pccl.MasterLost, match=r"no master at master\.invalid:1 within 0\.5 s"):
        comm.connect()
