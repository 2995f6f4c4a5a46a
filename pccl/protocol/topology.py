# SPDX-License-Identifier: MIT
"""The ring order of a group.

What for: neighbours in the ring carry the heavy traffic, so peers of one host stand side by side and a link known to be
broken is avoided where the size of the group allows it. Must not know: peers' ids, epochs, votes.

The one idea: the order is a pure function of (host per rank, broken links), so every caller that asks again gets the
same ring, and a changed answer means that something changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def ring_order(hosts: Sequence[int], broken: Iterable[tuple[int, int]] = ()) -> tuple[int, ...]:
    """Ranks in ring order: hosts in the order of their lowest rank, ranks ascending within a host; then mended so that
    as few neighbours as possible are a pair of `broken` (pairs of ranks, any order)."""
    by_host: dict[int, list[int]] = {}
    for rank, host in enumerate(hosts):
        by_host.setdefault(host, []).append(rank)
    order = [rank for ranks in by_host.values() for rank in ranks]
    bad = {frozenset(pair): True for pair in broken}
    if bad and len(order) > 3:
        _mend(order, bad)
        start = order.index(0)
        order = order[start:] + order[:start]
    return tuple(order)


def _mend(order: list[int], bad: dict[frozenset[int], bool]) -> None:
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
