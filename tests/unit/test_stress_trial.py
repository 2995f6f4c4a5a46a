# SPDX-License-Identifier: MIT
"""Recovery times: which steps count, and for whom is waited."""

from __future__ import annotations

import pytest

from pccl.stress.faults import Fault
from pccl.stress.trial import Trial


def trial(kind: str = "kill", victims: tuple[int, ...] = (3,), survivors: tuple[int, ...] = (0, 1)) -> Trial:
    return Trial(Fault(kind, 0.0, 5.0, 0.0, 0.0), 10.0, victims, set(survivors), 3)


def test_recovered_is_when_the_last_survivor_has_a_step_that_began_after_the_fault() -> None:
    it = trial()
    it.stepped(0, 9.0, 10.5, [0, 1, 3], {0, 1})
    assert it.recovered_s is None, "the victim may have done its part before it died"
    it.stepped(0, 10.6, 10.8, [0, 1], {0, 1})
    it.stepped(1, 10.6, 11.0, [0, 1], {0, 1})
    assert it.recovery_s == pytest.approx(1.0)
    it.stepped(1, 11.6, 12.0, [0, 1], {0, 1})
    assert it.recovery_s == pytest.approx(1.0)


def test_a_step_that_was_under_way_counts_if_the_victim_had_no_part_in_it() -> None:
    it = trial()
    for number in (0, 1):
        it.stepped(number, 9.0, 10.2, [0, 1], {0, 1})
    assert it.recovery_s == pytest.approx(0.2)


def test_a_fault_without_victims_needs_a_step_that_began_after_it() -> None:
    it = trial("master", victims=())
    it.stepped(0, 9.0, 10.2, [0, 1], {0, 1})
    assert it.recovered_s is None


def test_whole_needs_one_step_of_all_that_live_after_the_heal() -> None:
    it = trial("stop")
    for number in (0, 1):
        it.stepped(number, 11.0, 12.0, [0, 1], {0, 1, 3})
    it.healed(15.0)
    assert not it.over
    for number in (0, 1, 3):
        it.stepped(number, 14.0, 16.0, [0, 1, 3], {0, 1, 3})
    assert it.whole_s is None, "began before the heal"
    for number in (0, 1, 3):
        it.stepped(number, 16.0, 17.0 + number, [0, 1, 3], {0, 1, 3})
    assert it.whole_s == 20.0
    assert it.over


def test_nothing_is_expected_of_a_survivor_that_meets_its_own_fault() -> None:
    it = trial()
    it.stepped(0, 11.0, 12.0, [0, 1], {0, 1})
    it.leaves([1], 13.0)
    assert it.recovery_s == pytest.approx(3.0)


def test_it_says_whom_it_waits_for() -> None:
    it = trial()
    assert it.explain() == "no step of peer 0, peer 1 since SIGKILL: peer 3"
    it.leaves([0, 1], 11.0)
    assert it.explain() == "no step of all peers together since the end of: SIGKILL: peer 3"
