# SPDX-License-Identifier: MIT
"""A run whose size is known from the start: its first view has all members, in the order of their places."""

from __future__ import annotations

import subprocess
import sys

import pytest

import pccl
from tests.process.harness import LIMIT_S
from tests.process.local import at_once, close

pytestmark = pytest.mark.process

PLACES = [2, 0, None, 1]


def _communicators(address: str, places: list[int | None]) -> list[pccl.Communicator]:
    return [pccl.Communicator(address, place=place, min_world_size=1, joint_timeout=LIMIT_S) for place in places]


def test_all_founders_are_in_the_first_view_by_place() -> None:
    with pccl.MasterNode("127.0.0.1:0", founders=len(PLACES)) as node:
        node.run()
        comms = _communicators(node.address, PLACES)
        at_once([comm.connect for comm in comms])
        assert [comm.rank for comm in comms] == [2, 0, 3, 1]
        assert {(comm.epoch, comm.world_size) for comm in comms} == {(1, 4)}
        close(comms)


def test_a_founder_that_gives_up_is_told_how_many_are_missing() -> None:
    with pccl.MasterNode("127.0.0.1:0", founders=3) as node:
        node.run()
        with (
            pccl.Communicator(node.address, joint_timeout=0.2) as comm,
            pytest.raises(pccl.OperationTimeout, match="group 0 begins with 3 founders, 2 of them missing"),
        ):
            comm.connect()


def test_the_command_line_takes_founders() -> None:
    command = [sys.executable, "-m", "pccl", "master", "--listen", "127.0.0.1:0", "--until-eof", "--founders"]
    refused = subprocess.run([*command, "0"], check=False, capture_output=True, text=True, timeout=LIMIT_S)
    assert refused.returncode == 1
    assert "founders must be a whole number" in refused.stderr
    with subprocess.Popen([*command, "2"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as master:
        assert master.stdin is not None
        assert master.stdout is not None
        address = master.stdout.readline().split()[-1]
        comms = _communicators(address, [1, 0])
        at_once([comm.connect for comm in comms])
        assert [comm.rank for comm in comms] == [1, 0]
        close(comms)
        master.stdin.close()
        assert master.wait(LIMIT_S) == 0
