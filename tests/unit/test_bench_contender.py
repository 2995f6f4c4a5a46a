# SPDX-License-Identifier: MIT
"""What the contenders share: who of a pair sends first, and that started operations end as one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from pccl.bench.contenders.contender import Together, there_and_back
from pccl.bench.work import Shape, Work


class Call:
    """Writes down that it began and that it was waited for."""

    def __init__(self, name: str, told: list[str], partner: int) -> None:
        self._name, self._told = name, told
        told.append(name)
        assert partner in (0, 1)

    def wait(self) -> str:
        self._told.append(f"{self._name} ended")
        return self._name


def bound(rank: int, told: list[str], *, start: bool) -> Callable[[], object]:
    work = Work(Shape("send_recv", 4, "float32", False, 3), rank)
    return there_and_back(work, partial(Call, "send", told), partial(Call, "recv", told), start=start)


@pytest.mark.parametrize(("rank", "calls"), [(0, ["send", "recv"]), (1, ["recv", "send"]), (2, [])])
def test_the_lower_one_of_a_pair_sends_first_and_who_is_alone_does_nothing(rank: int, calls: list[str]) -> None:
    told: list[str] = []
    bound(rank, told, start=False)()
    assert told == calls


@pytest.mark.parametrize(("rank", "calls"), [(0, ["recv", "send"]), (1, ["recv", "send"]), (2, [])])
def test_started_both_directions_are_under_way_before_one_is_waited_for(rank: int, calls: list[str]) -> None:
    told: list[str] = []
    pending = bound(rank, told, start=True)()
    assert isinstance(pending, Together)
    assert told == calls
    assert pending.wait() == (calls[-1] if calls else None)
    assert told == calls + [f"{call} ended" for call in calls]
