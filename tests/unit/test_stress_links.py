# SPDX-License-Identifier: MIT
"""Which traffic a set of link faults stops, and that relays make it so."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from itertools import permutations

import pytest

from pccl.stress.links import RelayLinks, Weather
from pccl.stress.relay import DIALLER_ID

LIMIT_S = 20.0
PEERS = range(4)
HELD_KINDS = ("half-open", "one-way", "cut", "slow", "partition")


def blocked(weather: Weather) -> set[tuple[int, int]]:
    return {pair for pair in permutations(PEERS, 2) if weather.blocked(*pair)}


def test_fair_weather_blocks_nothing() -> None:
    weather = Weather()
    assert blocked(weather) == set()
    assert not any(weather.masterless(peer) for peer in PEERS)


def test_each_kind_blocks_what_it_says() -> None:
    weather = Weather()
    weather.begin("half-open", [1])
    both = {pair for pair in permutations(PEERS, 2) if 1 in pair}
    assert blocked(weather) == both
    assert not weather.masterless(1)
    weather = Weather()
    weather.begin("cut", [1])
    assert blocked(weather) == both
    assert weather.masterless(1)
    assert not weather.masterless(0)
    weather = Weather()
    weather.begin("one-way", [1])
    assert blocked(weather) == {(0, 1), (2, 1), (3, 1)}
    weather = Weather()
    weather.begin("partition", [0, 1])
    assert blocked(weather) == {pair for pair in permutations(PEERS, 2) if len({0, 1} & set(pair)) == 1}
    assert [weather.masterless(peer) for peer in PEERS] == [True, True, False, False]
    weather = Weather()
    weather.begin("slow", [1])
    assert blocked(weather) == set()
    assert weather.slow[1]


@pytest.mark.parametrize("first", HELD_KINDS)
@pytest.mark.parametrize("second", HELD_KINDS)
def test_faults_may_overlap_and_end_in_any_order(first: str, second: str) -> None:
    weather, alone = Weather(), Weather()
    alone.begin(second, [1, 2])
    weather.begin(first, [1])
    weather.begin(second, [1, 2])
    weather.end(first, [1])
    assert blocked(weather) == blocked(alone)
    weather.end(second, [1, 2])
    assert blocked(weather) == set()
    assert not any(weather.masterless(peer) or weather.slow[peer] for peer in PEERS)


class Peer:
    """A listener behind a relay, and its dials."""

    def __init__(self, made: RelayLinks, number: int, master: str) -> None:
        self.name = bytes([number + 1]) * (DIALLER_ID[1] - DIALLER_ID[0])
        place = made.place(number, number, master)
        assert place.advertise is not None
        assert place.shm == "off", "bytes must go where they can be disturbed"
        host, _, port = place.advertise.rpartition(":")
        self.relay = (host, int(port))
        self.control = place.master
        self.listener = socket.create_server(("127.0.0.1", int(port)))
        self.listener.settimeout(LIMIT_S)
        made.joined(number, self.name.hex())

    def dial(self, other: Peer) -> tuple[socket.socket, socket.socket]:
        """Both ends of a connection that was greeted as the data plane does it."""
        near = socket.create_connection(other.relay, LIMIT_S)
        near.sendall(bytes(DIALLER_ID[0]) + self.name)
        far = other.listener.accept()[0]
        far.settimeout(LIMIT_S)
        received = b""
        while len(received) < DIALLER_ID[1]:
            received += far.recv(DIALLER_ID[1] - len(received))
        return near, far


@pytest.fixture
def three() -> Iterator[tuple[RelayLinks, list[Peer]]]:
    made = RelayLinks(slow_rate=8_000_000)
    master = socket.create_server(("127.0.0.1", 0))
    peers = [Peer(made, number, f"127.0.0.1:{master.getsockname()[1]}") for number in range(3)]
    yield made, peers
    made.close()
    for one in (master, *(peer.listener for peer in peers)):
        one.close()


def passes(source: socket.socket, sink: socket.socket, soon: bool) -> bool:
    """Whether a byte gets through; at once if it does not have to come."""
    source.sendall(b"x")
    sink.settimeout(LIMIT_S if soon else 0.2)
    try:
        return sink.recv(1) == b"x"
    except TimeoutError:
        return False


def test_a_peer_that_hears_nothing_can_still_speak(three: tuple[RelayLinks, list[Peer]]) -> None:
    made, (a, b, c) = three
    ab, ba = a.dial(b)
    bc, cb = b.dial(c)
    ac, ca = a.dial(c)
    made.begin("one-way", [1])
    assert not passes(ab, ba, soon=False)
    assert not passes(cb, bc, soon=False)
    assert passes(ba, ab, soon=True)
    assert passes(bc, cb, soon=True)
    assert passes(ac, ca, soon=True)
    made.heal("one-way", [1])
    for sink in (ba, bc):
        sink.settimeout(LIMIT_S)
        assert sink.recv(1) == b"x", "what was held back arrives"
    for one in (ab, ba, bc, cb, ac, ca):
        one.close()


def test_a_reset_ends_all_connections_of_a_peer_and_no_other(three: tuple[RelayLinks, list[Peer]]) -> None:
    made, (a, b, c) = three
    ab, ba = a.dial(b)
    bc, cb = b.dial(c)
    ac, ca = a.dial(c)
    made.begin("reset", [1])
    for end in (ab, ba, bc, cb):
        end.settimeout(LIMIT_S)
        with pytest.raises(ConnectionResetError):
            end.recv(1)
    assert passes(ac, ca, soon=True)
    made.heal("reset", [1])
    for one in (ab, ba, bc, cb, ac, ca):
        one.close()


def test_an_ended_peer_frees_its_links(three: tuple[RelayLinks, list[Peer]]) -> None:
    made, (a, b, _) = three
    ab, ba = a.dial(b)
    made.ended(1)
    made.ended(1)
    with pytest.raises(OSError):  # noqa: PT011 - refused, or reset, as the system sees it
        socket.create_connection(b.relay, LIMIT_S).recv(1)
    made.begin("cut", [0])
    made.heal("cut", [0])
    socket.create_server(b.relay).close()  # its port is anybody's again
    ab.close()
    ba.close()


def test_peers_that_come_and_go_hold_nothing(three: tuple[RelayLinks, list[Peer]]) -> None:
    made, (a, *_) = three
    before = len(os.listdir("/proc/self/fd"))
    for number in range(3, 20):
        peer = Peer(made, number, a.control)
        near, far = a.dial(peer)
        made.ended(number)
        for one in (near, far, peer.listener):
            one.close()
    deadline = time.monotonic() + LIMIT_S
    while len(os.listdir("/proc/self/fd")) > before:
        assert time.monotonic() < deadline, "descriptors are left"
