# SPDX-License-Identifier: MIT
"""The relay against plain sockets: what goes through, byte for byte, and each fault as the two ends feel it."""

from __future__ import annotations

import errno
import os
import random
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from pccl.addresses import parse
from pccl.errors import Closed, InvalidArgument, SystemFailure
from pccl.stress.relay import Link, Relay

LIMIT_S = 30.0
QUIET_S = 0.2
"""How long nothing is waited for that must not come."""


class Bench:
    """A relay with one link, and the server that it forwards to."""

    def __init__(self, stack: ExitStack, seed: int = 7) -> None:
        self._stack = stack
        self.relay = stack.enter_context(Relay(seed))
        self.server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=1024))
        self.server.settimeout(LIMIT_S)
        self.target = f"127.0.0.1:{self.server.getsockname()[1]}"
        self.link = self.relay.link(self.target)

    def dial(self, link: Link | None = None) -> socket.socket:
        address = parse((link or self.link).address)
        return self._keep(socket.create_connection((address.host, address.port), LIMIT_S))

    def accept(self) -> socket.socket:
        accepted, _ = self.server.accept()
        accepted.settimeout(LIMIT_S)
        return self._keep(accepted)

    def pair(self) -> tuple[socket.socket, socket.socket]:
        """(who dialled, who accepted), known to each other."""
        dialler = self.dial()
        return dialler, self.accept()

    def _keep(self, one: socket.socket) -> socket.socket:
        return self._stack.enter_context(one)


@pytest.fixture
def bench() -> Iterator[Bench]:
    with ExitStack() as stack:
        yield Bench(stack)


def receive(one: socket.socket, count: int) -> bytes:
    """Exactly so many bytes, less at the end of the stream."""
    parts = []
    while count and (data := one.recv(min(count, 1 << 20))):
        parts.append(data)
        count -= len(data)
    return b"".join(parts)


def silent(one: socket.socket) -> bool:
    """Whether nothing can be read for a while."""
    return not select.select([one], [], [], QUIET_S)[0]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline


def sending(one: socket.socket, data: bytes) -> threading.Thread:
    """Sends in the background, then ends that direction."""

    def work() -> None:
        one.sendall(data)
        one.shutdown(socket.SHUT_WR)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_an_interrupted_close_may_be_repeated() -> None:
    """The relay's thread is busy, so that closing has to wait for it."""
    busy, release = threading.Event(), threading.Event()
    relay = Relay()
    relay.loop.call_soon_threadsafe(lambda: (busy.set(), release.wait(LIMIT_S)))
    assert busy.wait(LIMIT_S)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyboardInterrupt):
            relay.close()
        assert not relay.loop.is_closed()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        release.set()
        relay.close()
    assert relay.loop.is_closed()


# ---------------------------------------------------------------------------------------------- without faults


@pytest.mark.parametrize("delay_ms", [0, 20])
def test_both_directions_are_exact_and_end_one_by_one(bench: Bench, delay_ms: int) -> None:
    bench.link.set(delay_ms=delay_ms)
    up, down = random.Random(1).randbytes(5_000_003), random.Random(2).randbytes(3_000_001)
    dialler, accepted = bench.pair()
    threads = [sending(dialler, up), sending(accepted, down)]
    assert receive(accepted, len(up) + 1) == up
    assert receive(dialler, len(down) + 1) == down
    for thread in threads:
        thread.join()
    until(lambda: bench.link.counts().open == 0)
    counts = bench.link.counts()
    assert (counts.accepted, counts.up_bytes, counts.down_bytes) == (1, len(up), len(down))


def test_hundreds_of_connections_at_once(bench: Bench) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with ExitStack() as stack:
        diallers = [stack.enter_context(bench.dial()) for _ in range(300)]
        for number, dialler in enumerate(diallers):
            dialler.sendall(number.to_bytes(4, "little"))
        accepted = [stack.enter_context(bench.accept()) for _ in diallers]
        for one in accepted:
            one.sendall(receive(one, 4))
        assert [int.from_bytes(receive(one, 4), "little") for one in diallers] == list(range(300))
        assert bench.link.counts().open == 300
    until(lambda: bench.link.counts().open == 0)
    assert len(os.listdir("/proc/self/fd")) <= before


def test_nobody_at_the_target_is_a_reset(bench: Bench) -> None:
    link = bench.relay.link("127.0.0.1:1")
    with pytest.raises(ConnectionResetError):
        bench.dial(link).recv(1)


def test_the_reset_of_one_end_is_felt_by_the_other(bench: Bench) -> None:
    dialler, accepted = bench.pair()
    dialler.sendall(b"x")
    assert accepted.recv(1) == b"x"
    accepted.sendall(b"unread")
    assert select.select([dialler], [], [], LIMIT_S)[0]
    dialler.close()  # with unread data: a reset
    with pytest.raises(ConnectionResetError):
        receive(accepted, 100)


# ---------------------------------------------------------------------------------------------- faults


@pytest.mark.parametrize("direction", ["up", "down"])
def test_a_held_direction_keeps_its_bytes_for_later(bench: Bench, direction: str) -> None:
    dialler, accepted = bench.pair()
    source, sink = (dialler, accepted) if direction == "up" else (accepted, dialler)
    source.sendall(b"before")
    assert receive(sink, 6) == b"before"
    bench.link.set(direction, hold=True)  # type: ignore[arg-type]
    source.sendall(b"after")
    sink.sendall(b"back")
    assert receive(source, 4) == b"back"
    assert silent(sink)
    bench.link.set(hold=False)
    assert receive(sink, 5) == b"after"


def test_a_hold_hides_the_end_of_the_other_side(bench: Bench) -> None:
    dialler, accepted = bench.pair()
    bench.link.set(hold=True)
    accepted.close()
    assert silent(dialler)
    bench.link.set(hold=False)
    assert dialler.recv(1) == b""


def test_a_hold_bounds_what_is_taken_in(bench: Bench) -> None:
    bench.link.set("down", hold=True)
    dialler, accepted = bench.pair()
    thread = sending(dialler, bytes(1 << 20))
    assert receive(accepted, 1 << 20) == bytes(1 << 20)
    thread.join()
    accepted.setblocking(False)
    sent = 0
    while select.select([], [accepted], [], QUIET_S)[1]:
        sent += accepted.send(bytes(1 << 16))
    assert 0 < sent < 32 << 20


def test_connections_made_while_held_wait(bench: Bench) -> None:
    bench.link.set(hold=True)
    dialler = bench.dial()
    dialler.sendall(b"early")
    assert silent(bench.server)
    bench.link.set(hold=False)
    assert receive(bench.accept(), 5) == b"early"


def test_a_cut_is_an_end_and_a_reset_an_error(bench: Bench) -> None:
    for end, reset in ((bench.link.cut, False), (bench.link.reset, True)):
        dialler, accepted = bench.pair()
        dialler.sendall(b"x")
        assert accepted.recv(1) == b"x"
        assert end() == 1
        for one in (dialler, accepted):
            if reset:
                with pytest.raises(ConnectionResetError):
                    one.recv(1)
            else:
                assert one.recv(1) == b""
        assert end() == 0


def test_a_connection_may_be_reset_before_it_is_served(bench: Bench) -> None:
    """A trigger may come between its arrival and the next thing that the relay's thread does."""

    def arrive_and_reset() -> socket.socket:
        dialler = bench.dial()
        listener = bench.link._port.listener
        assert listener is not None
        bench.link._accept(listener)
        assert bench.link.reset() == 1
        return dialler

    dialler = bench.relay.run(arrive_and_reset)
    with pytest.raises(ConnectionResetError):
        dialler.recv(1)
    until(lambda: bench.link.counts().open == 0)


def test_only_the_oldest_connections_are_reset(bench: Bench) -> None:
    pairs = [bench.pair() for _ in range(4)]
    assert bench.link.reset(limit=1) == 1
    with pytest.raises(ConnectionResetError):
        pairs[0][0].recv(1)
    for dialler, accepted in pairs[1:]:
        dialler.sendall(b"x")
        assert accepted.recv(1) == b"x"


def test_refused_connections_fail_and_permitted_ones_do_not(bench: Bench) -> None:
    dialler, accepted = bench.pair()
    for _ in range(3):
        bench.link.refuse()
        with pytest.raises(ConnectionRefusedError):
            bench.dial()
        bench.link.refuse(False)
        bench.pair()
    dialler.sendall(b"x")
    assert accepted.recv(1) == b"x"


def test_delay_is_added_to_each_direction(bench: Bench) -> None:
    dialler, accepted = bench.pair()
    bench.link.set(delay_ms=50)
    begun = time.monotonic()
    dialler.sendall(b"x")
    accepted.sendall(accepted.recv(1))
    assert dialler.recv(1) == b"x"
    assert time.monotonic() - begun >= 0.1


@pytest.mark.parametrize(("field", "least_s"), [("rate", 0.2), ("total_rate", 0.4)])
def test_rates_bound_each_connection_or_all(bench: Bench, field: str, least_s: float) -> None:
    bench.link.set("up", **{field: 1_000_000})
    pairs = [bench.pair() for _ in range(2)]
    begun = time.monotonic()
    threads = [sending(dialler, bytes(200_000)) for dialler, _ in pairs]
    assert [len(receive(accepted, 200_001)) for _, accepted in pairs] == [200_000] * 2
    assert time.monotonic() - begun >= 0.95 * least_s
    for thread in threads:
        thread.join()


def test_a_rate_may_be_lifted_meanwhile(bench: Bench) -> None:
    bench.link.set("up", rate=1)
    dialler, accepted = bench.pair()
    thread = sending(dialler, bytes(100_000))
    assert accepted.recv(1) == b"\0"
    bench.link.set("up", rate=0)
    assert len(receive(accepted, 100_000)) == 99_999
    thread.join()


def damaged(data: bytes, every: int, seed: int) -> list[int]:
    """Which bytes of `data` arrive otherwise."""
    with ExitStack() as stack:
        bench = Bench(stack, seed)
        bench.link.set("up", corrupt_every=every)
        thread = sending(bench.dial(), data)
        arrived = receive(bench.accept(), len(data) + 1)
        thread.join()
    assert len(arrived) == len(data)
    return [index for index, (then, now) in enumerate(zip(data, arrived, strict=True)) if then != now]


def test_damage_is_rare_and_decided_by_the_seed() -> None:
    data = random.Random(3).randbytes(1_000_000)
    found = damaged(data, 10_000, 1)
    assert 50 < len(found) < 200
    assert damaged(data, 10_000, 1) == found
    assert damaged(data, 10_000, 2) != found


# ---------------------------------------------------------------------------------------------- triggers, names


def test_a_trigger_comes_after_exactly_so_many_bytes(bench: Bench) -> None:
    dialler, accepted = bench.pair()
    dialler.sendall(b"0123")
    assert receive(accepted, 4) == b"0123"
    bench.link.at("up", 100_003, lambda: bench.link.set("up", hold=True))
    thread = sending(dialler, bytes(300_000))
    assert len(receive(accepted, 100_003)) == 100_003
    assert silent(accepted)
    bench.link.set("up", hold=False)
    assert len(receive(accepted, 300_000)) == 300_000 - 100_003
    thread.join()


def test_a_trigger_may_end_the_connection_that_it_came_from(bench: Bench) -> None:
    dialler, accepted = bench.pair()
    bench.link.at("up", 3, bench.link.cut)
    dialler.sendall(b"abcdef")
    assert receive(accepted, 10) == b"abc"


def test_a_trigger_may_count_all_links(bench: Bench) -> None:
    other = bench.relay.link(bench.target)
    fired = threading.Event()
    bench.relay.at(5, fired.set)
    first, accepted = bench.pair()
    first.sendall(b"abc")
    assert receive(accepted, 3) == b"abc"
    assert not fired.is_set()
    second = bench.dial(other)
    bench.accept().sendall(b"de")
    assert receive(second, 2) == b"de"
    assert fired.wait(LIMIT_S)
    assert bench.relay.total_bytes() == 5


def test_what_a_trigger_raises_is_raised_at_the_end(bench: Bench) -> None:
    dialler, accepted = bench.pair()
    bench.link.at("up", 1, lambda: 1 // 0)
    dialler.sendall(b"xy")
    assert receive(accepted, 2) == b"xy"
    with pytest.raises(ZeroDivisionError):
        bench.relay.close()


def test_connections_have_names_and_faults_of_their_own(bench: Bench) -> None:
    link = bench.relay.link(bench.target, name_at=(1, 3))
    first = bench.dial(link)
    first.sendall(b"-aa first")
    at_first = bench.accept()
    second = bench.dial(link)
    second.sendall(b"-bb second")
    at_second = bench.accept()
    assert receive(at_first, 9) == b"-aa first"
    assert receive(at_second, 10) == b"-bb second"
    assert link.names() == [b"aa".hex(), b"bb".hex()]
    link.set("up", name=b"aa".hex(), hold=True)
    for one in (first, second):
        one.sendall(b"more")
    assert receive(at_second, 4) == b"more"
    assert silent(at_first)
    fired = threading.Event()
    link.at("up", 4, fired.set, name=b"aa".hex())
    assert not fired.is_set()
    link.set("up", name=b"aa".hex(), hold=False)
    assert receive(at_first, 4) == b"more"
    assert fired.wait(LIMIT_S)
    assert link.cut(b"bb".hex()) == 1
    assert at_second.recv(1) == b""
    link.set("up", name=b"bb".hex(), refuse=True)
    third = bench.dial(link)
    third.sendall(b"-bb third")
    with pytest.raises(ConnectionResetError):
        third.recv(1)
    bench.dial(link).sendall(b"-aa again")
    assert receive(bench.accept(), 9) == b"-aa again"


def test_a_link_before_a_peer_leaves_the_peer_its_port(bench: Bench) -> None:
    links = [bench.relay.before_peer() for _ in range(2)]
    assert links[0].address != links[1].address
    for link in links:
        port = parse(link.address).port
        with socket.create_server(("127.0.0.1", port)) as peer:
            dialler = bench.dial(link)
            dialler.sendall(bytes(range(40)))
            accepted, _ = peer.accept()
            with accepted:
                assert receive(accepted, 40) == bytes(range(40))
            assert link.names() in ([], [bytes(range(24, 40)).hex()])


# ---------------------------------------------------------------------------------------------- errors


def test_errors_are_typed(bench: Bench) -> None:
    with pytest.raises(SystemFailure, match=os.strerror(errno.EADDRINUSE)):
        bench.relay.link("127.0.0.1:1", listen=bench.target)
    with pytest.raises(InvalidArgument, match="brackets"):
        bench.relay.link("::1:5")
    with pytest.raises(InvalidArgument, match="name_at"):
        bench.relay.link(bench.target, name_at=(3, 3))
    with pytest.raises(InvalidArgument, match="sideways"):
        bench.link.set("sideways", hold=True)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="at least one byte"):
        bench.link.at("up", 0, bench.link.cut)
    bench.relay.close()
    bench.relay.close()
    with pytest.raises(Closed):
        bench.link.counts()
