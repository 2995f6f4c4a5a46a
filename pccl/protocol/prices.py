# SPDX-License-Identifier: MIT
"""What links cost, agreed by all: from what each member measured to the prices of a view.

What for: algorithms are chosen by prices (csrc/plan/choose.c), and all members must choose alike. So the members say
with `optimize_topology` what their links showed so far, the master makes one pair of prices of it, and a view carries
them to all. Must not know: how a link is measured, what prices are used for.

The one idea: a price is the median over pairs of hosts, and one that is nearly what it was stays what it was. So noise
makes no new epoch, and one odd link changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median_low

from pccl.messages import NO_PRICES, Prices

NEARLY = 1.5
"""Prices within this factor of each other are taken for the same."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One direction of a link, by ranks: nanoseconds one way, and bytes per second; 0 is unknown."""

    source: int
    target: int
    latency_ns: int
    bytes_per_s: int


def agree(hosts: Sequence[int], measured: Iterable[Measured], before: Prices = NO_PRICES) -> Prices:
    """The prices of a group. `hosts` by rank; what nobody measured is as `before`."""
    found = list(measured)
    inside = [it for it in found if hosts[it.source] == hosts[it.target]]
    between = [it for it in found if hosts[it.source] != hosts[it.target]]
    return Prices(
        _settle(_latency(hosts, inside), before.inside_latency_ns),
        _settle(_bandwidth(hosts, inside), before.inside_bytes_per_s),
        _settle(_latency(hosts, between), before.between_latency_ns),
        _settle(_bandwidth(hosts, between), before.between_bytes_per_s),
    )


def _latency(hosts: Sequence[int], links: Sequence[Measured]) -> int:
    """The shortest of each pair of hosts is what the path takes; others waited in queues."""
    return _median(hosts, links, [it.latency_ns for it in links], min)


def _bandwidth(hosts: Sequence[int], links: Sequence[Measured]) -> int:
    """The highest of each pair of hosts is what the path can carry; others were not tried as hard."""
    return _median(hosts, links, [it.bytes_per_s for it in links], max)


def _median(
    hosts: Sequence[int], links: Sequence[Measured], values: Sequence[int], best: Callable[[list[int]], int]
) -> int:
    by_pair: dict[tuple[int, int], list[int]] = {}
    for link, value in zip(links, values, strict=True):
        if value:
            by_pair.setdefault((hosts[link.source], hosts[link.target]), []).append(value)
    chosen = [best(values) for values in by_pair.values()]
    return median_low(chosen) if chosen else 0


def _settle(value: int, before: int) -> int:
    if not value or (before and max(value, before) <= NEARLY * min(value, before)):
        return before
    return value
