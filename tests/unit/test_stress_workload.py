# SPDX-License-Identifier: MIT
"""Each collective, carried out by hand: what comes out right is taken, and any element that is wrong is found."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pccl import ReduceInfo
from pccl.stress.values import DTYPES, SLOTS
from pccl.stress.workload import COLLECTIVES, FORMS, FORMS_OF_ALL_LINKS, FROM_ROOT, Turn, Work, Wrong, split

NUMBERS = [3, 700, 11]
STEP, INDEX, ELEMENTS = 5, 2, SLOTS + 1200
SIZE = len(NUMBERS)
Arrays = list[Any]


def calls(collective: str, in_place: bool, dtype: str = "float32", salt: int = 0) -> list[Work]:
    """One member's call each."""
    groups = [SimpleNamespace(epoch=1, rank=rank, group_world_size=SIZE) for rank in range(SIZE)]
    turns = [
        Turn(group, number, STEP, INDEX, dtype=dtype, salt=salt)  # type: ignore[arg-type]
        for group, number in zip(groups, NUMBERS, strict=True)
    ]
    return [COLLECTIVES[collective](turn, ELEMENTS, in_place) for turn in turns]


def arrays_of(work: Work) -> Arrays:
    """Its arguments; where they are tensors, the memory that these were cut from."""
    return [
        one[0].base[: sum(it.nbytes for it in one)].view(one[0].dtype)
        if isinstance(one, list) and isinstance(one[0], np.ndarray)
        else one
        for one in work.arguments
    ]


def carry_out(works: list[Work]) -> Arrays:
    """What pccl should do: the arrays that hold results, by rank; None where there is none."""
    given = [[np.copy(one) for one in arrays_of(work)] for work in works]
    kind = works[0].name.removesuffix("_v").removesuffix("_coalesced")
    uneven = works[0].name.endswith("_v")
    if kind == "barrier":
        return [None] * SIZE
    if kind == "broadcast":
        results = [work.arguments[0] for work in works]
        wanted: Arrays = [given[works[0].arguments[1]][0]] * SIZE
    elif kind in ("all_reduce", "reduce", "scan", "exscan"):
        results = [arrays_of(work)[1] for work in works]
        sends = [one[0] for one in given]
        sums = [sum(sends[:count]) for count in range(SIZE + 1)]
        only = works[0].arguments[2] if kind == "reduce" else None
        wanted = {"all_reduce": sums[-1:] * SIZE, "scan": sums[1:], "exscan": [None, *sums[1:-1]]}.get(
            kind, [sums[-1] if rank == only else None for rank in range(SIZE)]
        )
    else:
        results, wanted = parted(works, given, kind, uneven)
    for result, right in zip(results, wanted, strict=True):
        if right is not None:
            result[:] = right
    return [None if right is None else result for result, right in zip(results, wanted, strict=True)]


def parted(works: list[Work], given: list[Arrays], kind: str, uneven: bool) -> tuple[Arrays, Arrays]:
    """Of those with parts: where results go, and what goes there."""
    sends = [one[0] for one in given]
    if kind in ("all_gather", "gather"):
        root = works[0].arguments[-1] if kind == "gather" else None
        whole = np.concatenate(sends)
        return [work.arguments[1] for work in works], [whole if root in (None, rank) else None for rank in range(SIZE)]
    results = [work.arguments[2 if uneven else 1] for work in works]
    if kind == "all_to_all":
        pairs = zip(sends, works, strict=True)
        parts = [split(send, work.arguments[1] if uneven else [ELEMENTS] * SIZE) for send, work in pairs]
        return results, [np.concatenate([part[rank] for part in parts]) for rank in range(SIZE)]
    whole = sum(sends) if kind == "reduce_scatter" else sends[works[0].arguments[-1]]
    return results, split(whole, [len(result) for result in results])


def info(rank: int) -> ReduceInfo:
    return ReduceInfo(SIZE, 0, 0, rank, 1, 0)


@pytest.mark.parametrize("salt", range(3))
@pytest.mark.parametrize(("collective", "in_place"), [*FORMS, *FORMS_OF_ALL_LINKS])
def test_what_is_right_is_taken_and_tells_whose_it_is(collective: str, in_place: bool, salt: int) -> None:
    for dtype in DTYPES:
        works = calls(collective, in_place, dtype, salt)
        assert all(work.intact() for work in works)
        carry_out(works)
        told = [work.members(info(rank)) for rank, work in enumerate(works)]
        assert in_place or all(work.intact() for work in works)
        everyone = sorted(number % SLOTS for number in NUMBERS)
        if collective in FROM_ROOT:
            root = works[0].turn.root if collective != "broadcast" else STEP % SIZE
            assert all(it in (None, [NUMBERS[root] % SLOTS]) for it in told)
        else:
            assert all(it in (None, everyone) for it in told)
        if collective in (
            "all_reduce",
            "all_reduce_coalesced",
            "reduce_scatter",
            "all_gather",
            "all_to_all",
            "broadcast",
            "scatter",
        ):
            assert None not in told


@pytest.mark.parametrize(("collective", "in_place"), [*FORMS, *FORMS_OF_ALL_LINKS])
def test_any_damage_shows(collective: str, in_place: bool) -> None:
    count = len([it for it in carry_out(calls(collective, in_place)) if it is not None])
    assert count > 0 or collective == "barrier"
    for rank in range(SIZE):
        for damage in (last_element, nothing_arrived, swapped):
            works = calls(collective, in_place)
            result = carry_out(works)[rank]
            if result is None or len(result) == 0:
                continue
            damage(result)
            with pytest.raises(Wrong):
                works[rank].members(info(rank))


def last_element(result: Any) -> None:
    result[-1] += 1


def nothing_arrived(result: Any) -> None:
    result.view(np.uint8)[-2000:] = 0xA5


def swapped(result: Any) -> None:
    here, there = result[-1100:-1050].copy(), result[-1050:-1000].copy()
    result[-1100:-1050], result[-1050:-1000] = there, here


@pytest.mark.parametrize("in_place", [False, True])
def test_a_result_of_nobody_has_to_stay(in_place: bool) -> None:
    works = calls("exscan", in_place)
    carry_out(works)
    assert works[0].members(info(0)) is None
    works[0].arguments[1][-1] += 1
    with pytest.raises(Wrong, match="of nobody"):
        works[0].members(info(0))


@pytest.mark.parametrize(
    ("collective", "ranks", "text"),
    [
        ("all_reduce", (0, 1, 2, 1), "twice"),
        ("scan", (1,), "rank 0, which is 3, got the sum of"),
        ("exscan", (0, 1), "rank 1, which is 700, got the sum of"),
        ("broadcast", (0, 1), "not what one of them gave"),
    ],
)
def test_who_took_part_is_looked_at(collective: str, ranks: tuple[int, ...], text: str) -> None:
    works, rank = calls(collective, False), 1 if collective == "exscan" else 0
    sends = [work.arguments[0] for work in calls("all_reduce", False)]
    works[rank].arguments[0 if collective == "broadcast" else 1][:] = sum(sends[it] for it in ranks)
    with pytest.raises(Wrong, match=text):
        works[rank].members(info(rank))


def test_a_part_may_not_come_twice() -> None:
    works = calls("all_gather", False)
    carry_out(works)
    recv = works[0].arguments[1]
    recv[:ELEMENTS] = recv[ELEMENTS : 2 * ELEMENTS]
    with pytest.raises(Wrong, match="one of them is there twice"):
        works[0].members(info(0))
