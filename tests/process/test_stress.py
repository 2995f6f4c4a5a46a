# SPDX-License-Identifier: MIT
"""The stress scripts in short: few repeats, small buffers, no limits of time, which are for a machine of one's own.
And `pccl stress`: a minute of `smoke`, what it says when something is wrong, and other hosts than this one."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pccl

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
LIMIT_S = 110.0
MINUTE_LIMIT_S = 220.0


def stress(script: str, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(Path(pccl.__file__).parents[1])}
    command = [sys.executable, str(ROOT / "stress" / script), *arguments]
    ran = subprocess.run(
        command,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
        env=environment,
    )
    assert ran.returncode == 0, ran.stdout
    return ran.stdout


def test_kills_in_mid_operation_split_nothing() -> None:
    generous = ("--verdict-limit-ms", "10000", "--retry-limit-ms", "20000")
    output = stress("kill_one.py", "--repeats", "6", "--mebibytes", "16", "--seed", "3", *generous)
    assert "seed 3: 6 repeats, 4 peers, 16 MiB" in output
    assert "6 kills: no split verdict, no wrong number, no hang" in output


def test_kills_at_chosen_bytes_spoil_no_result_in_place() -> None:
    output = stress("in_place_kills.py", "--kills", "6", "--kills-of-many", "1", "--seed", "5")
    assert "6 + 3 x 1 kills: no split verdict, no wrong number, no hang" in output


def test_the_master_may_be_killed_while_operations_stream() -> None:
    output = stress("master_kill.py", "--repeats", "1", "--kibibytes", "64")
    assert "none failed; then a newcomer joined the restarted master" in output


@pytest.mark.parametrize("form", ["native", "python"])
def test_kills_in_mid_backward_cost_torch_one_step(form: str) -> None:
    pytest.importorskip("torch")
    output = stress("torch_kills.py", "--repeats", "2", "--seed", "2", "--form", form, "--no-limits")
    assert "2 kills: no other parameters, no hang, no other end" in output


def pccl_stress(*arguments: str, path: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(pccl.__file__).parents[1]), "COLUMNS": "150"}
    environment["PATH"] = f"{path}:{environment['PATH']}" if path else environment["PATH"]
    return subprocess.run(
        [sys.executable, "-m", "pccl", "stress", *arguments],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=MINUTE_LIMIT_S,
        env=environment,
    )


@pytest.mark.timeout(MINUTE_LIMIT_S + 10)
def test_a_minute_of_faults_breaks_nothing(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    results, plot = tmp_path / "results.json", tmp_path / "timeline.png"
    ran = pccl_stress(
        "smoke", "--patience", "3", "--json", str(results), "--plot", str(plot), "--output", str(tmp_path)
    )
    assert ran.returncode == 0, ran.stdout
    found = json.loads(results.read_text())
    assert found["passed"]
    assert found["violations"] == []
    assert found["steps"] > 0
    assert found["faults"]
    assert all(fault["whole_s"] is not None for fault in found["faults"])
    assert found["repeat"] == f"pccl stress smoke --seed {found['seed']} --patience 3"
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.timeout(MINUTE_LIMIT_S + 10)
def test_faults_of_a_seed_over_ssh(tmp_path: Path) -> None:
    """`ssh` is a script that runs its command here: what is tried is how hosts, signals and clocks are used."""
    fake = tmp_path / "bin" / "ssh"
    fake.parent.mkdir()
    fake.write_text('#!/bin/sh\nuntil [ "${1#*127.0.0.1}" != "$1" ]; do shift; done\nshift\nexec sh -c "$*"\n')
    fake.chmod(0o755)
    scenario = tmp_path / "kills.toml"
    scenario.write_text(
        'title = "kills"\nminutes = 0.1\npeers = 3\ngap_s = [0, 0]\n'
        '[work]\ntensors = ["64 KiB"]\nstate = "64 KiB"\n[faults.kill]\n[faults.cut]\nhold_s = [1, 1]\n'
    )
    hosts = "ssh://root@127.0.0.1:22,127.0.0.1=127.0.0.1"
    options = ("--hosts", hosts, "--python", sys.executable, "--patience", "3", "--output", str(tmp_path / "logs"))
    ran = pccl_stress(str(scenario), "--seed", "5", *options, path=str(fake.parent))
    assert ran.returncode == 0, ran.stdout
    assert "SIGKILL: peer" in ran.stdout
    assert "left out, these hosts cannot do it: cut" in ran.stdout
    assert "no violation" in ran.stdout


def test_a_violation_ends_with_the_command_that_repeats_it(tmp_path: Path) -> None:
    """A limit that nobody can keep: the peers do not come together in time."""
    scenario = tmp_path / "it's hasty.toml"
    scenario.write_text(
        'title = "hasty"\nminutes = 0.2\npeers = 2\nheartbeat_s = 1\nmargin_s = 1\ngap_s = [0, 0]\n'
        '[work]\ntensors = ["64 KiB"]\nstate = "64 KiB"\n[faults.master]\nhold_s = [0, 0]\n'
    )
    words = [str(scenario), "--seed", "7", "--minutes", "0.123456789", "--peers", "3"]
    words += ["--tensors", "64 KiB, 8 KiB", "--patience", "0.1"]
    ran = pccl_stress(*words, "--output", str(tmp_path / "logs"))
    assert ran.returncode == 1, ran.stdout
    assert re.search("^VIOLATION .* progress: nothing happened for", ran.stdout, re.MULTILINE)
    (again,) = re.findall("^again: pccl stress (.*)$", ran.stdout, re.MULTILINE)
    assert shlex.split(again) == words


def test_what_cannot_be_run_is_said_in_a_line(tmp_path: Path) -> None:
    ran = pccl_stress("nothing")
    assert ran.returncode == 2
    assert "no such scenario; there are churn, flaky-links, kills, master-loss, partition, smoke, soak" in ran.stdout
    ran = pccl_stress("smoke", "--hosts", "moon")
    assert ran.returncode == 2
    assert "--hosts is local, netns:N" in ran.stdout
    ran = pccl_stress("list")
    assert ran.returncode == 0
    assert "partition" in ran.stdout


def test_what_cannot_be_read_or_written_is_said_before_anything_runs(tmp_path: Path) -> None:
    folder, unreadable = tmp_path / "folder.toml", tmp_path / "bytes.toml"
    folder.mkdir()
    unreadable.write_bytes(b"title = '\xff'")
    nowhere = str(tmp_path / "no" / "folder" / "file")
    for arguments, text in (
        ((str(folder),), "directory"),
        ((str(unreadable),), "is no text in UTF-8"),
        (("smoke", "--json", nowhere), nowhere),
        (("smoke", "--output", str(unreadable)), "exists"),
        (("smoke", "--tensors", "4 parsecs"), "each of --tensors is a size like"),
        (("smoke", "--minutes", "inf"), "--minutes"),
    ):
        ran = pccl_stress(*arguments)
        assert ran.returncode == 2, ran.stdout
        assert text in ran.stdout
        assert "Traceback" not in ran.stdout
        assert "train together" not in ran.stdout


def test_without_matplotlib_it_says_what_to_install(tmp_path: Path) -> None:
    hide = (
        "import sys; sys.modules['matplotlib'] = None; from pccl.cli import main; "
        "sys.argv = ['pccl', 'stress', 'smoke', '--plot', 'x.png']; main()"
    )
    ran = subprocess.run([sys.executable, "-c", hide], check=False, capture_output=True, text=True, timeout=LIMIT_S)
    assert ran.returncode == 2
    assert "pip install 'pccl[stress]'" in ran.stderr


@pytest.mark.alone
@pytest.mark.timeout(MINUTE_LIMIT_S + 10)
@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("tc") is None, reason="needs root and iproute2")
def test_namespaces_can_be_cut_in_two_and_leave_nothing(tmp_path: Path) -> None:
    scenario = tmp_path / "split.toml"
    scenario.write_text(
        'title = "split"\nminutes = 0.1\npeers = 3\nheartbeat_s = 1\ngap_s = [0, 0]\nlink_rate = "500 mbit"\n'
        '[work]\ntensors = ["64 KiB"]\nstate = "64 KiB"\n[faults.partition]\nhold_s = [3, 3]\n'
    )
    before = namespaces()
    ran = pccl_stress(str(scenario), "--seed", "3", "--hosts", "netns:3", "--patience", "3", "--output", str(tmp_path))
    if "`ip netns add" in ran.stdout:
        pytest.skip(f"root may not make namespaces here: {ran.stdout}")
    assert ran.returncode == 0, ran.stdout
    assert "partition, on the side without the master: peer" in ran.stdout
    assert namespaces() <= before


def namespaces() -> set[str]:
    listed = subprocess.run(["ip", "netns", "list"], check=False, capture_output=True, text=True, timeout=LIMIT_S)
    return {line.split()[0] for line in listed.stdout.splitlines()}
