# SPDX-License-Identifier: MIT
"""Scopes: one number for two ranks, the same here as in the data plane."""

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
    assert scope.has(whose, source)
    assert scope.has(whose, target)
    assert scope.has(whose, other) == (other in (source, target))


def test_the_whole_group_is_no_pair() -> None:
    assert scope.pair(0) is None
    assert scope.has(0, 7)
    assert scope.words(0) == ""
    assert scope.words(scope.of_pair(1, 0)) == " from rank 1 to rank 0"
    assert scope.words(scope.of_pair(1, 0), ", ") == ", from rank 1 to rank 0"
