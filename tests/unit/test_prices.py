# SPDX-License-Identifier: MIT
"""Prices: what members measured becomes one pair for all, and noise changes nothing."""

from __future__ import annotations

from pccl.messages import NO_PRICES, Prices
from pccl.protocol.prices import NEARLY, Measured, agree

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
