# SPDX-License-Identifier: MIT
"""Prices: what members measured becomes one pair for all, and noise changes nothing."""

from __future__ import annotations

import pytest

from pccl.communicator import _measured
from pccl.messages import MAX_MEASURED_LINKS, NO_PRICES, MeasuredLink, Prices
from pccl.protocol.prices import NEARLY, Measured, agree
from pccl.trace.record import Header, Link, Trace

HOSTS = (7, 7, 9, 9, 3)
US = 1_000
MS = 1_000_000


def test_nothing_measured_is_nothing_known() -> None:
    assert agree(HOSTS, []) == NO_PRICES
    before = Prices(1, 2, 3, 4)
    assert agree(HOSTS, [], before) == before
    assert agree(HOSTS, [Measured(0, 2, 0, 0)], before) == before


def test_links_inside_a_host_and_between_hosts_are_two_things() -> None:
    known = [Measured(0, 1, 9 * US, 5_000), Measured(1, 2, 2 * MS, 40)]
    assert agree(HOSTS, known) == Prices(9 * US, 5_000, 2 * MS, 40)


def test_each_pair_of_hosts_counts_once_with_its_best_link() -> None:
    """Two links between the same hosts share a wire: the slower one waited for the other."""
    known = [
        Measured(0, 2, 2 * MS, 40),
        Measured(1, 3, 5 * MS, 90),
        Measured(0, 4, 30 * MS, 10),
        Measured(2, 4, 7 * MS, 70),
    ]
    assert agree(HOSTS, known) == Prices(0, 0, 7 * MS, 70)


def test_what_is_nearly_as_before_stays() -> None:
    before = Prices(0, 0, 2 * MS, 1_000)
    assert agree(HOSTS, [Measured(0, 2, int(2 * MS * NEARLY), int(1_000 / NEARLY) + 1)], before) == before
    changed = agree(HOSTS, [Measured(0, 2, 4 * MS, 400)], before)
    assert changed == Prices(0, 0, 4 * MS, 400)


def test_the_order_of_voices_does_not_matter() -> None:
    known = [Measured(a, b, (a + 2 * b + 1) * US, 100 * a + b + 1) for a in range(5) for b in range(5) if a != b]
    assert agree(HOSTS, known) == agree(HOSTS, known[::-1])


def _trace(rank: int, *links: Link) -> Trace:
    return Trace(Header("ab" * 16, 0, rank, 7, "host", 1, "asked", "", 0, 0), (), (), links)


def _link(rank: int, transport: str = "tcp", heard_ns: int = 5, rtt_ns: int = 6 * MS) -> Link:
    return Link(rank, f"{rank:032x}", transport, 0, heard_ns, "", rtt_ns, 70)


def test_a_member_tells_half_the_round_trip_and_the_bandwidth_of_a_link() -> None:
    assert _measured(_trace(0, _link(1))).links == (MeasuredLink((1).to_bytes(16, "big"), 3 * MS, 70),)


@pytest.mark.parametrize("link", [_link(1, "shm"), _link(1, heard_ns=0), _link(1, rtt_ns=0)])
def test_a_member_tells_nothing_of_what_it_does_not_know(link: Link) -> None:
    assert _measured(_trace(0, link)).links == ()


def test_a_member_of_many_tells_of_the_next_ranks() -> None:
    """So all links have somebody who tells of them, and the master is told of so many for each member, not of all."""
    size = 3 * MAX_MEASURED_LINKS
    told = _measured(_trace(size - 2, *(_link(rank) for rank in range(size) if rank != size - 2))).links
    ranks = [int.from_bytes(link.peer, "big") for link in told]
    assert ranks == [size - 1, *range(MAX_MEASURED_LINKS - 1)]
