# SPDX-License-Identifier: MIT
"""Links that cannot be made: from one side, from either side, and none at all. Addresses that nobody can dial stand for
firewalls: a peer listens on 127.0.0.1 and tells the others another address of the loopback network."""

from __future__ import annotations

import socket
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import pytest

import pccl
from pccl.fleet import Line
from tests.process.harness import Run, gather

pytestmark = [pytest.mark.process, pytest.mark.alone]

STEPS = 20
WORDS = 1_000_000
HOLDER = "127.0.0.71:"


def hidden(number: int) -> str:
    """An `advertise=` for a peer that nobody can dial."""
    with socket.create_server(("127.0.0.1", 0)) as holder:
        return f"127.0.0.{70 + number}:{holder.getsockname()[1]}"


def scattering(comm: pccl.Communicator) -> None:
    """Parts whose length only two members know, also of two that have no link; then objects."""
    us, root, everyone = comm.rank, comm.world_size - 1, range(comm.world_size)

    def parts(pairs: list[tuple[int, int]]) -> tuple[np.ndarray[Any, Any], list[int]]:
        each = [np.full(40_000 * source + target, 10 * source + target) for source, target in pairs]
        return np.concatenate(each), [len(it) for it in each]

    send, sent = parts([(us, to) for to in everyone])
    want, received = parts([(source, us) for source in everyone])
    recv = np.zeros_like(want)
    comm.all_to_all_v(send, sent, recv, received)
    assert np.array_equal(recv, want)
    whole, lengths = parts([(it, root) for it in everyone])
    own, _ = parts([(us, root)])
    gathered, scattered = np.zeros_like(whole), np.zeros_like(own)
    comm.gather_v(own, gathered if us == root else None, lengths if us == root else None, root)
    assert us != root or np.array_equal(gathered, whole)
    comm.scatter_v(whole if us == root else None, lengths if us == root else None, scattered, root)
    assert np.array_equal(scattered, own)
    objects = comm.gather_object("x" * us, root)
    assert objects == (["x" * it for it in everyone] if us == root else None)


def summing(line: Line, address: str, peers: str, link_timeout: str, advertise: str = "") -> None:
    """Sums until all have done STEPS; says what it took."""
    options = {"shm": "off", "link_timeout": float(link_timeout), "advertise": advertise or None}
    with pccl.Communicator(address, **options) as comm:  # type: ignore[arg-type]
        comm.connect()
        gather(comm, int(peers))
        epoch, failures, algorithms = comm.epoch, 0, set()
        line.send(kind="gathered")
        line.receive()
        for step in range(STEPS):
            for elements in (3, 100_000):
                while True:
                    x = np.full(elements, comm.rank + step, np.float64)
                    try:
                        info = comm.all_reduce(x)
                    except pccl.PeerLost:
                        failures += 1
                        continue
                    except pccl.PCCLError as error:
                        line.send(kind="failed", error=type(error).__name__, text=str(error))
                        return
                    break
                world = info.world_size
                assert (x == world * (world - 1) / 2 + world * step).all()
                algorithms.add(pccl.Algorithm(info.algorithm).name)
        gathered = np.empty(5 * world, np.int64)
        comm.all_gather(np.full(5, comm.rank), gathered)
        assert gathered.tolist() == np.repeat(np.arange(world), 5).tolist()
        scattering(comm)
        comm.barrier()
        line.send(kind="done", epochs=comm.epoch - epoch, failures=failures, world=world, algorithms=sorted(algorithms))
        line.receive()


def sharing(line: Line, address: str, peers: str, link_timeout: str, advertise: str = "") -> None:
    """Sums until a dead link is worked around. Then one of those that cannot be dialled alone has the newest state."""
    options = {"shm": "off", "link_timeout": float(link_timeout), "advertise": advertise or None}
    with pccl.Communicator(address, **options) as comm:  # type: ignore[arg-type]
        comm.connect()
        gather(comm, int(peers))
        line.send(kind="gathered")
        line.receive()
        algorithm = pccl.Algorithm.RING
        while algorithm != pccl.Algorithm.TREE:
            try:
                algorithm = pccl.Algorithm(comm.all_reduce(np.ones(100_000)).algorithm)
            except pccl.PeerLost:
                continue
        holds = advertise.startswith(HOLDER)
        content = np.arange(WORDS, dtype=np.int64) if holds else np.zeros(WORDS, np.int64)
        state = pccl.SharedState([pccl.TensorInfo.from_numpy(content, "content")], 7 if holds else 6)
        info = comm.sync_shared_state(state)
        assert (content == np.arange(WORDS)).all()
        line.send(kind="done", revision=state.revision, sent=info.tx_bytes, received=info.rx_bytes)
        line.receive()


def outcome(
    folder: Path, kind: str, link_timeout: str, advertised: list[str], does: FunctionType = summing
) -> list[dict[str, Any]]:
    """What each peer says in the end; all go on until all have said it."""
    with Run(folder) as run:
        peers = [run.peer(does, str(len(advertised)), link_timeout, *([it] if it else [])) for it in advertised]
        for peer in peers:
            run.expect(peer, "gathered")
        for peer in peers:
            peer.tell(kind="go")
        return [run.expect(peer, kind) for peer in peers]


def test_one_side_that_can_dial_is_enough(tmp_path: Path) -> None:
    """Nobody can dial rank 1, which can dial everybody: nothing stops, no operation is repeated."""
    for said in outcome(tmp_path, "done", "10", ["", hidden(1), ""]):
        assert (said["epochs"], said["failures"], said["world"]) == (0, 0, 3)


def test_a_dead_link_is_worked_around(tmp_path: Path) -> None:
    """Nobody can dial ranks 1 and 2, so they have no link to each other: rank 0 stands between them."""
    for said in outcome(tmp_path, "done", "1", ["", hidden(1), hidden(2)]):
        assert said["world"] == 3
        assert "TREE" in said["algorithms"]


def test_shared_state_goes_around_a_dead_link(tmp_path: Path) -> None:
    """Rank 1 alone has the newest state and no link to rank 2: rank 0 fetches it and passes it on."""
    middle, holder, far = outcome(tmp_path, "done", "1", ["", hidden(1), hidden(2)], sharing)
    size = 8 * WORDS
    assert (holder["sent"], holder["received"]) == (size, 0)
    assert (middle["sent"], middle["received"]) == (size, size)
    assert (far["sent"], far["received"]) == (0, size)
    assert {it["revision"] for it in (middle, holder, far)} == {7}


def test_two_peers_without_a_link_are_told_which_one(tmp_path: Path) -> None:
    """The end comes after several tries in both directions, and its text names the link."""
    said = {it["error"]: it["text"] for it in outcome(tmp_path, "failed", "1", [hidden(1), hidden(2)])}
    assert sorted(said) == ["Expelled", "TooFewPeers"]
    assert "no way leads to it, the links between ranks 0-1 are dead" in said["Expelled"]
