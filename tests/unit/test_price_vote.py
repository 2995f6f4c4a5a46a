# SPDX-License-Identifier: MIT
"""What voters of optimize_topology measured becomes the prices of all: of all of them, when their vote is complete, and
of no other vote."""

from __future__ import annotations

import pytest

from pccl.messages import NO_PRICES, MeasuredLink, MeasuredLinks, Prices, View, encode
from pccl.protocol.types import VoteKind
from tests.cores import Bench, identity, offer

UPDATE, OPTIMIZE = VoteKind.UPDATE_TOPOLOGY, VoteKind.OPTIMIZE_TOPOLOGY


def _view(bench: Bench, name: str) -> View:
    view = bench.peer(name).core.view
    assert view is not None
    return view


def _saw(name: str, latency_ns: int, bytes_per_s: int) -> bytes:
    return encode(MeasuredLinks((MeasuredLink(identity(name), latency_ns, bytes_per_s),)))


def _on_hosts(names: str) -> Bench:
    """Each on a host of its own."""
    bench = Bench()
    for host, name in enumerate(names):
        bench.join(name, host=host)
        bench.run()
    bench.vote("a", UPDATE)
    bench.run()
    return bench


def _lose(bench: Bench, name: str) -> None:
    bench.kill(name)
    bench.suspect("a", name)
    bench.run()


def test_what_members_measured_becomes_the_prices_of_all() -> None:
    bench = _on_hosts("ab")
    assert _view(bench, "a").prices == NO_PRICES
    bench.vote("a", OPTIMIZE, _saw("b", 30_000_000, 0))
    bench.vote("b", OPTIMIZE, _saw("a", 31_000_000, 12_500_000))
    bench.run()
    assert _view(bench, "a").epoch == 3
    assert _view(bench, "a").prices == _view(bench, "b").prices == Prices(0, 0, 30_000_000, 12_500_000)
    assert bench.peer("a").installs()[-1].view.prices == _view(bench, "b").prices


def test_prices_stay_while_links_cost_nearly_the_same_and_over_other_epochs_and_masters() -> None:
    bench = _on_hosts("ab")
    bench.vote("a", OPTIMIZE, _saw("b", 30_000_000, 12_500_000))
    bench.vote("b", OPTIMIZE)
    bench.run()
    prices = _view(bench, "a").prices
    bench.vote("a", OPTIMIZE, _saw("b", 33_000_000, 11_000_000))
    bench.vote("b", OPTIMIZE)
    bench.run()
    assert _view(bench, "a").epoch == 3
    bench.stop_master()
    bench.start_master()
    for name in "ab":
        bench.reconnect(name)
    bench.join("c", host=1)
    bench.run()
    for name in "ab":
        bench.vote(name, UPDATE)
    bench.run()
    assert _view(bench, "c").epoch == 4
    assert _view(bench, "c").prices == prices


def test_a_voter_that_measured_a_stranger_or_itself_changes_nothing() -> None:
    bench = _on_hosts("ab")
    bench.vote("a", OPTIMIZE, _saw("z", 30_000_000, 1))
    bench.vote("b", OPTIMIZE, _saw("b", 30_000_000, 1))
    bench.run()
    assert _view(bench, "a").epoch == 2


def test_a_loss_while_voters_wait_changes_no_price_and_takes_nobody_s_figures() -> None:
    """The view after the loss comes before the vote is complete; the late voter alone does not set the price."""
    bench = _on_hosts("abc")
    bench.vote("a", OPTIMIZE, _saw("b", 30_000_000, 12_500_000))
    bench.run()
    _lose(bench, "c")
    assert _view(bench, "a").epoch == 3
    assert _view(bench, "a").prices == NO_PRICES
    bench.vote("b", OPTIMIZE, _saw("a", 90_000_000, 90_000_000))
    bench.run()
    assert _view(bench, "b").epoch == 4
    assert _view(bench, "b").prices == Prices(0, 0, 30_000_000, 12_500_000)


@pytest.mark.parametrize("resolving", [False, True])
def test_the_figures_of_a_voter_that_is_lost_go_with_it(resolving: bool) -> None:
    bench = _on_hosts("abc")
    bench.vote("c", OPTIMIZE, _saw("a", 30_000_000, 1_000))
    bench.run()
    if resolving:
        bench.vote("a", OPTIMIZE)
        bench.vote("b", OPTIMIZE, _saw("a", 90_000_000, 0))
        bench.master_hears()
        _lose(bench, "c")
    else:
        _lose(bench, "c")
        bench.vote("a", OPTIMIZE)
        bench.vote("b", OPTIMIZE, _saw("a", 90_000_000, 0))
        bench.run()
    assert [member.id for member in _view(bench, "a").members] == [identity("a"), identity("b")]
    assert _view(bench, "a").prices == Prices(0, 0, 90_000_000, 0)


@pytest.mark.parametrize("withdrawn", [False, True])
def test_a_vote_that_failed_leaves_no_price(withdrawn: bool) -> None:
    bench = _on_hosts("abc")
    bench.vote("a", OPTIMIZE, _saw("b", 30_000_000, 1_000))
    if withdrawn:
        bench.abandon("a")
    else:
        bench.vote("b", UPDATE)
    bench.run()
    assert bench.master is not None
    assert bench.master.explain() == ""
    _lose(bench, "c")
    assert _view(bench, "a").epoch == 3
    assert _view(bench, "a").prices == NO_PRICES
    for name in "ab":
        bench.vote(name, OPTIMIZE)
    bench.run()
    assert _view(bench, "a").epoch == 3


def test_a_vote_said_again_to_a_restarted_master_has_its_figures() -> None:
    bench = _on_hosts("ab")
    bench.vote("a", OPTIMIZE, _saw("b", 30_000_000, 1_000))
    bench.run()
    bench.stop_master()
    bench.start_master()
    for name in "ab":
        bench.reconnect(name)
    bench.vote("b", OPTIMIZE)
    bench.run()
    assert _view(bench, "a").prices == Prices(0, 0, 30_000_000, 1_000)


@pytest.mark.parametrize("body", [b"nonsense", offer(0, "x")])
def test_a_voter_that_says_nothing_of_links_is_gone(body: bytes) -> None:
    bench = _on_hosts("ab")
    bench.vote("a", OPTIMIZE, body)
    bench.run()
    assert [member.id for member in _view(bench, "b").members] == [identity("b")]
