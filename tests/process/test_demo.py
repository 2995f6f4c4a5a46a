# SPDX-License-Identifier: MIT
"""`pccl demo` in short: the whole story with few rounds and few local steps, real kills included."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

LIMIT_S = 110.0


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S
    )


def test_the_demo_keeps_its_promises(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib")
    command = [sys.executable, "-m", "pccl", "demo", "--output", str(tmp_path), "--steps", "60", "--rounds", "10"]
    ran = run(command)
    logs = "".join(path.read_text() for path in tmp_path.glob("*.log"))
    assert ran.returncode == 0, ran.stdout + logs
    for event in (
        "SIGKILL for peer-2",
        "kill -9 for the master",
        "it restarts from its journal",
        "peer-4 received the shared state of round",
        "peer-5 received the shared state of round",
        "all 5 peers hold identical state: ",
    ):
        assert event in ran.stdout
    accuracy = re.search(r"test accuracy: ([\d.]+)%", ran.stdout)
    assert accuracy is not None
    assert float(accuracy.group(1)) >= 95.0
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_without_its_packages_the_demo_says_what_to_install() -> None:
    hide = "import sys; sys.modules['sklearn'] = None; from pccl.cli import main; sys.argv = ['pccl', 'demo']; main()"
    ran = run([sys.executable, "-c", hide])
    assert ran.returncode == 2
    assert "pip install 'pccl[demo]'" in ran.stdout


def test_a_folder_that_cannot_be_made_is_one_clear_line() -> None:
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib")
    ran = run([sys.executable, "-m", "pccl", "demo", "--output", f"{__file__}/folder"])
    assert ran.returncode == 2
    assert ran.stdout.startswith("pccl demo: ")
    assert "Traceback" not in ran.stdout
