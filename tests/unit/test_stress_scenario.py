# SPDX-License-Identifier: MIT
"""Scenario files: what they may say, and what they are told when they are wrong."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pccl.stress import scenario
from pccl.stress.scenario import Scenario, ScenarioError, Source

PATH = Path("mine.toml")

GOOD = """
title = "mine"
minutes = 0.5
peers = 3
gap_s = [0, 2.5]
link_rate = "100 mbit"

[work]
tensors = ["8 KiB", "1 MiB"]
state = "64 KiB"
in_flight = 2
collectives = ["reduce", "scan", "reduce"]

[faults.kill]
weight = 2

[faults.stop]
hold_s = [1, 2]
"""


def test_a_file_becomes_plain_values() -> None:
    read = scenario.parse(GOOD, PATH)
    assert (read.name, read.title, read.minutes, read.peers) == ("mine", "mine", 0.5, 3)
    assert (read.gap_s, read.link_rate) == ((0.0, 2.5), 100_000_000)
    assert (read.work.tensors, read.work.state, read.work.in_flight) == ((8192, 1 << 20), 65536, 2)
    assert read.work.collectives == ("reduce", "scan")
    assert read.work.steps_per_sync == Scenario("", "").work.steps_per_sync
    assert read.faults == (Source("kill", 2.0), Source("stop", 1.0, (1.0, 2.0)))


@pytest.mark.parametrize(
    ("changes", "line", "key", "text"),
    [
        (("peers = 3", "peers = 1"), 4, "peers", "is a whole number from 2 to 128, not 1"),
        (("peers = 3", "peers = true"), 4, "peers", "is a whole number from 2 to 128, not True"),
        (("gap_s = [0, 2.5]", "gap_s = [3, 2]"), 5, "gap_s", "begins with the smaller number"),
        (("gap_s = [0, 2.5]", "gap_s = 3"), 5, "gap_s", "is two numbers of seconds"),
        (("100 mbit", "fast"), 6, "link_rate", 'is a rate like "100 mbit"'),
        (('"1 MiB"', '"1 B"'), 9, "work.tensors", "is a size of at least"),
        (("in_flight", "inflight"), 11, "work.inflight", "is not known; there are tensors, collectives, state"),
        (('"scan", "reduce"', '"all_in"'), 12, "work.collectives", "is one of all_reduce, reduce"),
        (('["reduce", "scan", "reduce"]', "[]"), 12, "work.collectives", "is a list of collectives"),
        (("[faults.kill]", "[faults.murder]"), 14, "faults.murder", "is no kind of fault; there are kill, leave"),
        (("weight = 2", "weight = 0"), 15, "faults.kill.weight", "is a number from 0.001 to 1000, not 0"),
        (("hold_s = [1, 2]", "hold = 1"), 18, "faults.stop.hold", "is not known; there are weight, hold_s"),
        (('title = "mine"', ""), None, "title", "is missing"),
        (("peers = 3", "peers = = 3"), 4, "", "line 4"),
    ],
)
def test_what_is_wrong_is_named(changes: tuple[str, str], line: int | None, key: str, text: str) -> None:
    with pytest.raises(ScenarioError) as raised:
        scenario.parse(GOOD.replace(*changes), PATH)
    assert text in str(raised.value)
    if key:
        assert (raised.value.key, raised.value.line) == (key, line)
        assert str(raised.value).startswith(f"mine.toml:{line}: " if line else "mine.toml: ")


VALUES = [
    "0",
    "-1",
    "1e400",
    "nan",
    "inf",
    "[nan, 1]",
    "[1, inf]",
    "[]",
    "[[1]]",
    "true",
    "{}",
    "{a = 1}",
    "1979-05-27",
]
VALUES += ["9" * 40, '""', '"nan mbit"', '"-1 KiB"', '"9999999999999999999 GiB"', '["1 KiB", 1]', '"\u00b2 KiB"']


@given(st.sampled_from(re.findall(r"^\w+ =", GOOD, re.MULTILINE)), st.sampled_from(VALUES))
def test_any_value_of_any_key_is_taken_or_refused(key: str, value: str) -> None:
    with contextlib.suppress(ScenarioError):
        assert scenario.parse(re.sub(f"^{key} .*$", f"{key} {value}", GOOD, flags=re.MULTILINE), PATH).faults


@given(st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.text(max_size=4)), max_size=3))
def test_an_altered_file_is_read_or_refused(changes: list[tuple[int, str]]) -> None:
    text = list(GOOD)
    for place, other in changes:
        text[place] = other
    with contextlib.suppress(ScenarioError):
        assert isinstance(scenario.parse("".join(text), PATH), Scenario)


def test_those_that_come_with_pccl_can_be_read() -> None:
    assert scenario.names() == ["churn", "flaky-links", "kills", "master-loss", "partition", "smoke", "soak"]
    for name in scenario.names():
        read = scenario.load(name)
        assert read.name == name
        assert read.faults


def test_a_name_that_does_not_exist_lists_those_that_do(tmp_path: Path) -> None:
    for name in ("fire", str(tmp_path / "fire.toml")):
        with pytest.raises(ScenarioError, match="no such scenario; there are churn, flaky-links"):
            scenario.load(name)


def test_a_file_of_ones_own_is_read_from_its_path(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(GOOD)
    assert scenario.load(str(path)).name == "own"
