# SPDX-License-Identifier: MIT
"""`pccl bench --via torch`: every collective is exact, beside Gloo and beside pccl's own calls."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.process

LIMIT_S = 110.0


def measured(*arguments: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "pccl", "bench", *arguments, "--rounds", "1", "--json"]
    ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=LIMIT_S)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


def test_collectives_are_exact() -> None:
    rows = measured("all_to_all", "--via", "torch", "--peers", "3", "--sizes", "36,300K", "--commit", "each")
    assert [(row["contender"], row["exact"], row["commit"]) for row in rows] == [("pccl-torch", True, "each")] * 2


def test_beside_gloo_and_our_own_calls() -> None:
    options = ("--out-of-place", "--inflight", "3")
    rows = measured("all_reduce", "--via", "torch", "--sizes", "4K", "--vs", "pccl,gloo", *options)
    assert [(row["contender"], row["exact"]) for row in rows] == [(it, True) for it in ("pccl-torch", "pccl", "gloo")]
    assert {row["commit"] for row in rows} == {"deferred"}


def test_a_training_step_has_the_right_gradients() -> None:
    rows = measured("ddp", "--model", "20K", "--vs", "gloo")
    assert [(row["contender"], row["bytes"], row["exact"]) for row in rows] == [
        (it, 4 * 20 * 1024, True) for it in ("pccl-torch", "gloo")
    ]
