# SPDX-License-Identifier: MIT
"""Some of torch's own tests, as `make test-torch` runs all of them: none is worse than on Gloo."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.torch.suite.runs import REDUCED, RUNS, baseline

pytestmark = pytest.mark.process

LIMIT_S = 110.0


def test_torchs_own_tests_pass(form: str) -> None:
    command = [sys.executable, "-m", "tests.torch.suite", "ws3", "--reduced", "--form", form]
    root = Path(__file__).parents[2]
    ran = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert f"ws3: {len(REDUCED)} pass" in ran.stdout


def test_gloo_passes_what_is_run_with_every_change() -> None:
    known = baseline("ws3")
    assert [it for it in REDUCED if known.get(it) != "pass"] == []


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_there_is_a_baseline_for_each_run(run: object) -> None:
    assert "pass" in baseline(run.name).values()
