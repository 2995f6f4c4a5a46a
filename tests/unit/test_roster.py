# SPDX-License-Identifier: MIT
"""The roster's small rules: causes of an epoch's end, and what is remembered of stalled operations."""

from __future__ import annotations

from typing import Any

import pytest

from pccl.errors import Status
from pccl.messages import OperationName, Report, Stalled
from pccl.protocol.roster import LEGAL, MAX_STALLS, Gathering, Group, Phase, cause_of
from pccl.protocol.types import GroupView

A, B = b"a" * 16, b"b" * 16


def _group(**gathering: Any) -> Group:
    view = GroupView(4, 3, 0, (A, B), (0, 1), (), (), 0, "")
    return Group(view, [A, B], Gathering(0, **gathering))


def _report(reason: Status, text: str) -> Report:
    return Report(4, b"", int(reason), text, ())


TIMEOUT = {A: _report(Status.ABORTED, ""), B: _report(Status.TIMEOUT, "slow")}
LINK = {(0, 1): "the link broke"}


@pytest.mark.parametrize(
    ("known", "status", "text"),
    [
        ({"lost": ["rank 2 left", "rank 3 left"], "reports": TIMEOUT}, Status.PEER_LOST, "rank 2 left; rank 3 left"),
        ({"cause": (Status.CALL_MISMATCH, "apart"), "reports": TIMEOUT}, Status.CALL_MISMATCH, "apart"),
        ({"reports": TIMEOUT, "links": LINK}, Status.TIMEOUT, "rank 1: slow"),
        ({"reports": {B: _report(Status.MISMATCH, "int8")}}, Status.MISMATCH, "rank 1: int8"),
        ({"links": LINK, "cause": (Status.PEER_LOST, "newcomers")}, Status.PEER_LOST, "the link broke"),
        ({"cause": (Status.PEER_LOST, "newcomers")}, Status.PEER_LOST, "newcomers"),
        ({"reports": {A: _report(Status.SYSTEM, "disk")}}, Status.PEER_LOST, "rank 0: disk"),
        ({"reports": {A: _report(Status.OK, "")}}, Status.PEER_LOST, "the epoch was frozen"),
    ],
)
def test_the_cause_that_helps_the_user_most_is_told(known: dict[str, Any], status: Status, text: str) -> None:
    assert cause_of(_group(**known)) == (status, text)


def _stalled(sequence: int, waited_ms: int) -> Stalled:
    return Stalled(4, OperationName(1, sequence), waited_ms, (0,), False)


def test_stalls_are_remembered_per_operation_and_bounded() -> None:
    group = _group()
    first = OperationName(1, 0)
    assert group.stall(A, _stalled(0, 100))
    assert not group.stall(B, _stalled(0, 100))
    assert group.stall(A, _stalled(0, 200))
    assert group.stalls == {first: {A: _stalled(0, 200), B: _stalled(0, 100)}}
    for sequence in range(1, MAX_STALLS + 1):
        group.stall(B, _stalled(sequence, 100))
    assert len(group.stalls) == MAX_STALLS
    assert first not in group.stalls
    group.forget_stalls(B)
    assert group.stalls == {}


def test_who_is_less_may_say_less() -> None:
    assert (
        set(LEGAL[Phase.UNKNOWN]) < set(LEGAL[Phase.GREETED]) == set(LEGAL[Phase.PENDING]) < set(LEGAL[Phase.ACCEPTED])
    )
