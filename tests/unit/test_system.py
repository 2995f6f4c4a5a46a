# SPDX-License-Identifier: MIT
"""What is asked of the operating system, on this one."""

from __future__ import annotations

import os
import resource
import select
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pccl import system


def test_loopback_is_among_the_interfaces() -> None:
    assert ("lo", "127.0.0.1") in system.interface_addresses()
    names = {name for _, name in socket.if_nameindex()}
    assert {name.partition(":")[0] for name, _ in system.interface_addresses()} <= names


def test_host_id_is_the_same_in_another_process() -> None:
    code = "from pccl import system; print(system.host_id())"
    other = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert 0 < int(other) == system.host_id() < 2**64


def test_usable_cores_are_those_that_the_process_may_run_on(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import os; from pccl import system; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]); "
    code += "print(system.usable_cores())"
    pinned = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert int(pinned) == 1 <= system.usable_cores() <= (os.cpu_count() or 1)
    monkeypatch.delattr(os, "sched_getaffinity")
    assert system.usable_cores() == os.cpu_count()


def test_a_lock_has_one_holder(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as one, path.open("wb") as other:
        assert system.lock_file(one)
        assert not system.lock_file(other)
    with path.open("wb") as later:
        assert system.lock_file(later)


def test_descriptors_are_asked_for_and_given_back() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + 10, limits[1]))
    try:
        with pytest.raises(OSError, match=r"Too many open files \(1000 more are needed\)"):
            system.require_descriptors(1000)
        before = os.listdir("/dev/fd")
        system.require_descriptors(2)
        assert os.listdir("/dev/fd") == before
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_connections_to_an_address_are_closed_and_no_others() -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        doomed = socket.create_connection(one.getsockname())
        with socket.create_connection(other.getsockname()) as kept:
            system.close_connections_to(*one.getsockname())
            assert kept.getpeername() == other.getsockname()
            assert not _is_open(doomed.fileno())
            assert _is_open(kept.fileno())
            assert _is_open(one.fileno())
        doomed.detach()


def test_sockets_at_a_port_are_closed_whether_they_listen_or_were_accepted() -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        with socket.create_connection(one.getsockname()) as caller:
            accepted, _ = one.accept()
            system.close_sockets_at(one.getsockname()[1])
            assert [_is_open(it.fileno()) for it in (one, accepted, caller, other)] == [False, False, True, True]
        accepted.detach()
        one.detach()


def test_a_blind_descriptor_gives_up_the_file_and_not_the_lock_of_others(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as parents:
        assert system.lock_file(parents)
        with os.fdopen(os.dup(parents.fileno()), "wb") as inherited:
            inherited.write(b"buffered")
            system.blind(inherited.fileno())
        assert path.read_bytes() == b""
        with path.open("wb") as other:
            assert not system.lock_file(other)
    with path.open("wb") as later:
        assert system.lock_file(later)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="nothing else can")
def test_a_program_of_others_dies_with_us() -> None:
    parent = (
        "import subprocess, sys; from pccl import system; "
        "subprocess.Popen(system.dying_with_us(['sh', '-c', 'echo $$; kill -STOP $$'])); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        program = os.pidfd_open(int(started.stdout.readline()))
        started.kill()
        assert select.select([program], [], [], 30.0)[0], "it still is there"
        os.close(program)
