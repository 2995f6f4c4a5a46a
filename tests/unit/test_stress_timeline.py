# SPDX-License-Identifier: MIT
"""What is kept for pictures, what reports say, and what the screen shows of it."""

from __future__ import annotations

import io
import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from pccl.stress import picture, report, screen
from pccl.stress.checkers import Checkers
from pccl.stress.director import Director
from pccl.stress.faults import Fault
from pccl.stress.hosts import Wanted
from pccl.stress.kinds import KINDS
from pccl.stress.scenario import Scenario
from pccl.stress.supervisor import Outcome, Settings
from pccl.stress.timeline import BINS_MAX, Timeline, recoveries
from pccl.stress.trial import Trial

SCENARIO = Scenario("paper", "on paper")


def trial(kind: str, at_s: float, recovery_s: float | None) -> Trial:
    made = Trial(Fault(kind, 0.0, 2.0, 0.0, 0.0), at_s, (1,), {0}, 2)
    if recovery_s is not None:
        made.recovered_s, made.recovery_s = at_s + recovery_s, recovery_s
        made.healed_s, made.whole_s = at_s + 2.0, at_s + 3.0
    return made


def timeline() -> Timeline:
    made = Timeline([trial("kill", 5.0, 0.1), trial("kill", 15.0, 0.3), trial("stop", 25.0, None)])
    for number in range(3):
        made.started(number, float(number))
    made.ended(1, 5.0)
    for step in range(1, 101):
        for _ in range(2):
            made.stepped(step, step * 0.3 - 0.02, step * 0.3, 2 if step < 50 else 3)
    return made


def outcome(folder: Path, violations: int = 0) -> Outcome:
    checkers = Checkers(5.0)
    director = Director(SCENARIO, 1, list(KINDS), checkers, lambda text: None)
    director.open()
    kept = timeline()
    director.trials += kept.trials
    for number in range(violations):
        checkers.add(number + 1.0, "parity", number, "[wrong]")
        kept.violations.append(number + 1.0)
    return Outcome(SCENARIO, Settings(1, Wanted("local"), folder), director, checkers, kept, ["cut"], 30.0)


def test_a_step_counts_once() -> None:
    kept = timeline()
    assert kept.last_step == 100
    assert sum(rate for _, rate in kept.rates()) == pytest.approx(100, abs=1)
    assert kept.world == [(pytest.approx(0.3), 2), (pytest.approx(15.0), 3)]
    assert kept.step_ms == pytest.approx(20)
    assert kept.lives[1] == (1.0, 5.0)


def test_long_runs_have_bounded_pictures() -> None:
    kept = Timeline()
    for step in range(1, 3000):
        kept.stepped(step, step * 10.0 - 1, step * 10.0, 2)
    assert len(kept.rates()) <= BINS_MAX + 1
    assert Timeline().rates() == []


def test_recoveries_are_summed_up_by_kind() -> None:
    kill, stop = recoveries(timeline().trials)
    assert (kill.kind, kill.count, kill.median_s, kill.max_s) == ("kill", 2, pytest.approx(0.2), pytest.approx(0.3))
    assert (kill.whole_median_s, kill.whole_max_s) == (pytest.approx(1.0), pytest.approx(1.0))
    assert (stop.kind, stop.count, stop.median_s, stop.max_s) == ("stop", 1, None, None)
    void = [replace(one, void=True) for one in timeline().trials]
    assert [line.count for line in recoveries(void)] == [0, 0]


def test_the_command_repeats_all_that_was_asked_for() -> None:
    options = {"seed": 7, "minutes": 1.5, "peers": None, "hosts": "netns:4", "tensors": "4 MiB,64 KiB"}
    line = report.command("my file.toml", options)
    assert shlex.split(line) == [
        *("pccl", "stress", "my file.toml", "--seed", "7", "--minutes", "1.5"),
        *("--hosts", "netns:4", "--tensors", "4 MiB,64 KiB"),
    ]


def test_the_report_is_plain_json_and_the_verdict_one_line(tmp_path: Path) -> None:
    good, bad = outcome(tmp_path), outcome(tmp_path, violations=2)
    assert report.as_json(good, "again")["passed"]
    read = json.loads(json.dumps(report.as_json(bad, "again")))
    assert (read["passed"], read["steps"], read["left_out"]) == (False, 100, ["cut"])
    assert read["faults"][0]["recovery_s"] == pytest.approx(0.1)
    assert read["violations"][1] == {"at_s": 2.0, "checker": "parity", "peer": 1, "text": "[wrong]"}
    assert report.verdict(good).startswith("PASSED: 100 steps in 30 s (20.0 ms each in the middle), 4 peers, 3 faults")
    assert report.verdict(bad).startswith("FAILED: ")


def test_screens_show_events_peers_and_sums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    made = outcome(tmp_path, violations=1)
    for terminal in (False, True):
        out = io.StringIO()
        shown = screen.choose(Console(file=out, force_terminal=terminal, width=150))
        shown.say(1.0, "SIGKILL: peer 1 [bold]")
        shown.show(60.0, made.director, made.timeline)
        shown.show(61.0, made.director, made.timeline)
        shown.close()
        text = out.getvalue()
        assert "SIGKILL: peer 1 [bold]" in text
        assert "step 100, 3 members" in text
        assert "1 violations" in text
    assert len(screen.cells(made.director.peers[0])) == len(screen.COLUMNS)


def test_the_picture_is_a_png(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name, kept in (("full", timeline()), ("empty", Timeline())):
        path = tmp_path / f"{name}.png"
        picture.write(kept, "a title", path)
        assert path.read_bytes().startswith(b"\x89PNG")
