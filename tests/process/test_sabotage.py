# SPDX-License-Identifier: MIT
"""Each checker of `pccl stress` finds, in a real run, what it is for: the workers are spoilt on purpose."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pccl

pytestmark = [pytest.mark.process, pytest.mark.alone]

LIMIT_S = 150.0
SABOTEUR = Path(__file__).with_name("saboteur.py")
SCENARIO = """
title = "nothing happens by itself"
minutes = 0.1
peers = 6
[work]
tensors = ["64 KiB", "8 KiB"]
state = "64 KiB"
pause_ms = 20
"""


@pytest.mark.timeout(LIMIT_S + 10)
def test_every_checker_finds_its_saboteur(tmp_path: Path) -> None:
    scenario, results = tmp_path / "calm.toml", tmp_path / "results.json"
    scenario.write_text(SCENARIO)
    shutil.copy(SABOTEUR, tmp_path / "sitecustomize.py")
    ran = subprocess.run(
        [sys.executable, "-m", "pccl", "stress", str(scenario), "--patience", "3", "--json", str(results)],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{Path(pccl.__file__).parents[1]}", "TMPDIR": str(tmp_path)},
    )
    assert ran.returncode == 1, ran.stdout
    found = {(it["checker"], it["peer"]): it["text"] for it in reversed(json.loads(results.read_text())["violations"])}
    for checker, peer, text in (
        ("exactness", 0, r"step \d+: tensor 0 \(all_reduce\): not the sum of what \[.*\] gave"),
        ("parity", 2, r"the state of revision \d+ is not that of step"),
        ("innocence", 3, "an operation failed without a cause: rank 7 was lost, says the saboteur"),
        ("spin", 4, r"idle for .* s, it used .* s of processor time"),
        ("errors", 5, "InvalidArgument: says the saboteur"),
        ("processes", 5, "ended by itself with exit status 2"),
    ):
        assert re.match(text, found[checker, peer]), ran.stdout
    assert "agreement" in {checker for checker, _ in found}, "of which peer depends on who reports the step first"
    assert re.search(rf"again: pccl stress {re.escape(str(scenario))} --seed \d+ --patience 3\n", ran.stdout)
