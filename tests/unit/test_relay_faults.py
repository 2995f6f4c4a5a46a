# SPDX-License-Identifier: MIT
"""Faults as values, the arithmetic of rates, and damage that a seed decides."""

from __future__ import annotations

from typing import Any

import pytest

from pccl.errors import InvalidArgument
from pccl.stress.relay_faults import Corrupter, Faults, Pacer


def test_changes_leave_other_fields() -> None:
    faults = Faults(delay_ms=5, rate=100).changed({"rate": 200, "hold": True})
    assert faults == Faults(delay_ms=5, rate=200, hold=True)
    assert faults.changed({"delay_ms": 0.5}).delay_ms == 0.5


@pytest.mark.parametrize(
    "changes", [{"rate": -1}, {"rate": 1.5}, {"hold": 1}, {"rate": True}, {"delay_ms": "3"}, {"latency": 3}]
)
def test_impossible_faults_are_refused_by_name(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=next(iter(changes))):
        Faults().changed(changes)


def test_pieces_are_small_under_any_rate() -> None:
    assert Faults().piece_bytes() == 0
    assert Faults(rate=1).piece_bytes() == 1
    assert Faults(rate=10**6, total_rate=10**5).piece_bytes() == 1000


def test_a_pacer_sends_one_after_the_other_at_its_rate() -> None:
    pacer = Pacer()
    assert pacer.passed_at(10.0, 5, 0) == 10.0
    assert pacer.passed_at(10.0, 50, 100) == 10.5
    assert pacer.passed_at(10.1, 50, 100) == 11.0
    assert pacer.passed_at(20.0, 50, 100) == 20.5


def damaged_positions(seed: str, every: int, count: int, step: int) -> list[int]:
    """Walks over a stream in steps, as a sender does that ends each piece with a damaged byte."""
    corrupter, position, found = Corrupter(seed), 0, []
    while position < count:
        distance = corrupter.distance(every)
        piece = min(step, distance + 1)
        if distance < piece:
            found.append(position + distance)
            assert corrupter.damaged(7) != 7
            assert corrupter.damaged(7) == corrupter.damaged(7)
        corrupter.passed(piece)
        position += piece
    return [position for position in found if position < count]


def test_damage_depends_on_the_seed_and_not_on_the_pieces() -> None:
    whole = damaged_positions("a", 100, 100_000, 100_000)
    assert damaged_positions("a", 100, 100_000, 7) == whole
    assert damaged_positions("b", 100, 100_000, 7) != whole
    assert 800 < len(whole) < 1200
    assert damaged_positions("a", 1, 1000, 10)[:3] != []
