# SPDX-License-Identifier: MIT
"""`pccl bench` with small sizes: every collective is exact, beside every other library that is there."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.process

LIMIT_S = 110.0


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pccl", "bench", *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=LIMIT_S)


def measured(*arguments: str) -> list[dict[str, Any]]:
    ran = bench(*arguments, "--rounds", "1", "--json")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


@pytest.mark.parametrize("op", ["all_reduce", "reduce_scatter", "all_gather", "broadcast"])
@pytest.mark.parametrize("place", ["--in-place", "--out-of-place"])
def test_every_collective_is_exact(op: str, place: str) -> None:
    rows = measured(op, "--peers", "3", "--sizes", "12,300K", place)
    assert [(row["op"], row["contender"], row["peers"]) for row in rows] == [(op, "pccl", 3)] * 2
    for row in rows:
        assert row["exact"]
        assert 0 < row["min_us"] <= row["median_us"] <= row["p99_us"]
        assert row["busbw_gbs"] > 0 or row["bytes"] < 1000


def test_a_barrier_has_a_time_and_no_bandwidth() -> None:
    (row,) = measured("barrier")
    assert row["bytes"] == 0
    assert row["median_us"] > 0
    assert row["busbw_gbs"] == 0


def test_deferred_operations_are_exact_too() -> None:
    assert all(row["exact"] for row in measured("all_reduce", "--commit", "deferred", "--sizes", "4,1M"))


def test_integers_of_one_byte_are_exact() -> None:
    assert all(row["exact"] for row in measured("all_reduce", "--dtype", "int8", "--sizes", "1,64K"))


def test_the_limit_of_plain_sockets_stands_beside() -> None:
    rows = measured("all_reduce", "--sizes", "4,1M", "--vs", "socket")
    assert [row["contender"] for row in rows] == ["pccl", "socket"] * 2
    assert all(row["speedup"] > 0 for row in rows[1::2])


def test_gloo_stands_beside() -> None:
    pytest.importorskip("torch")
    rows = measured("all_reduce", "--sizes", "4,1M", "--vs", "gloo")
    assert [row["contender"] for row in rows] == ["pccl", "gloo"] * 2
    assert all(row["exact"] for row in rows)


def test_what_is_missing_or_wrong_is_one_clear_line() -> None:
    cases = {
        ("--vs", "nccl"): "choose from gloo, mpi, socket",
        ("--sizes", "4x"): "not a size",
        ("--sizes", "8..4"): "not a range",
    }
    if importlib.util.find_spec("mpi4py") is None:
        cases[("--vs", "mpi")] = "--vs mpi needs mpi4py: pip install mpi4py"
    for arguments, message in cases.items():
        ran = bench("all_reduce", *arguments)
        assert ran.returncode == 2
        assert message in ran.stderr
        assert "Traceback" not in ran.stderr


def test_a_size_that_no_machine_has_room_for_is_one_clear_line() -> None:
    ran = bench("all_reduce", "--sizes", "1000000000G")
    assert ran.returncode == 1
    assert "pccl bench: pccl-" in ran.stderr
    assert "Traceback" not in ran.stderr
