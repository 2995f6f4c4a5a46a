# SPDX-License-Identifier: MIT
"""`--hosts` as users write it, and what stands before a command on another machine."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import pytest

from pccl.fleet import LOCAL
from pccl.stress import hosts
from pccl.stress.hosts import HostsError, Site, Ssh, Wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("local", Wanted("local")),
        ("netns:4", Wanted("netns", 4)),
        ("ssh://a,b", Wanted("ssh", 2, ("a", "b"))),
        ("ssh://me@a:2222=10.0.0.1, b", Wanted("ssh", 2, ("me@a:2222=10.0.0.1", "b"))),
    ],
)
def test_hosts_are_read(text: str, wanted: Wanted) -> None:
    assert hosts.parse(text) == wanted


@pytest.mark.parametrize("text", ["", "moon", "netns", "netns:", "netns:1", "netns:1000", "ssh://", "ssh://a,,b"])
def test_what_is_not_understood_is_refused_with_what_would_be(text: str) -> None:
    with pytest.raises(HostsError, match=re.escape("--hosts is local, netns:N")):
        hosts.parse(text)


@pytest.mark.parametrize(
    ("destination", "name", "address", "options"),
    [
        ("a", "a", "a", ["a"]),
        ("me@a", "me@a", "a", ["me@a"]),
        ("me@a:2222", "me@a:2222", "a", ["-p", "2222", "me@a"]),
        ("a:22=10.0.0.1", "a:22", "10.0.0.1", ["-p", "22", "a"]),
    ],
)
def test_a_destination_is_a_login_and_where_the_others_reach_it(
    destination: str, name: str, address: str, options: list[str]
) -> None:
    host = Ssh(destination)
    assert (host.name, host.address) == (name, address)
    command = host.command(["-c", "print(1)"], {})
    assert command[-1 - len(hosts.SSH) - len(options) : -1] == [*hosts.SSH, *options]


def test_the_shell_there_says_its_process_id_and_becomes_python() -> None:
    """The last word of the ssh command is what the remote shell gets; here, this machine's shell is given it."""
    host = Ssh("somewhere", shlex.quote(sys.executable))
    program = "import os; print(os.getpid(), os.environ['SIGN'])"
    there = host.command(["-c", program], {"SIGN": "it's $HOME"})[-1]
    with subprocess.Popen(["sh", "-c", there], stdout=subprocess.PIPE) as process:
        pid = host.started(process)
        assert process.stdout is not None
        assert process.stdout.read().decode() == f"{pid} it's $HOME\n"


def test_a_destination_that_does_not_answer_is_named() -> None:
    host = Ssh("nowhere")
    with (
        subprocess.Popen(["sh", "-c", "exit 255"], stdout=subprocess.PIPE) as process,
        pytest.raises(HostsError, match=r"ssh nowhere did not start a process; try: ssh .* nowhere true"),
    ):
        host.started(process)


def test_seats_are_dealt_to_hosts_in_turn() -> None:
    first, second = Ssh("a"), Ssh("b")
    site = Site(first, [first, second])
    assert [site.host(seat) for seat in range(3)] == [first, second, first]
    assert site.mates(1)[:3] == [1, 3, 5]
    assert hosts.local().mates(1) == [1], "on one machine a peer's links are its own"
    assert hosts.local().host(5) is LOCAL
