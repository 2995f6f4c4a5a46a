# SPDX-License-Identifier: MIT
"""Ring orders: permutations, hosts together, broken links avoided where that is possible."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from pccl.protocol.topology import ring_order


def _broken_neighbours(order: tuple[int, ...], broken: list[tuple[int, int]]) -> int:
    bad = {frozenset(pair) for pair in broken}
    return sum(frozenset((order[place - 1], order[place])) in bad for place in range(len(order)))


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12))
def test_members_of_one_host_stand_together_in_rank_order(hosts: list[int]) -> None:
    order = ring_order(hosts)
    assert sorted(order) == list(range(len(hosts)))
    runs = [host for host, _ in itertools.groupby(order, key=lambda rank: hosts[rank])]
    assert len(runs) == len(set(hosts))
    for _, ranks in itertools.groupby(order, key=lambda rank: hosts[rank]):
        listed = list(ranks)
        assert listed == sorted(listed)


PAIRS = st.tuples(st.integers(0, 7), st.integers(0, 7)).filter(lambda pair: pair[0] != pair[1])


@given(st.lists(st.integers(0, 2), min_size=4, max_size=8), st.lists(PAIRS, max_size=4))
def test_a_mended_ring_is_a_permutation_and_never_worse(hosts: list[int], broken: list[tuple[int, int]]) -> None:
    before, after = ring_order(hosts), ring_order(hosts, broken)
    assert sorted(after) == list(range(len(hosts)))
    assert _broken_neighbours(after, broken) <= _broken_neighbours(before, broken)
    assert ring_order(hosts, list(reversed(broken))) == after


@given(st.integers(4, 20), st.data())
def test_one_broken_link_is_always_avoided_from_four_members_on(size: int, data: st.DataObject) -> None:
    one, other = data.draw(st.lists(st.integers(0, size - 1), min_size=2, max_size=2, unique=True))
    order = ring_order([0] * size, [(one, other)])
    assert _broken_neighbours(order, [(one, other)]) == 0


def test_a_ring_of_three_has_no_choice() -> None:
    assert ring_order([0, 0, 0], [(0, 1)]) == (0, 1, 2)
