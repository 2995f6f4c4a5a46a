# SPDX-License-Identifier: MIT
"""`pccl bench` with small sizes: every collective is exact, beside every other library that is there."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest

from pccl.bench.contenders import CONTENDERS
from pccl.bench.formats import COLLECTIVES
from pccl.bench.settings import Settings, problems
from pccl.cli.bench import Op

pytestmark = pytest.mark.process

LIMIT_S = 110.0
OPS = [op for op in get_args(Op) if op != "barrier"]


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pccl", "bench", *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=LIMIT_S)


def measured(*arguments: str) -> list[dict[str, Any]]:
    ran = bench(*arguments, "--rounds", "1", "--json")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


def others(op: str) -> list[str]:
    """The libraries that are installed here and have the collective."""
    return [name for name in ("gloo", "mpi") if not problems(settings(op, name))]


def settings(op: str, other: str) -> Settings:
    return Settings(op, 3, (4,), (other,), "float32", True, "each", 1, 0, "auto", "auto", 1)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("options", [("--in-place",), ("--out-of-place", "--inflight", "3")])
def test_every_collective_is_exact(op: str, options: tuple[str, ...]) -> None:
    rows = measured(op, "--peers", "3", "--sizes", "36,300K", *options)
    assert [(row["op"], row["contender"], row["peers"]) for row in rows] == [(op, "pccl", 3)] * 2
    for row in rows:
        assert row["exact"]
        assert row["algorithm"] not in ("", "auto")
        assert 0 < row["min_us"] <= row["median_us"] <= row["p99_us"]
        assert row["busbw_gbs"] > 0 or row["bytes"] < 1000


@pytest.mark.parametrize("options", [("--in-place", "--commit", "deferred"), ("--out-of-place", "--priority", "1")])
def test_many_arrays_of_one_call_are_exact(options: tuple[str, ...]) -> None:
    few, *rows = measured("all_reduce", "--peers", "3", "--sizes", "4,300K", "--inflight", "7", "--coalesced", *options)
    assert (few["bytes"], [row["bytes"] for row in rows]) == (28, [300 * 1024 // 28 * 28])
    for row in (few, *rows):
        assert row["exact"]
        assert (row["inflight"], row["coalesced"]) == (7, True)


@pytest.mark.parametrize("op", COLLECTIVES)
def test_what_is_quantized_is_measured(op: str) -> None:
    """Sound, the same on all ranks, and about a quarter of the bytes beside those of exact values."""
    arguments = ("--quantize", "int8_block", "--vs", "pccl-exact", "--inflight", "2")
    rows = measured(op, "--peers", "3", "--sizes", "300K", "--out-of-place", *arguments)
    assert [(row["contender"], row["format"]) for row in rows] == [("pccl", "int8_block"), ("pccl-exact", "")]
    assert all(row["exact"] and row["cpu"] > 0 for row in rows)
    quantized, exact = rows
    assert quantized["wire_bytes"] < 0.3 * exact["wire_bytes"]
    assert 1e-4 < quantized["error_rms"] < quantized["error_max"] < 0.01
    assert exact["error_max"] < 1e-6


@pytest.mark.parametrize(
    ("op", "options"),
    [
        *((op, ("--in-place", "--inflight", "2")) for op in OPS),
        ("all_reduce", ("--out-of-place",)),
        ("reduce_scatter", ("--in-place",)),
        ("all_to_all", ("--out-of-place",)),
        ("broadcast", ("--out-of-place", "--inflight", "2")),
    ],
)
def test_every_other_library_that_is_there_is_exact(op: str, options: tuple[str, ...]) -> None:
    """Each in place, which is where they need copies; and some forms that take other ways through their calls."""
    if not (names := others(op)):
        pytest.skip("no other library is installed that has it")
    rows = measured(op, "--sizes", "300K", "--vs", ",".join(names), *options)
    assert [row["contender"] for row in rows] == ["pccl", *names]
    assert all(row["exact"] for row in rows)
    assert all(row["speedup"] > 0 for row in rows[1:])


@pytest.mark.parametrize("transport", ["tcp", "shm"])
@pytest.mark.parametrize("op", ["all_reduce", "send_recv"])
def test_the_transport_can_be_chosen(op: str, transport: str) -> None:
    """Of three, one has no partner, and no link to tell of."""
    names = [name for name in others(op) if transport not in CONTENDERS[name].lacks.get("transport", ())]
    rows = measured(op, "--peers", "3", "--sizes", "64K", "--transport", transport, "--vs", ",".join(names))
    assert [(row["contender"], row["transport"]) for row in rows] == [(name, transport) for name in ["pccl", *names]]


def test_the_algorithm_can_be_chosen() -> None:
    for algorithm in ("ring", "star"):
        rows = measured("all_reduce", "--sizes", "4,1M", "--algorithm", algorithm, "--peers", "3")
        assert [(row["algorithm"], row["exact"]) for row in rows] == [(algorithm, True)] * 2


def test_an_algorithm_that_the_collective_lacks_is_one_clear_line() -> None:
    ran = bench("all_reduce", "--algorithm", "bruck", "--sizes", "4")
    assert ran.returncode == 1
    assert re.fullmatch(r"pccl bench: pccl-\d: no algorithm bruck for all_reduce\n", ran.stderr)


def test_a_chart_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "chart.png"
    measured("all_reduce", "--sizes", "4,4K", "--vs", "socket", "--plot", str(path))
    assert path.read_bytes().startswith(b"\x89PNG")


def test_a_barrier_has_a_time_and_no_bandwidth() -> None:
    names = others("barrier")
    rows = measured("barrier", "--vs", ",".join(names))
    assert [row["contender"] for row in rows] == ["pccl", *names]
    for row in rows:
        assert (row["bytes"], row["busbw_gbs"]) == (0, 0)
        assert row["median_us"] > 0


def test_beside_a_large_operation() -> None:
    """Ranks begin it as often as each needs, and settle that in the end."""
    (row,) = measured("all_reduce", "--sizes", "4K", "--beside", "1M", "--priority", "2")
    assert row["exact"]
    assert (row["priority"], row["beside"]) == (2, 1 << 20)


@pytest.mark.parametrize(("op", "peers"), [("all_reduce", "2"), ("send_recv", "3")])
def test_deferred_operations_are_exact_too(op: str, peers: str) -> None:
    for inflight in ("1", "64"):
        rows = measured(op, "--peers", peers, "--commit", "deferred", "--sizes", "4,1M", "--inflight", inflight)
        assert all(row["exact"] for row in rows)


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("tc") is None, reason="needs root and iproute2")
def test_over_links_of_a_given_rate() -> None:
    """What is sent in a quarter of the bytes takes about a quarter of the time, of which the link is nearly all."""
    asked = ("--quantize", "int8_block", "--vs", "pccl-exact", "--sizes", "1M", "--link", "100M", "--rounds", "1")
    ran = bench("all_reduce", *asked, "--json")
    if "network namespace" in ran.stderr or "ip netns" in ran.stderr:
        pytest.skip(ran.stderr.strip())
    assert ran.returncode == 0, ran.stderr
    fewer, exact = (json.loads(line) for line in ran.stdout.splitlines())
    assert fewer["transport"] == exact["transport"] == "tcp"
    assert exact["median_us"] > 2 * fewer["median_us"] > 1e3


def test_integers_of_one_byte_are_exact() -> None:
    assert all(row["exact"] for row in measured("all_reduce", "--dtype", "int8", "--sizes", "1,64K"))


def test_the_limit_of_plain_sockets_stands_beside_and_each_has_its_line() -> None:
    *rows, ours, theirs = measured("all_reduce", "--sizes", "4,64K,1M", "--vs", "socket", "--fit")
    assert [row["contender"] for row in rows] == ["pccl", "socket"] * 3
    assert all(row["speedup"] > 0 for row in rows[1::2])
    assert (ours["fit"], theirs["fit"]) == ("pccl", "socket")
    assert all(set(fit["times"]) == {"4", "65536", str(1 << 20)} for fit in (ours, theirs))


def test_what_is_missing_or_wrong_is_one_clear_line() -> None:
    cases = {
        ("--vs", "nccl"): "choose from gloo, mpi, socket",
        ("--sizes", "4x"): "not a size",
        ("--link", "fast"): "bits a second, as 100M or 1G",
        ("--sizes", "8..4"): "not a range",
        ("--vs", "socket", "--inflight", "2"): "--vs socket cannot do --inflight 2",
        ("--plot", "/nowhere/chart.png"): "--plot: ",
        ("--fit", "--sizes", "4,1K"): "--fit needs 3 sizes or more",
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
