# SPDX-License-Identifier: MIT
"""The two zmq sockets on a loop, over loopback."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Iterator

import pytest
import uvloop
import zmq

from pccl.addresses import HostPort
from pccl.sockets import DealerLink, RouterLink, seal, unseal

LIMIT_S = 10.0
PEER = b"p" * 16


class Bench:
    """A router and a loop; what the router hears, and what dealers report."""

    def __init__(self) -> None:
        self.loop = uvloop.new_event_loop()
        self.router = RouterLink(HostPort("127.0.0.1", 0))
        self.heard: list[tuple[bytes, bytes]] = []
        self.closed = 0
        self.damaged: list[bytes] = []
        self.answers: list[bytes] = []
        self.events: list[str] = []
        self.router.start(
            self.loop,
            lambda peer, data: self.heard.append((peer, data)),
            self.damaged.append,
            self._count,
            on_turned_away=lambda: None,
        )

    def _count(self) -> None:
        self.closed += 1

    def dealer(self, identity: bytes = PEER, address: HostPort | None = None) -> DealerLink:
        return DealerLink(
            self.loop,
            identity,
            address or self.router.address,
            on_message=self.answers.append,
            on_connected=lambda: self.events.append("connected"),
            on_disconnected=lambda: self.events.append("disconnected"),
        )

    def until(self, condition: Callable[[], bool]) -> None:
        async def wait() -> None:
            while not condition():
                tick = self.loop.create_future()
                self.loop.call_later(0.001, tick.set_result, None)
                await tick

        self.loop.run_until_complete(asyncio.wait_for(wait(), LIMIT_S))


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.router.close()
    bench.loop.close()


def test_messages_go_both_ways_in_order(bench: Bench) -> None:
    dealer = bench.dealer()
    sent = [bytes([number % 256]) * number for number in range(1, 1000)]
    for data in sent:
        dealer.send(data)
    bench.until(lambda: len(bench.heard) == len(sent))
    assert bench.heard == [(PEER, data) for data in sent]
    for data in sent:
        assert bench.router.send(PEER, data)
    bench.until(lambda: len(bench.answers) == len(sent))
    assert bench.answers == sent
    dealer.close(linger_ms=0)


def test_who_is_not_connected_is_unreachable(bench: Bench) -> None:
    assert not bench.router.send(b"q" * 16, b"hello")
    dealer = bench.dealer()
    dealer.send(b"here")
    bench.until(lambda: bool(bench.heard))
    assert bench.router.send(PEER, b"hello")
    dealer.close(linger_ms=0)
    bench.until(lambda: bench.closed > 0)
    bench.until(lambda: not bench.router.send(PEER, b"hello"))


def test_a_farewell_leaves_before_the_close(bench: Bench) -> None:
    dealer = bench.dealer()
    bench.until(lambda: dealer.connected)
    dealer.send(b"farewell")
    dealer.close(linger_ms=1000)
    bench.until(lambda: bench.heard == [(PEER, b"farewell")])
    assert bench.events == ["connected"]


def test_a_lost_master_is_noticed_and_found_again(bench: Bench) -> None:
    first = RouterLink(HostPort("127.0.0.1", 0))
    heard: list[bytes] = []
    first.start(bench.loop, lambda peer, data: heard.append(data), lambda peer: None, lambda: None, lambda: None)
    dealer = bench.dealer(address=first.address)
    dealer.send(b"one")
    bench.until(lambda: heard == [b"one"])
    first.close()
    bench.until(lambda: bench.events[-1] == "disconnected")
    second = RouterLink(first.address)
    second.start(bench.loop, lambda peer, data: heard.append(data), lambda peer: None, lambda: None, lambda: None)
    bench.until(lambda: bench.events == ["connected", "disconnected", "connected"])
    dealer.send(b"two")
    bench.until(lambda: heard == [b"one", b"two"])
    dealer.close(linger_ms=0)
    second.close()


def test_redial_makes_a_fresh_connection(bench: Bench) -> None:
    dealer = bench.dealer()
    bench.until(lambda: dealer.connected)
    dealer.redial()
    assert not dealer.connected
    bench.until(lambda: dealer.connected)
    bench.until(lambda: bench.closed > 0)
    dealer.send(b"again")
    bench.until(lambda: (PEER, b"again") in bench.heard)
    dealer.close(linger_ms=0)


def test_a_returning_identity_is_heard_while_its_old_connection_lives(bench: Bench) -> None:
    old = bench.dealer()
    old.send(b"old")
    bench.until(lambda: bool(bench.heard))
    new = bench.dealer()
    new.send(b"new")
    bench.until(lambda: (PEER, b"new") in bench.heard)
    assert bench.router.send(PEER, b"for the new one")
    bench.until(lambda: bench.answers == [b"for the new one"])
    old.close(linger_ms=0)
    new.close(linger_ms=0)


def test_a_full_queue_counts_as_unreachable(bench: Bench) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        dealer = bench.dealer(address=HostPort("127.0.0.1", silent.getsockname()[1]))
        for _ in range(10_000):
            dealer.send(b"into the void")  # bounded, and it never blocks
        dealer.close(linger_ms=1000)
    assert bench.events == []


def test_a_busy_port_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder, pytest.raises(OSError, match="in use"):
        RouterLink(HostPort("127.0.0.1", holder.getsockname()[1]))


@pytest.mark.parametrize("missing", ["socket", "get_monitor_socket"])
def test_a_redial_without_descriptors_is_an_error_and_the_end_of_the_link(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    """For its socket, or for the monitor of a socket that was made."""

    def none_left(*_: object) -> None:
        raise zmq.ZMQError(errno.EMFILE)

    dealer = bench.dealer()
    bench.until(lambda: bench.events == ["connected"])
    monkeypatch.setattr(zmq.Context if missing == "socket" else zmq.Socket, missing, none_left)
    with pytest.raises(OSError, match="Too many open files"):
        dealer.redial()
    dealer.send(b"goes nowhere")
    dealer.close(linger_ms=0)


def test_more_than_one_part_is_nobodys_message(bench: Bench) -> None:
    dealer = bench.dealer()
    dealer._socket.send_multipart([b"two", b"parts"])
    dealer.send(b"one")
    bench.until(lambda: bool(bench.heard))
    assert bench.heard == [(PEER, b"one")]
    dealer.close(linger_ms=0)


# ---------------------------------------------------------------------------------------------- damage


def test_what_was_damaged_is_not_believed() -> None:
    wire = seal(b"a message")
    assert unseal([wire]) == b"a message"
    assert unseal([seal(b"")]) == b""
    for at in range(len(wire)):
        for bit in range(8):
            assert unseal([wire[:at] + bytes([wire[at] ^ (1 << bit)]) + wire[at + 1 :]]) is None
        assert unseal([wire[:at]]) is None
    assert unseal([]) is None
    assert unseal([wire, wire]) is None


def test_the_router_tells_who_sent_something_damaged(bench: Bench) -> None:
    dealer = bench.dealer()
    dealer._socket.send(b"not sealed at all")
    dealer._socket.send_multipart([seal(b"two"), seal(b"parts")])
    dealer.send(b"good")
    bench.until(lambda: bench.heard == [(PEER, b"good")])
    assert bench.damaged == [PEER, PEER]
    dealer.close(0)


def test_a_dealer_dials_afresh_after_something_damaged(bench: Bench) -> None:
    dealer = bench.dealer()
    dealer.send(b"hello")
    bench.until(lambda: bench.heard == [(PEER, b"hello")])
    bench.router._socket.send_multipart([PEER, b"not sealed at all"])
    bench.until(lambda: bench.events.count("connected") == 2)
    assert bench.answers == []
    dealer.send(b"again")
    bench.until(lambda: bench.heard[-1] == (PEER, b"again"))
    dealer.close(0)
