# SPDX-License-Identifier: MIT
"""Arrangements: permutations, hosts together, broken links avoided, shapes that need no avoided link."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from pccl.protocol.topology import Shape, arrange, components, is_arranged, ring_order


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


@st.composite
def _groups(draw: st.DrawFn) -> tuple[int, list[tuple[int, int]]]:
    """(size, avoided) of a group that hangs together."""
    size = draw(st.integers(1, 9))
    pairs = list(itertools.combinations(range(size), 2))
    avoided: list[tuple[int, int]] = []
    for pair in draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []:
        if len(components(size, [*avoided, pair])) == 1:
            avoided.append(pair)
    return size, avoided


def _has_cycle(size: int, avoided: list[tuple[int, int]]) -> bool:
    bad = {frozenset(pair) for pair in avoided}
    return any(
        all(frozenset(pair) not in bad for pair in itertools.pairwise((0, *rest, 0)))
        for rest in itertools.permutations(range(1, size))
    )


@settings(max_examples=60, deadline=None)
@given(_groups(), st.data())
def test_no_avoided_link_is_used_and_the_best_shape_is_found(
    group: tuple[int, list[tuple[int, int]]], data: st.DataObject
) -> None:
    size, avoided = group
    hosts = data.draw(st.lists(st.integers(0, 2), min_size=size, max_size=size))
    found = arrange(hosts, avoided)
    assert is_arranged(found.shape, found.ring, found.parents, size)
    assert not any(found.joins(*pair) for pair in avoided)
    if not avoided:
        assert found.shape is Shape.FULL
    elif size <= 7:
        assert (found.shape is Shape.RING) == _has_cycle(size, avoided)
    assert arrange(hosts, [(high, low) for low, high in reversed(avoided)]) == found


def test_a_ring_also_does_without_shaky_links_where_it_can() -> None:
    found = arrange([0] * 6, [(0, 1)], [(0, 2)])
    assert found.shape is Shape.RING
    assert not found.joins(0, 2)
    assert arrange([0] * 4, [(0, 1)], [(2, 3)]).shape is Shape.RING, "what is shaky is better than a tree"


def test_a_tree_is_as_even_as_its_links_allow() -> None:
    star = arrange([0] * 5, list(itertools.combinations(range(1, 5), 2)))
    assert (star.ring, star.parents) == ((0, 1, 2, 3, 4), (0, 0, 0, 0, 0))
    two_hubs = arrange([0] * 12, list(itertools.combinations(range(2, 12), 2)))
    assert max(two_hubs.parents.count(place) for place in range(12)) == 5
    one_leaf = arrange([0] * 31, [(0, other) for other in range(2, 31)])
    depth = [0] * 31
    for place in range(1, 31):
        depth[place] = depth[one_leaf.parents[place]] + 1
    assert max(one_leaf.parents.count(place) for place in range(1, 31)) == 2
    assert max(depth) <= 5


def test_large_groups_are_arranged_soon() -> None:
    lonely = [(0, other) for other in range(2, 2_000)]
    assert arrange([0] * 2_000, lonely).shape is Shape.TREE
    assert arrange([0] * 2_000, lonely[:1_900]).shape is Shape.RING


def test_what_is_no_arrangement_is_refused() -> None:
    assert is_arranged(Shape.TREE, (2, 0, 1), (0, 0, 1), 3)
    for shape, ring, parents in (
        (0, (0, 1), ()),
        (0, (0, 1, 1), ()),
        (3, (0, 1, 2), ()),
        (0, (0, 1, 2), (0, 0, 0)),
        (2, (0, 1, 2), ()),
        (2, (0, 1, 2), (1, 0, 0)),
        (2, (0, 1, 2), (0, 0, 2)),
        (2, (0, 1, 2), (0, 2, 1)),
    ):
        assert not is_arranged(shape, ring, parents, 3)
    assert not is_arranged(2, (0, 1, 2, 3), (0, 0, 0, 1), 4), "3 is no longer below 1"


def test_components_are_parts_in_order() -> None:
    assert components(5, [(0, 1), (0, 3), (1, 2), (2, 3), (1, 4), (3, 4)]) == [[0, 2, 4], [1, 3]]
    assert components(1, []) == [[0]]
