# SPDX-License-Identifier: MIT
"""RDMA on a host without devices: links go over TCP, and one line says why; who requires it is told what is missing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import pccl
from tests.process.team import Team

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(os.path.exists("/sys/class/infiniband_verbs/abi_version"), reason="this host has RDMA"),
]


def test_required_and_missing() -> None:
    master = pccl.MasterNode("127.0.0.1:0")
    master.run()
    try:
        comm = pccl.Communicator(master.address, rdma="require")
        with pytest.raises(pccl.Unsupported, match="RDMA is required, but this host has no RDMA device"):
            comm.connect()
        comm.close()
    finally:
        master.interrupt()


def test_tcp_where_there_is_none(tmp_path: Path) -> None:
    with Team(tmp_path, 2, rdma="auto") as team:
        team.works()
