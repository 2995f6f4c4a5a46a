# SPDX-License-Identifier: MIT
"""The stress scripts in short: few repeats, small buffers, no limits of time, which are for a machine of one's own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import pccl

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
LIMIT_S = 110.0


def stress(script: str, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(Path(pccl.__file__).parents[1])}
    command = [sys.executable, str(ROOT / "stress" / script), *arguments]
    ran = subprocess.run(
        command,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
        env=environment,
    )
    assert ran.returncode == 0, ran.stdout
    return ran.stdout


def test_kills_in_mid_operation_split_nothing() -> None:
    generous = ("--verdict-limit-ms", "10000", "--retry-limit-ms", "20000")
    output = stress("kill_one.py", "--repeats", "6", "--mebibytes", "16", "--seed", "3", *generous)
    assert "seed 3: 6 repeats, 4 peers, 16 MiB" in output
    assert "6 kills: no split verdict, no wrong number, no hang" in output


def test_the_master_may_be_killed_while_operations_stream() -> None:
    output = stress("master_kill.py", "--repeats", "1", "--kibibytes", "64")
    assert "none failed; then a newcomer joined the restarted master" in output
