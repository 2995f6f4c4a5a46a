# SPDX-License-Identifier: MIT
"""Every example does what it says, as real processes of their own; none is longer than 80 lines."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import pccl
from pccl.fleet import Master

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
LIMIT_S = 60.0
TESTED = {"all_reduce.py", "asynchronous.py", "diloco.py", "quantized_training.py", "shared_state.py"}
ELSEWHERE = {path.name for path in EXAMPLES.glob("torch_*.py")}  # in tests/torch/test_examples.py


@pytest.fixture
def master() -> Iterator[str]:
    with Master() as started:
        yield started.address


def start(example: str, *arguments: object) -> subprocess.Popen[str]:
    package = Path(pccl.__file__).parents[1]
    return subprocess.Popen(
        [sys.executable, str(EXAMPLES / example), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": str(package), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )


def finish(processes: list[subprocess.Popen[str]]) -> list[str]:
    """Output of all; they must end by themselves, with exit status 0."""
    try:
        outputs = [process.communicate(timeout=LIMIT_S)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert [process.returncode for process in processes] == [0] * len(processes), "\n".join(outputs)
    return outputs


def test_all_examples_are_tested_and_short() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == TESTED | ELSEWHERE
    for path in EXAMPLES.glob("*.py"):
        assert len(path.read_text().splitlines()) <= 80, path


def read_until(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if text in line:
            return
    raise AssertionError(f"the process ended without saying {text!r}")


def test_all_reduce_outlives_all_the_others(master: str) -> None:
    processes = [start("all_reduce.py", master, 1_000_000) for _ in range(3)]
    try:
        for process in processes:
            read_until(process, ": 3 peers, ")
        processes[0].kill()
        for process in processes[1:]:
            read_until(process, ": 2 peers, ")
        processes[1].kill()
        finish(processes[2:])
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def test_asynchronous_operations_leave_the_event_loop_free(master: str) -> None:
    for output in finish([start("asynchronous.py", master) for _ in range(2)]):
        assert "8 layers averaged over {2} peers" in output
        turns = re.search(r"(\d+) turns", output)
        assert turns is not None
        assert int(turns.group(1)) > 0


def test_shared_state_ends_alike(master: str) -> None:
    outputs = finish([start("shared_state.py", master, seed) for seed in (1, 2)])
    last = [output.splitlines()[-1].partition(",")[0] for output in outputs]
    assert last[0] == last[1]
    assert last[0].startswith("revision 5: ")
    assert sum("received 1048" in output for output in outputs) == 1


def test_diloco_fits_the_model(master: str) -> None:
    outputs = finish([start("diloco.py", master, seed) for seed in (1, 2, 3)])
    assert len({output.partition("state ")[2] for output in outputs}) == 1
    assert all("after 40 rounds" in output for output in outputs)


def test_quantized_training_reaches_the_same_accuracy(master: str) -> None:
    """Within half a point, with a quarter and an eighth of the bytes."""
    pytest.importorskip("sklearn")
    outputs = finish([start("quantized_training.py", master, 2) for _ in range(2)])
    assert outputs[0] == outputs[1]
    found = re.findall(r"^(\w+) .* mean (\S+) %   (\S+) MB$", outputs[0], re.MULTILINE)
    means = {way: float(mean) for way, mean, _ in found}
    sent = {way: float(megabytes) for way, _, megabytes in found}
    assert list(means) == ["float32", "int8", "int4"]
    assert means["float32"] > 93
    for way, less in (("int8", 3.8), ("int4", 7.2)):
        assert means[way] > means["float32"] - 0.5
        assert sent["float32"] / sent[way] > less
