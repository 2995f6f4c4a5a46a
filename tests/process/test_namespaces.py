# SPDX-License-Identifier: MIT
"""`--hosts netns` leaves nothing behind, however it ends, and takes nothing away that is not its own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import pccl
from pccl.stress import namespaces
from pccl.stress.hosts import HostsError
from pccl.stress.namespaces import Namespaces

pytestmark = [
    pytest.mark.process,
    pytest.mark.alone,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("tc") is None, reason="needs root and iproute2"),
]

ROOT = Path(pccl.__file__).parents[1]
LIMIT_S = 60.0
HOSTS = 2


def listed() -> set[str]:
    command = ["ip", "netns", "list"]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=LIMIT_S).stdout
    return {line.split()[0] for line in said.splitlines()}


def made_by(pid: int) -> set[str]:
    return {name for name in listed() if name.startswith(f"pccl{pid}")}


@pytest.fixture(scope="module", autouse=True)
def possible() -> None:
    try:
        with Namespaces(1):
            pass
    except HostsError as refused:
        pytest.skip(f"root may not make namespaces here: {refused}")


@pytest.fixture
def foreign() -> Iterator[str]:
    """A namespace of somebody else, whose name begins like ours and has the number of a process that is gone."""
    name = "pccl4194999-of-mine"
    namespaces._run("ip", "netns", "add", name)
    yield name
    namespaces._run("ip", "netns", "del", name)


def begun(folder: Path, count: int) -> subprocess.Popen[str]:
    """A stress test that has made at least `count` namespaces."""
    options = ("--hosts", f"netns:{HOSTS}", "--peers", "2", "--output", str(folder))
    supervisor = subprocess.Popen(
        [sys.executable, "-m", "pccl", "stress", "partition", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    deadline = time.monotonic() + LIMIT_S
    while len(made_by(supervisor.pid)) < count:
        assert supervisor.poll() is None, supervisor.communicate()[0]
        assert time.monotonic() < deadline, "no namespaces were made"
    return supervisor


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("count", [1, HOSTS + 2])
def test_a_signal_ends_it_and_nothing_is_left(number: int, status: int, count: int, tmp_path: Path) -> None:
    with begun(tmp_path, count) as supervisor:
        supervisor.send_signal(number)
        said, _ = supervisor.communicate(timeout=LIMIT_S)
    assert supervisor.returncode == status, said
    assert "Traceback" not in said
    assert made_by(supervisor.pid) == set()


def test_what_a_kill_left_behind_is_removed_by_the_next_one(foreign: str, tmp_path: Path) -> None:
    with begun(tmp_path, HOSTS + 2) as supervisor:
        supervisor.kill()
        supervisor.communicate(timeout=LIMIT_S)
    assert len(made_by(supervisor.pid)) == HOSTS + 2
    with Namespaces(1):
        assert made_by(supervisor.pid) == set()
        assert len(made_by(os.getpid())) == 3
    assert made_by(os.getpid()) == set()
    assert foreign in listed()


def test_a_half_made_host_is_removed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Namespaces._ip

    def refuse(self: Namespaces, *arguments: str) -> None:
        if "veth" in arguments:
            raise HostsError("no")
        real(self, *arguments)

    monkeypatch.setattr(Namespaces, "_ip", refuse)
    with pytest.raises(HostsError, match="no"), Namespaces(1):
        pass
    assert made_by(os.getpid()) == set()
