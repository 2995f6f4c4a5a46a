# SPDX-License-Identifier: MIT
"""All members draw the same operations, and in the end each there is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pccl import Algorithm
from pccl.stress import program
from pccl.stress.program import Task, task
from pccl.stress.values import DTYPES
from pccl.stress.workload import ALGORITHMS, COLLECTIVES, DETERMINISTIC, PART_MIN

ALL = tuple(COLLECTIVES)
STEPS = range(1, 1500)


def test_another_process_draws_the_same() -> None:
    code = "from pccl.stress.program import task; from pccl.stress.workload import COLLECTIVES as all; "
    code += "print([task(7, step, 1 + step % 5, 65536, tuple(all)) for step in range(200)])"
    said = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(program.__file__).parents[2],
        env={"PYTHONHASHSEED": "4"},
        timeout=60,
    ).stdout
    assert said == f"{[task(7, step, 1 + step % 5, 65536, ALL) for step in range(200)]}\n"


def test_the_first_is_the_roll_call() -> None:
    drawn = [task(3, step, 0, 1 << 20, ("barrier",)) for step in STEPS]
    assert {one.collective for one in drawn} == {"all_reduce"}
    assert all(one.options == {} for one in drawn), "recovery times are those of what pccl chooses"
    assert [one.in_place for one in drawn[:4]] == [False, True, False, True]


def test_all_there_is_comes_in_time() -> None:
    drawn = {task(11, step, 1 + step % 3, 1 << 20, ALL) for step in STEPS}
    assert {one.collective for one in drawn} == set(ALL)
    for collective in ALL:
        own = [one for one in drawn if one.collective == collective]
        assert {one.dtype for one in own} == set(DTYPES)
        assert {one.in_place for one in own} == {False, True}
        assert {one.salt for one in own} == {0, 1, 2}
        wished = {one.algorithm for one in own if not one.deterministic}
        assert wished == {Algorithm.AUTO, *ALGORITHMS.get(collective, ())}
        wished = {one.algorithm for one in own if one.deterministic}
        assert wished == set(DETERMINISTIC.get(collective, ()))
    assert {task(11, step, 1, 1 << 20, ("scan",)).collective for step in STEPS} == {"scan"}


@pytest.mark.parametrize("collective", ALL)
@pytest.mark.parametrize("size", [1, 2, 6, 128])
def test_parts_have_room_for_a_ballot_and_share_the_size(collective: str, size: int) -> None:
    for size_bytes in (1, 8192, 4 << 20):
        elements = Task(collective, size_bytes, "int64").elements(size)
        assert elements >= PART_MIN
        parts = (
            1
            if collective in ("all_reduce", "all_reduce_coalesced", "reduce", "scan", "exscan", "broadcast", "barrier")
            else size
        )
        assert elements * parts * 8 <= max(size_bytes, parts * 8 * PART_MIN)
