# SPDX-License-Identifier: MIT
"""The formula of the stress tests: sums are exact in any order, and every kind of damage shows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pccl.stress import values
from pccl.stress.values import SLOTS, Array

SIZE = 8 * (SLOTS + 2 * values.PERIOD + 5)
NUMBERS = st.lists(st.integers(0, 10_000), min_size=1, max_size=6, unique_by=lambda number: number % SLOTS)


def total(numbers: list[int], step: int, index: int) -> Array:
    result, own = values.tensor(index, SIZE), values.tensor(index, SIZE)
    for number in numbers:
        values.contribute(own, number, step, index)
        result += own
    return result


@given(NUMBERS, st.integers(1, 10**6), st.integers(0, 9), st.randoms())
def test_a_sum_tells_its_members_and_is_exact_in_any_order(numbers: list[int], step: int, index: int, order) -> None:
    result = total(numbers, step, index)
    slots = values.members(result)
    assert slots == sorted(number % SLOTS for number in numbers)
    assert values.is_sum(result, slots, step, index)
    assert result.sum(dtype=np.float64) == values.total(numbers, step, index, len(result))
    order.shuffle(numbers)
    assert (total(numbers, step, index) == result).all()


def test_as_many_peers_as_there_may_be_are_exact_in_float32() -> None:
    largest = values.PEERS_MAX * (values.WEIGHTS * (values.PERIOD - 1) + values.OFFSETS)
    assert largest < 1 << 24


@pytest.mark.parametrize("index", range(len(values.DTYPES)))
def test_damage_shows(index: int) -> None:
    numbers = [3, 4, 9]
    for place in (SLOTS, SLOTS + 700, -1):
        result = total(numbers, 5, index)
        result[place] += 1
        assert not values.is_sum(result, numbers, 5, index)
    doubled = total([*numbers, 4], 5, index)
    assert values.members(doubled) is None
    result = total(numbers, 5, index)
    assert not values.is_sum(result, numbers, 6, index), "an old step's result"
    assert not values.is_sum(result, numbers[:2], 5, index), "a contribution too many"
    chunk = result[SLOTS : SLOTS + 100].copy()
    result[SLOTS : SLOTS + 100] = result[SLOTS + 100 : SLOTS + 200]
    result[SLOTS + 100 : SLOTS + 200] = chunk
    assert not values.is_sum(result, numbers, 5, index), "two chunks that changed places"


def test_a_contribution_knows_whose_it_is() -> None:
    own = values.tensor(0, SIZE)
    values.contribute(own, 7, 2, 0)
    assert values.is_contribution(own, 7, 2, 0)
    assert not values.is_contribution(own, 8, 2, 0)
    assert not values.is_contribution(own, 7, 3, 0)
    own[SLOTS + 1] = -1
    assert not values.is_contribution(own, 7, 2, 0)


@given(st.integers(1, 30), st.integers(1, 7))
def test_averaged_gradients_add_up_to_the_state(steps: int, members: int) -> None:
    state, gradient = np.zeros(3000, np.int64), np.zeros(3000, np.int64)
    for step in range(1, steps + 1):
        values.gradient(gradient, step)
        state += gradient * members // members
    assert values.is_state(state, steps)
    assert not values.is_state(state, steps + 1)


@given(st.integers(0, 5000), st.integers(0, SLOTS - 1))
def test_slots_are_told_from_the_newest_number(newest: int, age: int) -> None:
    number = max(0, newest - age)
    assert values.numbers([number % SLOTS], newest) == [number]
