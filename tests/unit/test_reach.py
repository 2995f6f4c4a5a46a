# SPDX-License-Identifier: MIT
"""Finding the master, and from there the own address."""

from __future__ import annotations

import asyncio
import socket
import threading
import warnings
from typing import Any

import pytest
import uvloop

from pccl import InvalidArgument, MasterLost, reach, system
from pccl.addresses import HostPort


def test_the_route_to_the_master_gives_the_own_address() -> None:
    with socket.create_server(("127.0.0.3", 0)) as server:
        port = server.getsockname()[1]
        found, local = asyncio.run(reach.master(HostPort("127.0.0.3", port), 5))
    assert found == HostPort("127.0.0.3", port)
    assert local.startswith("127.0.0.")


def test_a_name_with_several_addresses_leads_to_the_one_that_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = HostPort("localhost", server.getsockname()[1])
        found, local = asyncio.run(reach.master(address, 5))
    assert (found.host, local) == ("127.0.0.1", "127.0.0.1")


def test_nothing_is_left_open_by_a_loop_that_ends_with_the_answer() -> None:
    loop = uvloop.new_event_loop()
    with socket.create_server(("127.0.0.1", 0)) as server, warnings.catch_warnings(record=True) as unclosed:
        warnings.simplefilter("always")
        finding = loop.create_task(reach.master(HostPort(*server.getsockname()), 5))
        while not finding.done():
            loop.stop()
            loop.run_forever()
        loop.close()
    assert finding.result()[0].host == "127.0.0.1"
    assert [str(it.message) for it in unclosed] == []


def test_nobody_there_is_master_lost_with_the_reason() -> None:
    text = r"no master at 127\.0\.0\.1:1 within 0\.1 s \(connect_timeout\): Connection refused"
    with pytest.raises(MasterLost, match=text):
        asyncio.run(reach.master(HostPort("127.0.0.1", 1), 0.1))


def test_a_name_that_resolves_later_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve = socket.getaddrinfo
    attempts: list[object] = []

    def late(host: Any, *rest: Any, **named: Any) -> Any:
        attempts.append(host)
        if len(attempts) < 3:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return resolve("127.0.0.1", *rest, **named)

    monkeypatch.setattr(socket, "getaddrinfo", late)
    with socket.create_server(("127.0.0.1", 0)) as server:
        found, _ = asyncio.run(reach.master(HostPort("later.invalid", server.getsockname()[1]), 5))
    assert found.host == "127.0.0.1"
    assert len(attempts) >= 3


def test_a_master_that_starts_later_is_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as placeholder:
        address = HostPort(*placeholder.getsockname())
    started = threading.Event()

    async def wait() -> tuple[HostPort, str]:
        asyncio.get_running_loop().call_later(0.1, started.set)
        return await reach.master(address, 10)

    found: list[tuple[HostPort, str]] = []
    thread = threading.Thread(target=lambda: found.append(asyncio.run(wait())))
    thread.start()
    started.wait(10)
    with socket.create_server((address.host, address.port)):
        thread.join(10)
    assert found == [(address, "127.0.0.1")]


def test_listen_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "interface_addresses", lambda: [("lo", "127.0.0.1"), ("eth0", "10.0.0.5")])
    assert reach.listen_address("127.0.0.1", None, None) == "127.0.0.1"
    assert reach.listen_address("127.0.0.1", None, "eth0") == "10.0.0.5"
    assert reach.listen_address("127.0.0.1", HostPort("10.0.0.5", 0), None) == "10.0.0.5"
    assert reach.listen_address("10.0.0.5", HostPort("203.0.113.9", 4000), None) == "10.0.0.5"


def test_advertised_addresses_become_numeric() -> None:
    assert reach.numeric("203.0.113.9") == HostPort("203.0.113.9", 0)
    assert reach.numeric("[fd00::9]:4000") == HostPort("fd00::9", 4000)
    with pytest.raises(InvalidArgument, match="cannot resolve"):
        reach.numeric("nobody.invalid:1")


def test_only_a_refusal_shows_that_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not asyncio.run(reach.nobody_listens(HostPort("127.0.0.1", port)))
    assert asyncio.run(reach.nobody_listens(HostPort("127.0.0.1", port)))
    assert not asyncio.run(reach.nobody_listens(HostPort("no-such-host.invalid", port)))
