# SPDX-License-Identifier: MIT
"""Every example with torch does what it says, started by torchrun as its head tells."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pccl.fleet import Master

pytestmark = pytest.mark.process

EXAMPLES = Path(__file__).parents[2] / "examples"
LIMIT_S = 60.0
TESTED = {"torch_ddp.py", "torch_ddp_elastic.py", "torch_hsdp_diloco.py", "torch_transformer.py"}


@pytest.fixture
def master() -> Iterator[str]:
    with Master() as started:
        yield started.address


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    """What runs here is ended in the end. torchrun takes its ranks along."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.terminate()
    for process in processes:
        process.communicate()


def torchrun(ranks: int, example: str, *arguments: str) -> subprocess.Popen[str]:
    """On a free port."""
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), str(EXAMPLES / example)]
    return subprocess.Popen(
        [sys.executable, *command, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
    )


def kill_ranks(of: subprocess.Popen[str]) -> None:
    """Torchrun ends, too, when it sees that."""
    for pid in Path(f"/proc/{of.pid}/task/{of.pid}/children").read_text().split():
        os.kill(int(pid), signal.SIGKILL)


def read_until(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line)
        if text in line:
            return
    raise AssertionError(f"the process ended without saying {text!r}:\n{''.join(seen)}")


def test_all_examples_are_tested() -> None:
    assert {path.name for path in EXAMPLES.glob("torch_*.py")} == TESTED


@pytest.mark.parametrize("more", [(), ("--gradients", "int4")])
def test_ddp_needs_no_change_but_the_name_of_the_backend(
    started: list[subprocess.Popen[str]], more: tuple[str, ...]
) -> None:
    started.append(torchrun(4, "torch_ddp.py", "--backend", "pccl", *more))
    output = started[0].communicate(timeout=LIMIT_S)[0]
    assert started[0].returncode == 0, output
    found = re.findall(r"rank (\d) of 4: loss .* parameters (\w{16})", output)
    assert sorted(rank for rank, _ in found) == ["0", "1", "2", "3"]
    assert len({digest for _, digest in found}) == 1


def test_replicas_of_shards_outlive_one_of_them(master: str, started: list[subprocess.Popen[str]]) -> None:
    started += [torchrun(2, "torch_hsdp_diloco.py", master, replica) for replica in ("1", "2")]
    read_until(started[0], "round 2: 2 replicas")
    kill_ranks(started[1])
    read_until(started[0], ": 1 replicas")
    read_until(started[0], ": weights ")
    output = started[0].communicate(timeout=LIMIT_S)[0]
    assert started[0].returncode == 0, output


def test_replicas_of_shards_end_alike(master: str, started: list[subprocess.Popen[str]]) -> None:
    started += [torchrun(2, "torch_hsdp_diloco.py", master, replica) for replica in ("1", "2")]
    outputs = [process.communicate(timeout=LIMIT_S)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0], "\n".join(outputs)
    ends = [sorted(re.findall(r"(shard \d: weights \w{16})", output)) for output in outputs]
    assert len(ends[0]) == 2
    assert ends[0] == ends[1]


def test_training_that_loses_a_rank_and_gets_another(started: list[subprocess.Popen[str]]) -> None:
    command = [sys.executable, str(EXAMPLES / "torch_ddp_elastic.py")]
    started.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    shown = started[0].communicate(timeout=LIMIT_S)[0]
    assert started[0].returncode == 0, shown
    found = re.findall(r"step (\d+): (\d) ranks, loss ([\d.]+)", shown)
    sizes = [int(size) for _, size, _ in found]
    assert [size for size, before in zip(sizes, [0, *sizes], strict=False) if size != before] == [3, 2, 3]
    losses = [float(loss) for _, _, loss in found]
    assert losses[-1] < losses[0] / 1.5
    assert max(losses[2:]) < losses[1] * 1.1, "the curve goes on"


def test_what_that_trains_learns(started: list[subprocess.Popen[str]]) -> None:
    command = [sys.executable, str(EXAMPLES / "torch_transformer.py")]
    started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    losses = [float(line.split()[-1]) for line in started[0].communicate(timeout=LIMIT_S)[0].splitlines()]
    assert started[0].returncode == 0
    assert len(losses) == 3
    assert losses == sorted(losses, reverse=True)
