# SPDX-License-Identifier: MIT
"""SIGKILL of a command that has started others: nobody is left."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

import pccl

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc"),
]

ROOT = Path(pccl.__file__).parents[1]
LIMIT_S = 100.0
SOON_S = 20.0
"""Less than any wait of a peer for the dead, the master or a joint call."""

COMMANDS = {
    "bench": (["all_reduce", "--peers", "3", "--sizes", "4,64M", "--rounds", "1000"], "median us", 3),
    "demo": (["--rounds", "1000"], "round   8: 4 peers", 4),
    "stress": (["kills", "--peers", "3", "--seed", "1", "--patience", "5"], "all 3 peers train together", 3),
}


def children(pid: int) -> list[int]:
    return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.parametrize("name", COMMANDS)
def test_nobody_outlives_a_killed_supervisor(name: str, tmp_path: Path) -> None:
    if name == "demo":
        pytest.importorskip("sklearn")
        pytest.importorskip("matplotlib")
    arguments, sign, peers = COMMANDS[name]
    output = [] if name == "bench" else ["--output", str(tmp_path)]
    command = [sys.executable, "-u", "-m", "pccl", name, *arguments, *output]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as supervisor:
        assert supervisor.stdout is not None
        said = ""
        while sign not in said:
            line = supervisor.stdout.readline()
            assert line, said
            said += line
        left = {os.pidfd_open(pid): pid for pid in children(supervisor.pid)}
        assert len(left) == peers + 1, "the peers and the master"
        supervisor.kill()
        while left:
            ended = select.select(list(left), [], [], SOON_S)[0]
            assert ended, f"{sorted(left.values())} still run"
            for descriptor in ended:
                os.close(descriptor)
                del left[descriptor]
