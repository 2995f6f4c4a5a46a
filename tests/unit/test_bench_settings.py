# SPDX-License-Identifier: MIT
"""What cannot be benchmarked together is one clear line, before anything starts."""

from __future__ import annotations

import importlib.util
import stat
from pathlib import Path
from typing import Any

import pytest

from pccl.bench import formats, mpiexec
from pccl.bench.contenders import CONTENDERS
from pccl.bench.settings import Settings, problems


def settings(**changed: Any) -> Settings:
    chosen: dict[str, Any] = {"op": "all_reduce", "peers": 2, "sizes": (4,), "versus": ()}
    chosen |= {"dtype": "float32", "in_place": True, "commit": "each", "rounds": 1, "connections": 0}
    chosen |= {"transport": "auto", "algorithm": "auto", "inflight": 1}
    return Settings(**(chosen | changed))


@pytest.fixture
def all_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: object())
    monkeypatch.setattr(mpiexec, "problems", lambda _: iter(()))


def test_everything_is_fine_by_default() -> None:
    assert problems(settings()) == []
    assert problems(settings(versus=("socket",), transport="tcp", algorithm="ring")) == []
    assert (settings().title, settings(inflight=16).title) == ("all_reduce", "all_reduce x16")
    assert settings(inflight=16, beside=64 << 20).title == "all_reduce x16 by 64M"
    assert settings(inflight=16, coalesced=True, beside=64 << 20).title == "all_reduce of 16 by 64M"
    assert problems(settings(inflight=16, coalesced=True, beside=64 << 20)) == []
    assert problems(settings(via="torch", versus=("pccl", "gloo"))) == []
    assert problems(settings(via="torch", op="ddp", versus=("gloo",))) == []


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"versus": ("nccl",)}, "--vs nccl: choose from gloo, mpi, socket"),
        ({"versus": ("pccl",)}, "--vs pccl: choose from gloo, mpi, socket"),
        ({"versus": ("gloo",), "op": "scan"}, "--vs gloo has no scan"),
        ({"versus": ("gloo",), "dtype": "int16"}, "--vs gloo cannot do --dtype int16"),
        ({"versus": ("gloo",), "transport": "shm"}, "--vs gloo cannot do --transport shm"),
        ({"versus": ("mpi",), "dtype": "float16"}, "--vs mpi cannot do --dtype float16"),
        ({"versus": ("socket",), "inflight": 2}, "--vs socket cannot do --inflight 2"),
        ({"versus": ("gloo",), "beside": 4}, "--beside and --vs: only pccl runs beside itself"),
        ({"versus": ("gloo",), "coalesced": True}, "--coalesced and --vs: only pccl's call with many arrays is timed"),
        ({"versus": ("gloo",), "link": 10**9}, "--link and --vs gloo: only pccl runs in hosts of its own"),
        ({"op": "reduce", "coalesced": True}, "reduce cannot be --coalesced: only all_reduce takes many arrays"),
        ({"versus": ("socket",), "transport": "shm"}, "--vs socket cannot do --transport shm"),
        ({"op": "barrier", "algorithm": "ring"}, "barrier takes no --algorithm"),
        ({"op": "send_recv", "algorithm": "ring"}, "send_recv takes no --algorithm"),
        ({"op": "send_recv", "versus": ("socket",)}, "--vs socket has no send_recv"),
        ({"via": "torch", "op": "scan"}, "--via torch has no scan"),
        ({"via": "torch", "priority": 1}, "--via torch has no --priority"),
        ({"via": "torch", "versus": ("pccl-torch",)}, "--vs pccl-torch: choose from pccl, gloo, mpi, socket"),
        ({"quantize": "int8_block", "coalesced": True}, "--quantize and --coalesced: only calls with one array can be"),
        ({"quantize": "int8_block", "op": "scan"}, "scan cannot be quantized: choose from all_reduce, reduce_scatter,"),
        (
            {"quantize": "int8_block", "dtype": "int32"},
            "int32 cannot be quantized: choose from float32, float64, float16",
        ),
        ({"quantize": "int8_block", "versus": ("gloo",)}, "--vs gloo: choose from pccl-exact"),
        ({"quantize": "int8_block", "via": "torch"}, "--via torch has no --quantize"),
        ({"versus": ("pccl-exact",)}, "--vs pccl-exact: choose from gloo, mpi, socket"),
        ({"op": "ddp"}, "--via api has no ddp"),
        ({"op": "ddp", "via": "torch", "versus": ("pccl",)}, "--vs pccl has no ddp"),
        ({"op": "ddp", "via": "torch", "versus": ("mpi",)}, "--vs mpi has no ddp"),
        ({"op": "ddp", "via": "torch", "inflight": 2}, "ddp is one step at a time, in float32"),
    ],
)
@pytest.mark.usefixtures("all_installed")
def test_what_cannot_be_together_is_one_line(changed: dict[str, Any], line: str) -> None:
    (found,) = problems(settings(**changed))
    assert found.startswith(line)


@pytest.mark.usefixtures("all_installed")
def test_all_that_is_wrong_is_told_at_once() -> None:
    assert len(problems(settings(versus=("gloo", "socket"), transport="shm", inflight=2, algorithm="no"))) == 4


def test_an_unknown_algorithm_is_answered_with_those_there_are() -> None:
    (line,) = problems(settings(algorithm="tre"))
    assert line.startswith("--algorithm tre: choose from auto, ring, doubling")


def test_an_unknown_format_is_answered_with_those_there_are() -> None:
    (line,) = problems(settings(quantize="int8"))
    assert line.startswith("--quantize int8: choose from bfloat16, float16, uint8_min_max")
    assert problems(settings(quantize="int8_block", versus=("pccl-exact",))) == []
    assert settings(quantize="int8_block", inflight=2).title == "all_reduce x2 int8_block"
    assert {formats.named(name).native().format for name in formats.FORMATS} == set(range(1, len(formats.FORMATS) + 1))


@pytest.mark.parametrize("name", ["gloo", "mpi"])
def test_a_library_that_is_missing_is_named_with_how_to_get_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    needs, how = CONTENDERS[name].needs, CONTENDERS[name].how
    assert problems(settings(versus=(name,))) == [f"--vs {name} needs {needs}: {how}"]


def test_torch_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert problems(settings(via="torch")) == ["--via torch needs torch: pip install torch"]


def test_mpiexec_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mpiexec, "find", lambda: None)
    (line,) = mpiexec.problems("auto")
    assert line.startswith("--vs mpi needs mpiexec: ")


@pytest.mark.parametrize(
    ("said", "known"), [("mpiexec (OpenRTE) 4.1.4", True), ("mpirun (Open MPI) 5.0.3", True), ("HYDRA 4.0", False)]
)
def test_only_open_mpi_can_be_told_what_to_go_through(
    said: str, known: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "mpiexec"
    program.write_text(f"#!/bin/sh\necho '{said}'\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(mpiexec, "find", lambda: str(program))
    assert list(mpiexec.problems("auto")) == []
    refused = [f"--vs mpi cannot do --transport tcp: {program} is not Open MPI's"]
    assert list(mpiexec.problems("tcp")) == ([] if known else refused)
    assert "tcp,self" in mpiexec.command("tcp", 2, ["python"])
    assert mpiexec.command("auto", 2, ["python"]) == [str(program), "-n", "2", "python"]
