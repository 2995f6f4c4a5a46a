# SPDX-License-Identifier: MIT
"""Each checker finds what it is for, and nothing where all is well."""

from __future__ import annotations

from typing import Any

import pytest

from pccl.stress import checkers, values
from pccl.stress.checkers import Checkers
from pccl.stress.faults import Fault
from pccl.stress.trial import Trial

COUNT = 5000


def tensor(members: list[int], step: int, index: int = 0) -> dict[str, Any]:
    total = values.total(members, step, index, COUNT)
    told = {"collective": "all_reduce", "members": members, "source": None, "world": len(members), "epoch": 1}
    return {**told, "total": float(total), "count": COUNT}


def step(members: list[int], number: int = 1, **changes: Any) -> dict[str, Any]:
    tensors = [tensor(members, number, index) for index in range(2)]
    times = {"begin_ns": 0, "end_ns": 10**7, "cpu_ns": 10**7}
    return {"kind": "step", "step": number, "faults": [], "tensors": tensors, **times, **changes}


def synced(revision: int, steps: int, **changes: Any) -> dict[str, Any]:
    usage = {"links": 2, "fds": 20, "threads": 4, "rss_bytes": 100 << 20}
    return {"kind": "synced", "revision": revision, "steps": steps, "world": 2, "right": True, **usage, **changes}


@pytest.fixture
def all_of_them() -> Checkers:
    made = Checkers(heartbeat_s=5.0)
    for number in range(3):
        made.started(number)
    return made


def found(made: Checkers) -> list[str]:
    return [f"{violation.checker}: {violation.text}" for violation in made.violations]


def test_a_good_run_has_no_violation(all_of_them: Checkers) -> None:
    for count in range(1, 200):
        for number in range(3):
            all_of_them.observe(float(count), number, step([0, 1, 2], count))
            all_of_them.observe(float(count), number, synced(count, count))
    assert found(all_of_them) == []


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"members": [1, 2]}, "its own contribution is missing"),
        ({"members": [0, 1, 9]}, "has peers that were never started"),
        ({"world": 2}, "took part, but the world size is 2"),
        ({"total": 1.0}, "the elements add up to 1, not"),
        ({"source": [9]}, "has peers that were never started"),
    ],
)
def test_results_are_recomputed(all_of_them: Checkers, changes: dict[str, Any], text: str) -> None:
    all_of_them.observe(1.0, 0, step([0, 1, 2], tensors=[{**tensor([0, 1, 2], 1), **changes}]))
    assert text in found(all_of_them)[0]


def test_what_the_worker_found_wrong_is_passed_on(all_of_them: Checkers) -> None:
    all_of_them.observe(1.0, 0, step([0, 1, 2], faults=["tensor 1 is not the sum"]))
    assert found(all_of_them) == ["exactness: step 1: tensor 1 is not the sum"]


def test_different_verdicts_for_one_step_show(all_of_them: Checkers) -> None:
    all_of_them.observe(1.0, 0, step([0, 1, 2], 5))
    all_of_them.observe(1.1, 1, step([0, 1], 5))
    assert found(all_of_them)[0] == "agreement: step 5, tensor 0: members [0, 1], for peer 0 [0, 1, 2]"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"epoch": 2}, "epoch 2, for peer 0 1"),
        ({"source": [2]}, "source [2], for peer 0 [1]"),
        ({"collective": "scatter"}, "collective scatter, for peer 0 broadcast"),
    ],
)
def test_what_does_not_tell_its_members_is_compared_all_the_same(
    all_of_them: Checkers, changes: dict[str, Any], text: str
) -> None:
    told = {"collective": "broadcast", "members": None, "source": [1], "world": 3, "epoch": 1}
    all_of_them.observe(1.0, 0, step([0, 1, 2], tensors=[told]))
    all_of_them.observe(1.0, 1, step([0, 1, 2], tensors=[{**told, "source": None}]))
    assert found(all_of_them) == [], "who gets nothing cannot tell"
    all_of_them.observe(1.0, 2, step([0, 1, 2], tensors=[{**told, **changes}]))
    assert found(all_of_them) == [f"agreement: step 1, tensor 0: {text}"]


def test_states_that_differ_show(all_of_them: Checkers) -> None:
    all_of_them.observe(1.0, 0, synced(3, 15))
    all_of_them.observe(1.0, 1, synced(3, 14))
    all_of_them.observe(1.0, 2, synced(3, 15, right=False))
    assert found(all_of_them) == [
        "parity: revision 3 is step 14 here, but step 15 for peer 0",
        "parity: the state of revision 3 is not that of step 15",
    ]


@pytest.mark.parametrize(("revision", "steps"), [(2, 20), (4, 14)])
def test_a_state_that_falls_back_shows(all_of_them: Checkers, revision: int, steps: int) -> None:
    all_of_them.observe(1.0, 0, synced(3, 15))
    all_of_them.observe(2.0, 1, synced(revision, steps))
    assert found(all_of_them) == [], "a newcomer has nothing to fall back from"
    all_of_them.observe(3.0, 0, synced(revision, steps))
    assert found(all_of_them) == [
        f"parity: it agreed to revision 3 of step 15, then to revision {revision} of step {steps}"
    ]


def test_losses_need_a_cause(all_of_them: Checkers) -> None:
    lost = {"kind": "lost", "tensor": 0, "why": "rank 1 was lost"}
    trial = Trial(Fault("kill", 0.0, 0.0, 0.0, 0.0), 10.0, (2,), {0, 1}, 3)
    all_of_them.innocence.trials.append(trial)
    all_of_them.observe(9.0, 0, lost)
    assert found(all_of_them) == ["innocence: an operation failed without a cause: rank 1 was lost"]
    all_of_them.observe(10.1, 0, lost)
    trial.healed_s, trial.whole_s = 10.0, 11.0
    all_of_them.observe(20.9, 0, lost)
    assert len(found(all_of_them)) == 1
    all_of_them.observe(21.1, 0, lost)
    assert len(found(all_of_them)) == 2


def test_the_masters_death_is_no_cause(all_of_them: Checkers) -> None:
    all_of_them.innocence.trials.append(Trial(Fault("master", 0.0, 5.0, 0.0, 0.0), 10.0, (), {0, 1}, 3))
    all_of_them.observe(11.0, 0, {"kind": "lost", "tensor": 0, "why": "no answer"})
    assert found(all_of_them) == ["innocence: an operation failed without a cause: no answer"]


def test_only_victims_may_be_expelled(all_of_them: Checkers) -> None:
    all_of_them.innocence.trials.append(Trial(Fault("stop", 0.0, 9.0, 0.0, 0.0), 10.0, (2,), {0, 1}, 3))
    all_of_them.observe(20.0, 2, {"kind": "expelled", "why": "silent"})
    assert found(all_of_them) == []
    all_of_them.observe(20.0, 1, {"kind": "expelled", "why": "silent"})
    assert found(all_of_them) == ["innocence: it was expelled although a way led to it: silent"]


def test_a_link_that_is_reset_can_be_dialled_again(all_of_them: Checkers) -> None:
    all_of_them.innocence.trials.append(Trial(Fault("reset", 0.0, 0.0, 0.0, 0.0), 10.0, (2,), {0, 1}, 3))
    all_of_them.observe(10.1, 0, {"kind": "lost", "tensor": 0, "why": "the link broke"})
    assert found(all_of_them) == []
    all_of_them.observe(10.1, 2, {"kind": "expelled", "why": "its links broke"})
    assert found(all_of_them) == ["innocence: it was expelled although a way led to it: its links broke"]
    for at_s in (30.0, 50.0):
        all_of_them.innocence.trials.append(Trial(Fault("reset", 0.0, 0.0, 0.0, 0.0), at_s, (2,), {0, 1}, 3))
    all_of_them.observe(50.1, 2, {"kind": "expelled", "why": "its links broke again and again"})
    assert len(found(all_of_them)) == 2, "however often it was reset"


@pytest.mark.parametrize(
    ("growth", "text"),
    [({"fds": 24}, "4 more descriptors"), ({"threads": 5}, "1 more threads"), ({"rss_bytes": 140 << 20}, "memory")],
)
def test_growth_that_stays_is_a_leak(all_of_them: Checkers, growth: dict[str, int], text: str) -> None:
    for count in range(60):
        all_of_them.observe(float(count), 0, synced(count, count))
    for count in range(60, 80):
        all_of_them.observe(float(count), 0, synced(count, count, **growth))
    all_of_them.observe(80.0, 0, synced(80, 80))
    assert found(all_of_them) == [], "it went away again"
    for count in range(100, 140):
        all_of_them.observe(float(count), 0, synced(count, count, **growth))
    assert len(found(all_of_them)) == 1
    assert text in found(all_of_them)[0]


def test_a_copy_of_what_is_worked_on_is_no_leak() -> None:
    made = Checkers(heartbeat_s=5.0, work_bytes=50 << 20)
    for count in range(60):
        made.observe(float(count), 0, synced(count, count))
    for count in range(60, 100):
        made.observe(float(count), 0, synced(count, count, rss_bytes=(100 + 24 + 50) << 20))
    assert found(made) == []
    for count in range(100, 140):
        made.observe(float(count), 0, synced(count, count, rss_bytes=(100 + 24 + 51) << 20))
    assert len(found(made)) == 1


def test_waiting_must_not_take_a_processor(all_of_them: Checkers) -> None:
    all_of_them.observe(1.0, 0, step([0, 1, 2], 1, end_ns=5 * 10**9, cpu_ns=10**9))
    all_of_them.observe(1.0, 0, {"kind": "idle", "wall_s": 2.0, "cpu_s": 0.05})
    assert found(all_of_them) == []
    all_of_them.observe(1.0, 0, step([0, 1, 2], 2, end_ns=5 * 10**9, cpu_ns=4 * 10**9))
    all_of_them.observe(1.0, 0, {"kind": "idle", "wall_s": 2.0, "cpu_s": 1.5})
    assert [text.partition(":")[0] for text in found(all_of_them)] == ["spin", "spin"]


def test_old_steps_are_forgotten() -> None:
    agreement = checkers.Agreement()
    for count in range(checkers.KEPT_STEPS + 10):
        assert list(agreement.observe(0.0, 0, step([0, 1, 2], count))) == []
    assert list(agreement.observe(0.0, 1, step([0, 1], 5))) == [], "nothing to compare with any more"
