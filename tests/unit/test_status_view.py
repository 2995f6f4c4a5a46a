# SPDX-License-Identifier: MIT
"""How a status looks: troubles in words, members in a table, durations that people read."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from pccl import scope
from pccl.messages import (
    Census,
    OperationName,
    StatusAnswer,
    StatusCall,
    StatusCount,
    StatusGroup,
    StatusMember,
    StatusNewcomer,
    StatusStall,
)
from pccl.status_view import SHOWN_RANKS, duration, heading, plain, render, troubles


def member(rank: int, **changed: Any) -> StatusMember:
    healthy = StatusMember(0, rank, f"{rank:08x}", "10.0.0.1", 4000 + rank, 5, 2, 20, True, False, False, 0, 0, "")
    return replace(healthy, **changed)


def answer(**changed: Any) -> StatusAnswer:
    group, members = StatusGroup(0, 7, 2, (0, 1), 0, (), 0, (), "rank 2 was lost", (), ()), (member(0), member(1))
    counts = (StatusCount("lost", 1),)
    healthy = StatusAnswer(3, 61_000, 5_000, 7, Census(2, 1, 2), 9, 1234, (group,), members, (), (), (), counts)
    return replace(healthy, **changed)


def shown(of: StatusAnswer) -> str:
    console = Console(file=io.StringIO(), width=200)
    console.print(render("m:1", of))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_healthy_run_shows_who_is_there_and_no_trouble() -> None:
    assert heading("m:1", answer()) == "m:1: 2 peers in 1 group, 0 newcomers, epoch 7, up 1 min 01 s"
    assert troubles(answer()) == []
    text = shown(answer())
    assert "00000001  10.0.0.1:4001" in text
    assert "group 0: epoch 7 (rank 2 was lost), all links, ring 0 1" in text
    assert "since the master's start: lost 1; 9 records, journal 1234 bytes" in text


def test_stalls_name_those_that_have_not_come() -> None:
    stalls = (
        StatusStall(0, 7, OperationName(3, 8), 0, 3_100, (1,), True),
        StatusStall(0, 7, OperationName(4, 0), 0, 150, (1,), False),
        StatusStall(0, 7, OperationName(4, 0), 1, 160, (), False),
        StatusStall(0, 7, OperationName(4, 0, scope.of_pair(1, 0)), 0, 170, (1,), False),
    )
    assert troubles(answer(stalls=stalls)) == [
        "group 0: tag 3 #8 of epoch 7 waits since 3.1 s for rank 1 (peer 00000001) to start it",
        "group 0: tag 4 #0 of epoch 7 waits since 160 ms: rank 0 for rank 1; rank 1 for others",
        "group 0: tag 4 #0 from rank 1 to rank 0 of epoch 7 waits since 170 ms: rank 0 for rank 1",
    ]


def test_calls_stopped_epochs_links_and_suspects_are_troubles() -> None:
    calls = (
        StatusCall("update_topology", False, 0, 1, 2, 5_000, "rank 1 of group 0"),
        StatusCall("sync_shared_state", True, 4, 1, 3, 10, "rank 2 of group 4"),
    )
    groups = (StatusGroup(0, 7, 2, (0, 1), 0, (), 1_500, (1,), "", (), (0, 1)),)
    members = (member(0, suspected=True), member(1, returning=True, connected=False))
    assert troubles(answer(calls=calls, groups=groups, members=members)) == [
        "group 0: epoch 7 is stopped since 1.5 s; reports missing: rank 1",
        "update_topology: 1 of 2 since 5.0 s; waits for rank 1 of group 0",
        "sync_shared_state of group 4: 1 of 3 since 10 ms; waits for rank 2 of group 4",
        "group 0: links that broke lately: between ranks 0-1",
        "rank 0 of group 0 (peer 00000000) is suspected and probed",
        "rank 1 of group 0 (peer 00000001) has not come back since the master's restart",
    ]


def test_avoided_links_and_what_is_used_instead_are_shown() -> None:
    ring = StatusGroup(0, 7, 4, (0, 1, 2, 3), 1, (), 0, (), "", (0, 2), ())
    tree = StatusGroup(1, 9, 4, (2, 0, 3, 1), 2, (0, 0, 0, 2), 0, (), "", (0, 1, 0, 3, 1, 2), (0, 2))
    both = answer(groups=(ring, tree), members=())
    assert troubles(both) == [
        "group 0: no link between ranks 0-2; all operations go round a ring instead",
        "group 1: no link between ranks 0-1, 0-3, 1-2; all operations go along a tree instead",
        "group 1: links that broke lately: between ranks 0-2",
    ]
    assert "group 0: epoch 7 (), only the links of ring 0 1 2 3" in shown(both)
    assert "group 1: epoch 9 (), tree 2-0, 2-3, 3-1" in shown(both)
    strange = replace(tree, parents=(0, 7, 0, 2))
    assert "group 1: epoch 9 (), tree 2-3, 3-1" in shown(answer(groups=(strange,)))
    data = json.loads(json.dumps(plain(both)))
    assert [it["shape"] for it in data["groups"]] == ["RING", "TREE"]
    assert [(it["avoided"], it["broken"]) for it in data["groups"]] == [
        ([[0, 2]], []),
        ([[0, 1], [0, 3], [1, 2]], [[0, 2]]),
    ]


def test_late_members_newcomers_and_what_is_left_out_are_shown() -> None:
    newcomer = StatusNewcomer(3, "abcdef01", "10.0.0.9", 99, 2_500, True)
    group = StatusGroup(0, 7, 500, tuple(range(500)), 0, (), 0, (), "", (), ())
    text = shown(
        answer(
            members=(member(0, late=12, late_ms=3_000, waits="[bold]not markup"), member(1, host_id=6, cores=1)),
            newcomers=(newcomer,),
            groups=(group,),
            census=Census(500, 1, 500),
            journal_bytes=0,
        )
    )
    assert "12 times, 3.0 s at most" in text
    assert "A, 2 cores" in text
    assert "B, 1 core " in text
    assert "[bold]not markup" in text
    assert "newcomer: peer abcdef01 at 10.0.0.9:99 for group 3, heard 2.5 s ago" in text
    assert "and 498 more" in text
    assert f"and {500 - SHOWN_RANKS} more" in text
    assert "no journal" in text


def test_plain_is_json() -> None:
    data = json.loads(json.dumps(plain(answer())))
    assert data["counts"] == {"lost": 1}
    assert data["members"][1]["address"] == "10.0.0.1"


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(12, "12 ms"), (3_450, "3.5 s"), (306_000, "5 min 06 s"), (7_500_000, "2 h 05 min")],
)
def test_durations(milliseconds: int, text: str) -> None:
    assert duration(milliseconds) == text
