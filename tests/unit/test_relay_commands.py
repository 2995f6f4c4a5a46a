# SPDX-License-Identifier: MIT
"""A relay obeys JSON: in the process, and as the command `pccl relay`."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pccl.addresses import parse
from pccl.fleet import Child, Fleet, Message
from pccl.stress.relay import Link, Relay
from pccl.stress.relay_commands import answer

LIMIT_S = 30.0


@pytest.fixture
def link() -> Iterator[Link]:
    with Relay() as relay:
        yield relay.link("127.0.0.1:1")


def test_verbs_do_what_the_methods_do(link: Link) -> None:
    assert answer(link, {"do": "set", "direction": "up", "hold": True, "delay_ms": 3}) == {"done": "set"}
    assert link.rule(None, "up").faults.hold
    assert link.rule(None, "up").faults.delay_ms == 3
    assert not link.rule(None, "down").faults.hold
    assert answer(link, {"do": "cut"}) == {"done": "cut", "connections": 0}
    assert answer(link, {"do": "reset", "limit": 1}) == {"done": "reset", "connections": 0}
    counts = {"accepted": 0, "open": 0, "up_bytes": 0, "down_bytes": 0}
    assert answer(link, {"do": "counts"}) == {"done": "counts", **counts}
    at = {"do": "at", "direction": "up", "bytes": 5, "then": {"do": "cut"}}
    assert answer(link, at) == {"done": "at"}


def test_refusing_and_permitting(link: Link) -> None:
    address = parse(link.address)
    assert answer(link, {"do": "refuse"}) == {"done": "refuse"}
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((address.host, address.port))
    assert answer(link, {"do": "refuse", "on": False}) == {"done": "refuse"}
    socket.create_connection((address.host, address.port)).close()


@pytest.mark.parametrize(
    "command",
    [
        3,
        {},
        {"do": "fly"},
        {"do": ["cut"]},
        {"do": "cut", "limit": "all"},
        {"do": "set", "name": []},
        {"do": "set", "delay_ms": float("inf")},
        {"do": "set", "delay_ms": float("nan")},
        {"do": "set", "rate": 10**400},
        {"do": "at", "direction": "up", "bytes": 1.5, "then": {"do": "cut"}},
        {"do": "set", "direction": "sideways"},
        {"do": "set", "speed": 3},
        {"do": "cut", "hard": True},
        {"do": "at", "direction": "up", "bytes": 0, "then": {"do": "cut"}},
        {"do": "at", "direction": "up", "bytes": 1, "then": {"do": "fly"}},
        {"do": "at", "bytes": 1},
    ],
)
def test_nonsense_is_an_error_that_is_told(link: Link, command: Any) -> None:
    reply = answer(link, command)
    assert list(reply) == ["error"]
    assert reply["error"]


WORDS = [
    "do",
    "set",
    "cut",
    "reset",
    "refuse",
    "at",
    "counts",
    "direction",
    "up",
    "bytes",
    "then",
    "name",
    "limit",
    "on",
]
FIELDS = st.sampled_from([*WORDS, "hold", "delay_ms", "rate"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**70) | st.floats() | FIELDS | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=4),
    max_leaves=8,
)


def test_any_json_is_obeyed_or_refused() -> None:
    with Relay() as relay:
        link = relay.link("127.0.0.1:1")

        @given(st.sampled_from(WORDS), st.dictionaries(FIELDS, JSON, max_size=4) | JSON)
        def obeys(verb: str, command: Any) -> None:
            reply = answer(link, {"do": verb, **command} if isinstance(command, dict) else command)
            assert reply.keys() & {"done", "error"}

        obeys()


def heard(fleet: Fleet, child: Child) -> Message:
    arrived = fleet.next(LIMIT_S)
    assert arrived is not None
    assert arrived[0] is child
    assert arrived[1] is not None
    return arrived[1]


def test_the_command_is_controlled_over_its_stdin() -> None:
    with Fleet() as fleet, socket.create_server(("127.0.0.1", 0)) as server:
        target = f"127.0.0.1:{server.getsockname()[1]}"
        child = fleet.start("relay", ["-m", "pccl", "relay", "--to", target, "--control"])
        address = parse(heard(fleet, child)["listening"])
        with socket.create_connection((address.host, address.port), LIMIT_S) as dialler:
            accepted, _ = server.accept()
            with accepted:
                dialler.sendall(b"through")
                assert accepted.recv(100) == b"through"
                child.tell(do="at", direction="down", bytes=3, then={"do": "reset"})
                assert heard(fleet, child) == {"done": "at"}
                accepted.sendall(b"abcdef")
                assert dialler.recv(100) in (b"abc", b"ab", b"a")  # a reset may discard none of what was read already
        child.tell(do="counts")
        assert heard(fleet, child)["up_bytes"] == 7
        child.tell(do="nonsense")
        assert "error" in heard(fleet, child)


def test_lines_that_are_no_json_are_answered_one_by_one() -> None:
    command = [sys.executable, "-m", "pccl", "relay", "--to", "127.0.0.1:1", "--control"]
    lines = ["{", "", "\udcff", "[" * 100_000, '{"do": "cut"}', "7"]
    said = subprocess.run(
        command,
        check=True,
        input="\n".join(lines) + "\n",
        stdout=subprocess.PIPE,
        text=True,
        errors="surrogateescape",
        timeout=LIMIT_S,
    ).stdout
    answers = [json.loads(line) for line in said.splitlines()][1:]
    assert [next(iter(it)) for it in answers] == ["error", "error", "error", "error", "done", "error"]


def test_the_command_ends_with_its_signal() -> None:
    command = [sys.executable, "-m", "pccl", "relay", "--to", "127.0.0.1:1", "--delay-ms", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "listening on 127.0.0.1:" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=LIMIT_S) == ("", "")
        assert process.returncode == 143


def test_the_command_says_what_is_wrong() -> None:
    for target, text in (("nowhere", "HOST:PORT"), ("127.0.0.1:0", "to which port it forwards")):
        command = [sys.executable, "-m", "pccl", "relay", "--to", target]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode == 1
        assert text in done.stderr
