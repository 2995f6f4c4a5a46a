# SPDX-License-Identifier: MIT
"""Scopes: one number for two ranks, the same here as in the data plane, and one for any set of ranks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pccl import scope
from pccl._native import constants

RANKS = st.integers(0, 2**31 - 2)


@given(RANKS, RANKS, RANKS)
def test_a_pair_comes_back_and_only_its_two_take_part(source: int, target: int, other: int) -> None:
    whose = scope.of_pair(source, target)
    assert whose == constants.pccl_scope(source, target)
    assert scope.pair(whose) == (source, target)
    assert scope.has(whose, source, ())
    assert scope.has(whose, target, ())
    assert scope.has(whose, other, (other,)) == (other in (source, target))


def test_the_whole_group_is_no_pair() -> None:
    assert scope.pair(0) is None
    assert scope.has(0, 7, ())
    assert scope.words(0) == ""
    assert scope.words(scope.of_pair(1, 0)) == " from rank 1 to rank 0"
    assert scope.words(scope.of_pair(1, 0), ", ") == ", from rank 1 to rank 0"


def test_a_subgroup_is_neither() -> None:
    whose = 0x9F3A12BC << 32 | 7
    assert scope.is_subgroup(whose)
    assert not scope.is_subgroup(0)
    assert scope.pair(whose) is None
    assert scope.has(whose, 3, (1, 3))
    assert not scope.has(whose, 2, (1, 3))
    assert scope.words(whose) == " of subgroup 9f3a12bc"
    assert scope.words(whose, ", ") == ", of subgroup 9f3a12bc"


@given(RANKS, RANKS)
def test_no_pair_is_a_subgroup(source: int, target: int) -> None:
    assert not scope.is_subgroup(scope.of_pair(source, target))
