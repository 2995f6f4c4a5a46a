# SPDX-License-Identifier: MIT
"""The peer's half of a synchronisation: plans to the shell, reports to the master, as often as needed."""

from __future__ import annotations

import pytest

from pccl.messages import Heartbeat, StateFailed, StateFetched, StatePlan
from pccl.protocol.state_peer import PeerStateSync, Transfer
from pccl.protocol.types import Tell

CALL = 4


def plan(sync: int, call: int = CALL, round: int = 0) -> StatePlan:
    return StatePlan(call, sync, True, (), (), round=round)


@pytest.fixture
def half() -> PeerStateSync:
    made = PeerStateSync()
    assert made.voted(CALL, b"", 0) == []
    return made


def test_plan_becomes_a_transfer_and_its_report_is_told(half: PeerStateSync) -> None:
    assert half.received(plan(1), 0) == [Transfer(plan(1))]
    assert half.reregistered(0) == []
    report = StateFetched(1, ())
    assert half.event(report, 0) == [Tell(report)]


@pytest.mark.parametrize("report", [StateFetched(1, ()), StateFailed(1, "why")], ids=["fetched", "failed"])
def test_report_is_told_again_until_the_vote_has_ended(half: PeerStateSync, report: object) -> None:
    half.received(plan(1), 0)
    half.event(report, 0)
    assert half.reregistered(0) == [Tell(report)]
    assert half.voted(CALL, b"", 0) == []
    assert half.received(plan(1), 0) == [Tell(report)], "the master asks because it has not heard it"
    assert half.ended(0, 0) == []
    assert half.reregistered(0) == []


def test_restarted_masters_plan_replaces_the_earlier_one(half: PeerStateSync) -> None:
    half.received(plan(1), 0)
    half.event(StateFetched(1, ()), 0)
    assert half.received(plan(2), 0) == [Transfer(plan(2))]
    assert half.event(StateFetched(1, ()), 0) == []
    assert half.reregistered(0) == []
    assert half.event(StateFetched(2, ()), 0) == [Tell(StateFetched(2, ()))]


def test_plan_of_another_round_replaces_the_earlier_one(half: PeerStateSync) -> None:
    half.received(plan(1), 0)
    half.event(StateFailed(1, "all donors are gone"), 0)
    assert half.received(plan(1, round=1), 0) == [Transfer(plan(1, round=1))]
    assert half.reregistered(0) == []
    assert half.event(StateFetched(1, ()), 0) == [], "its thread had not heard of the new plan yet"
    assert half.event(StateFetched(1, (), round=1), 0) == [Tell(StateFetched(1, (), round=1))]


def test_plan_for_another_call_changes_nothing(half: PeerStateSync) -> None:
    assert half.received(plan(1, CALL - 1), 0) == []
    half.ended(0, 0)
    assert half.received(plan(1), 0) == []


def test_new_vote_forgets_the_earlier_one(half: PeerStateSync) -> None:
    half.received(plan(1), 0)
    half.event(StateFetched(1, ()), 0)
    half.voted(CALL + 1, b"", 0)
    assert half.reregistered(0) == []


def test_what_is_not_a_report_is_not_told(half: PeerStateSync) -> None:
    assert half.event(StateFetched(1, ()), 0) == []
    half.received(plan(1), 0)
    assert half.event(Heartbeat(1), 0) == []
    assert half.event(StateFetched(9, ()), 0) == []
