# SPDX-License-Identifier: MIT
"""What quantized collectives send over a real link is what their formats say: by the operation's own count, and by what
the network interface of each member has counted."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import pccl
from pccl.fleet import Fleet, Line, Master
from pccl.stress.hosts import HostsError
from pccl.stress.namespaces import Namespace, Namespaces
from tests.process.harness import LIMIT_S, ROOT, gather

pytestmark = [
    pytest.mark.process,
    pytest.mark.alone,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("tc") is None, reason="needs root and iproute2"),
]

MEMBERS = 3
ELEMENTS = 3 << 20
FORMATS = {
    "exact": None,
    "bfloat16": pccl.QuantizationOptions("bfloat16"),
    "uint8": pccl.QuantizationOptions("uint8"),
    "int8": pccl.QuantizationOptions("int8", pccl.QuantizationAlgorithm.BLOCK, block=256),
    "int4": pccl.QuantizationOptions("int4"),
    "int2": pccl.QuantizationOptions("int2"),
}


def member(line: Line, address: str) -> None:
    """Sums up in each format when it is told to, by the ring, so that all members send alike."""
    with pccl.Communicator(address, min_world_size=1) as comm:
        comm.connect()
        gather(comm, MEMBERS)
        x = np.random.default_rng(comm.rank).standard_normal(ELEMENTS, np.float32)
        out = np.empty_like(x)
        comm.all_reduce(x, out, algorithm=pccl.Algorithm.RING)  # links are there
        line.send(kind="there")
        while (told := line.receive()) is not None:
            options = FORMATS[told["format"]]
            info = comm.all_reduce(x, out, algorithm=pccl.Algorithm.RING, quantization_options=options)
            line.send(kind="sent", bytes=info.tx_bytes)


@pytest.fixture
def hosts() -> Iterator[Namespaces]:
    try:
        with Namespaces(MEMBERS) as made:
            yield made
    except HostsError as refused:
        pytest.skip(f"root may not make namespaces here: {refused}")


def counted(host: Namespace) -> int:
    """Bytes that the interface of a host has sent."""
    command = ["ip", "netns", "exec", host.name, "cat", "/sys/class/net/eth0/statistics/tx_bytes"]
    return int(subprocess.run(command, check=True, capture_output=True, text=True, timeout=LIMIT_S).stdout)


def test_bytes_are_those_of_the_formula(tmp_path: Path, hosts: Namespaces) -> None:
    with Master(tmp_path, host=hosts.master) as master:
        fleet = Fleet(tmp_path)
        try:
            arguments = ["-m", "tests.process.harness", "tests.process.test_wire_bytes", "member", master.address]
            peers = [fleet.start(host.name, arguments, {"PYTHONPATH": str(ROOT)}, host=host) for host in hosts.hosts]

            def answers(kind: str) -> list[dict[str, int]]:
                found = {}
                while len(found) < MEMBERS:
                    arrived = fleet.next(LIMIT_S)
                    assert arrived is not None
                    child, message = arrived
                    assert message is not None, f"{child.name} has ended"
                    assert message["kind"] == kind
                    found[child.name] = message
                return [found[peer.name] for peer in peers]

            answers("there")
            for name, options in FORMATS.items():
                before = [counted(host) for host in hosts.hosts]
                for peer in peers:
                    peer.tell(format=name)
                sent = [answer["bytes"] for answer in answers("sent")]
                through = [counted(host) - start for host, start in zip(hosts.hosts, before, strict=True)]
                whole = 4 * ELEMENTS if options is None else options.bytes(ELEMENTS)
                due = 2 * (MEMBERS - 1) / MEMBERS * whole
                for count in (*sent, *through):
                    assert abs(count / due - 1) < 0.02, (name, sent, through, due)
        finally:
            fleet.close()
