# SPDX-License-Identifier: MIT
"""The ring order and the shape of a group: who stands next to whom, and which links operations may use.

What for: neighbours in the ring carry the heavy traffic, so peers of one host stand side by side, and a link that is
not to be used is avoided as far as the living ones allow it. Must not know: peers' ids, epochs, votes, why a link is
avoided.

The one idea: the arrangement is a pure function of (host per rank, avoided links, shaky links), so every caller that
asks again gets the same one, and a changed answer means that something changed.

Shapes, in this order of preference: FULL while nothing is avoided; RING if there is a cycle through all members without
an avoided pair; else TREE, which there is as long as the members hang together at all. The search for a cycle is
complete for up to nine members and bounded beyond.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

SEARCH_LOOKS = 500_000
"""At how many links the search for a cycle may look: some tenths of a second."""

ROOTS_TRIED = 8
CHILDREN = 2
"""So many a member of a tree has, where its links allow it: more would cost it more bytes, fewer more rounds."""

Pair = tuple[int, int]
Dead = dict[frozenset[int], bool]
"""A set of unordered pairs of ranks, in order."""


class Shape(IntEnum):
    """Which links operations use; the numbers are those of csrc/pccl.h."""

    FULL = 0
    RING = 1
    TREE = 2


@dataclass(frozen=True, slots=True)
class Arrangement:
    """`ring` lists ranks in ring order. `parents` (of a TREE, else empty) holds by place in `ring` the place of the
    parent; places are numbered in preorder, the root is place 0 and its own parent."""

    shape: Shape
    ring: tuple[int, ...]
    parents: tuple[int, ...] = ()

    def joins(self, one: int, other: int) -> bool:
        """Whether operations may use the link between two ranks."""
        if self.shape is Shape.FULL:
            return True
        a, b, size = self.ring.index(one), self.ring.index(other), len(self.ring)
        if self.shape is Shape.RING:
            return (a - b) % size in (1, size - 1)
        return self.parents[a] == b or self.parents[b] == a


def is_arranged(shape: int, ring: Sequence[int], parents: Sequence[int], size: int) -> bool:
    """Whether the words of a view are an arrangement of `size` members."""
    if sorted(ring) != list(range(size)) or shape not in list(Shape):
        return False
    if shape != Shape.TREE:
        return not parents
    if len(parents) != size or parents[0] != 0:
        return False
    path = [0]
    for place in range(1, size):
        while path and path[-1] != parents[place]:
            path.pop()
        if not path:
            return False
        path.append(place)
    return True


def arrange(hosts: Sequence[int], avoided: Iterable[Pair] = (), shaky: Iterable[Pair] = ()) -> Arrangement:
    """`hosts` by rank. Operations use no link of `avoided` (pairs of ranks, any order); those of `shaky` are no
    neighbours in the ring, if that can be had. The members must hang together without `avoided`."""
    dead = {frozenset(pair): True for pair in avoided}
    weak = dead | {frozenset(pair): True for pair in shaky}
    order = ring_order(hosts, [_ranks(pair) for pair in weak])
    if not dead:
        return Arrangement(Shape.FULL, order)
    for bad in (weak, dead):
        ring = _mended_or_searched(order, bad)
        if ring:
            return Arrangement(Shape.RING, ring)
    return _tree(order, dead)


def ring_order(hosts: Sequence[int], broken: Iterable[Pair] = ()) -> tuple[int, ...]:
    """Ranks in ring order: hosts in the order of their lowest rank, ranks ascending within a host; then mended so that
    as few neighbours as possible are a pair of `broken` (pairs of ranks, any order)."""
    by_host: dict[int, list[int]] = {}
    for rank, host in enumerate(hosts):
        by_host.setdefault(host, []).append(rank)
    order = [rank for ranks in by_host.values() for rank in ranks]
    bad = {frozenset(pair): True for pair in broken}
    if bad and len(order) > 3:
        _mend(order, bad)
    return _from_zero(order)


def components(size: int, avoided: Iterable[Pair]) -> list[list[int]]:
    """Ranks that hang together by links that are not avoided, each part ascending, by lowest rank."""
    dead = {frozenset(pair): True for pair in avoided}
    left = list(range(size))
    parts: list[list[int]] = []
    while left:
        part = [left.pop(0)]
        frontier = list(part)
        while frontier:
            rank = frontier.pop()
            reached = [other for other in left if frozenset((rank, other)) not in dead]
            left = [other for other in left if frozenset((rank, other)) in dead]
            part += reached
            frontier += reached
        parts.append(sorted(part))
    return parts


def _ranks(pair: frozenset[int]) -> Pair:
    low, high = sorted(pair)
    return low, high


def _from_zero(order: Sequence[int]) -> tuple[int, ...]:
    start = order.index(0) if order else 0
    return (*order[start:], *order[:start])


def _mend(order: list[int], bad: Dead) -> None:
    """Swaps ranks while that lowers the number of broken neighbours. Each round costs O(size) per broken pair."""
    size = len(order)

    def broken_at(position: int) -> int:
        return frozenset((order[position % size], order[(position + 1) % size])) in bad

    def cost(places: dict[int, bool]) -> int:
        return sum(broken_at(place) for place in places)

    improved = True
    while improved:
        improved = False
        for first in [place for place in range(size) if broken_at(place)]:
            for moved in (first, (first + 1) % size):
                for other in range(size):
                    places = {place % size: True for spot in (moved, other) for place in (spot - 1, spot)}
                    before = cost(places)
                    order[moved], order[other] = order[other], order[moved]
                    if cost(places) < before:
                        improved = True
                        break
                    order[moved], order[other] = order[other], order[moved]


def _mended_or_searched(order: tuple[int, ...], bad: Dead) -> tuple[int, ...]:
    """`order` if no two neighbours are a pair of `bad`, else a cycle that was searched for; empty if none was found."""
    size = len(order)
    if size < 3:
        return ()
    if not any(frozenset((order[place - 1], order[place])) in bad for place in range(size)):
        return order
    return _search(order, bad)


def _search(order: tuple[int, ...], bad: Dead) -> tuple[int, ...]:
    """A cycle through all, depth first from rank 0: members with few links come first, else in the given order."""
    lacking = _links_lacking(bad)
    eager = sorted(order[1:], key=lambda rank: -lacking.get(rank, 0))

    def candidates(rank: int) -> list[int]:
        return [other for other in eager if other not in on_path and frozenset((rank, other)) not in bad]

    path, on_path = [order[0]], {order[0]: True}
    trails = [candidates(path[-1])]
    for _ in range(SEARCH_LOOKS // len(order)):
        if not trails:
            return ()
        if len(path) == len(order) and frozenset((path[0], path[-1])) not in bad:
            return tuple(path)
        if trails[-1]:
            path.append(trails[-1].pop(0))
            on_path[path[-1]] = True
            trails.append(candidates(path[-1]))
        else:
            trails.pop()
            on_path.pop(path.pop())
    return ()


def _links_lacking(bad: Dead) -> dict[int, int]:
    """How many links each rank lacks."""
    lacking: dict[int, int] = {}
    for pair in bad:
        for rank in sorted(pair):
            lacking[rank] = lacking.get(rank, 0) + 1
    return lacking


def _tree(order: tuple[int, ...], dead: Dead) -> Arrangement:
    """Of the trees from some roots with many links the one whose busiest member has the fewest, then the lowest."""
    lacking = _links_lacking(dead)
    roots = sorted(order, key=lambda rank: lacking.get(rank, 0))[:ROOTS_TRIED]
    grown = [_grow(root, order, dead, lacking) for root in roots]
    first, children = min(zip(roots, grown, strict=True), key=lambda it: (_degree(*it), _height(*it)))
    ring: list[int] = []
    parents: list[int] = []
    stack = [(first, 0)]
    while stack:
        rank, parent = stack.pop()
        place = len(ring)
        ring.append(rank)
        parents.append(parent)
        stack += [(child, place) for child in reversed(children[rank])]
    return Arrangement(Shape.TREE, tuple(ring), tuple(parents))


def _grow(root: int, order: tuple[int, ...], dead: Dead, lacking: dict[int, int]) -> dict[int, list[int]]:
    """Children by rank. A member hangs itself below the first one that has room for it (fewer than CHILDREN), else
    below the one with the fewest children; those with few links choose first."""
    children: dict[int, list[int]] = {root: []}
    roomy = [root]
    left = sorted((rank for rank in order if rank != root), key=lambda rank: -lacking.get(rank, 0))
    while left:
        waiting: list[int] = []
        for rank in left:
            parent = next((it for it in roomy if frozenset((it, rank)) not in dead), None)
            if parent is None:
                possible = [it for it in children if frozenset((it, rank)) not in dead]
                parent = min(possible, key=lambda it: len(children[it]), default=None)
            if parent is None:
                waiting.append(rank)
                continue
            children[parent].append(rank)
            children[rank] = []
            roomy.append(rank)
            if len(children[parent]) == CHILDREN and parent in roomy:
                roomy.remove(parent)
        assert len(waiting) < len(left), "the members hang together"
        left = waiting
    return children


def _degree(root: int, children: dict[int, list[int]]) -> int:
    return max(len(ranks) + (rank != root) for rank, ranks in children.items())


def _height(root: int, children: dict[int, list[int]]) -> int:
    level, height = [root], -1
    while level:
        level, height = [child for rank in level for child in children[rank]], height + 1
    return height
