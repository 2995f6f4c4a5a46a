# SPDX-License-Identifier: MIT
"""Addresses as users write them, and the choice among local ones."""

from __future__ import annotations

import pytest

from pccl import InvalidArgument, addresses, system
from pccl.addresses import HostPort, Selection

EXISTING = [
    ("lo", "127.0.0.1"),
    ("docker0", "172.17.0.1"),
    ("eth0", "10.0.0.5"),
    ("eth1", "192.168.1.5"),
    ("lo", "::1"),
    ("eth0", "fd00::5"),
]


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:48148", "127.0.0.1", 48148),
        ("master.example.org:1", "master.example.org", 1),
        ("[::1]:65535", "::1", 65535),
        ("[fe80::1%eth0]:0", "fe80::1%eth0", 0),
        ("localhost:0", "localhost", 0),
    ],
)
def test_parse_and_print(text: str, host: str, port: int) -> None:
    assert addresses.parse(text) == HostPort(host, port)
    assert str(HostPort(host, port)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":1",
        "host",
        "host:",
        "host:x",
        "host:-1",
        "host:65536",
        "host:٣",
        "[::1]",
        "[::1]1",
        "[::1:1",
        "a b:1",
        "a\0b:1",
        "..:1",
        "x" * 64 + ":1",
    ],
)
def test_unreadable_addresses(text: str) -> None:
    with pytest.raises(InvalidArgument, match="is not HOST:PORT"):
        addresses.parse(text)


def test_bare_ipv6_is_told_about_brackets() -> None:
    with pytest.raises(InvalidArgument, match="brackets"):
        addresses.parse("::1:48148")


def test_a_port_may_have_a_default() -> None:
    assert addresses.parse("host", default_port=7) == HostPort("host", 7)
    assert addresses.parse("[::1]", default_port=7) == HostPort("::1", 7)
    assert addresses.parse("host:8", default_port=7) == HostPort("host", 8)
    with pytest.raises(InvalidArgument):
        addresses.parse("host:", default_port=7)


def test_literals_resolve_to_themselves() -> None:
    assert addresses.resolve(HostPort("10.1.2.3", 4)) == [HostPort("10.1.2.3", 4)]
    assert HostPort("127.0.0.1", 5) in addresses.resolve(HostPort("localhost", 5))


@pytest.mark.parametrize(
    ("text", "preferred", "chosen"),
    [
        ("eth0", "10.0.0.5", "10.0.0.5"),
        ("eth1", "10.0.0.5", "192.168.1.5"),
        ("eth0", "::1", "fd00::5"),
        ("10.0.0.0/8", "127.0.0.1", "10.0.0.5"),
        ("192.168.1.5", "10.0.0.5", "192.168.1.5"),
        ("fd00::/16", "10.0.0.5", "fd00::5"),
        ("^docker0", "10.0.0.5", "10.0.0.5"),
        ("^docker0,^lo", "172.17.0.1", "10.0.0.5"),
        ("10.0.0.0/8,192.168.0.0/16,^eth0", "10.0.0.5", "192.168.1.5"),
    ],
)
def test_selection(monkeypatch: pytest.MonkeyPatch, text: str, preferred: str, chosen: str) -> None:
    monkeypatch.setattr(system, "interface_addresses", lambda: EXISTING)
    assert Selection(text).choose(preferred) == chosen


@pytest.mark.parametrize("text", ["eth7", "^eth7", "eth0,10.9.0.0/16", "1.2.3.4"])
def test_what_does_not_exist_is_an_error_that_lists_what_does(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(system, "interface_addresses", lambda: EXISTING)
    with pytest.raises(InvalidArgument, match=r"matches nothing here.*eth1 \(192\.168\.1\.5\)"):
        Selection(text).choose("10.0.0.5")


def test_a_selection_that_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "interface_addresses", lambda: EXISTING)
    with pytest.raises(InvalidArgument, match="leaves nothing"):
        Selection("docker0,^docker0").choose("10.0.0.5")
    with pytest.raises(InvalidArgument, match="empty"):
        Selection("eth0,,eth1")
    with pytest.raises(InvalidArgument, match="empty"):
        Selection("^")
