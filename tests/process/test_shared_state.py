# SPDX-License-Identifier: MIT
"""Shared state between processes: newcomers, old checkpoints, strategies, and donors, masters and memory that fail.

`member` is what every peer does; a test says by `spec` what it holds and what goes wrong with it.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pccl
from pccl._native import Engine
from pccl.fleet import Child, Line
from tests.process.harness import Run, join

pytestmark = pytest.mark.process

MIB = 1 << 20
STRATEGIES = {it.name: it for it in pccl.SharedStateSyncStrategy}


# ---------------------------------------------------------------------------------------------- the peers' side


def member(line: Line, address: str, text: str) -> None:
    """Joins a group of `peers` and synchronises; says what came of it, as often as it is told to."""
    spec = json.loads(text)
    state = make_state(spec)
    if "pause_at" in spec:
        pause_at_request(line, spec["pause_at"])
    if spec.get("spoil"):
        spoil_before_serving(state)
    with join(address, spec["peers"], min_world_size=1) as comm:
        line.send(kind="joined", rank=comm.rank)
        while (order := line.receive()) is not None and order["kind"] == "synchronise":
            synchronise(line, comm, state, STRATEGIES[spec.get("strategy", "ENFORCE_POPULAR")])
            state.push_revision()


def make_state(spec: dict[str, Any]) -> pccl.SharedState:
    """Random tensors of a seed, `changed` bytes of which are flipped."""
    generator = np.random.default_rng(spec["seed"])
    sizes = spec.get("sizes", [MIB, 8])
    tensors = {f"t{i}": generator.integers(0, 256, size, np.uint8) for i, size in enumerate(sizes)}
    for place in spec.get("changed", []):
        tensors["t0"][place] ^= 255
    return pccl.SharedState(
        [pccl.TensorInfo.from_numpy(tensor, name) for name, tensor in tensors.items()], spec.get("revision", 0)
    )


def synchronise(
    line: Line, comm: pccl.Communicator, state: pccl.SharedState, strategy: pccl.SharedStateSyncStrategy
) -> None:
    try:
        info = comm.sync_shared_state(state, strategy)
    except pccl.SharedStateError as failure:
        line.send(kind="refused", text=str(failure), digest=state.hexdigest())
    except KeyboardInterrupt:
        line.send(kind="interrupted", digest=state.hexdigest())
    else:
        assert state.revision == info.revision
        line.send(kind="synced", tx=info.tx_bytes, rx=info.rx_bytes, revision=info.revision,
                  world_size=info.world_size, digest=state.hexdigest())  # fmt: skip


def pause_at_request(line: Line, number: int) -> None:
    """The request of that number is made only when the test says so; the ones before it are on their way."""
    fetch = Engine.state_fetch
    requests = iter(range(number + 1))

    def paused(self: Engine, *arguments: Any) -> Any:
        if next(requests, None) == number:
            line.send(kind="paused")
            line.receive()
        return fetch(self, *arguments)

    Engine.state_fetch = paused  # type: ignore[method-assign]


def spoil_before_serving(state: pccl.SharedState) -> None:
    """The content changes after its hash was offered."""
    serve = Engine.state_serve

    def spoiled(self: Engine, *arguments: Any) -> None:
        state.tensors[0].content[-1] ^= 1
        serve(self, *arguments)

    Engine.state_serve = spoiled  # type: ignore[method-assign]


# ---------------------------------------------------------------------------------------------- the tests' side


def start(run: Run, *specs: dict[str, Any]) -> list[Child]:
    """One peer per spec, in a group of their number."""
    return [run.peer(member, json.dumps({"peers": len(specs), **spec})) for spec in specs]


def order(run: Run, peers: list[Child]) -> None:
    """Tells all to synchronise."""
    for peer in peers:
        run.expect(peer, "joined")
    for peer in peers:
        peer.tell(kind="synchronise")


def end(run: Run, peers: list[Child]) -> None:
    for peer in peers:
        peer.tell(kind="end")
    assert [run.ended(peer) for peer in peers] == [0] * len(peers)


def digest_of(**spec: Any) -> str:
    return make_state(spec).hexdigest()


def test_newcomer_receives_64_mib_from_all_donors(tmp_path: Path) -> None:
    held: dict[str, Any] = {"seed": 1, "revision": 9, "sizes": [64 * MIB, 5]}
    with Run(tmp_path) as run:
        peers = start(run, held, held, {"seed": 2, "sizes": [64 * MIB, 5]})
        order(run, peers)
        first, second, newcomer = [run.expect(peer, "synced") for peer in peers]
        assert {it["digest"] for it in (first, second, newcomer)} == {digest_of(**held)}
        assert (newcomer["rx"], newcomer["revision"], newcomer["world_size"]) == (64 * MIB + 5, 9, 3)
        assert first["tx"] + second["tx"] == newcomer["rx"]
        assert min(first["tx"], second["tx"]) >= 8 * MIB
        for peer in peers:
            peer.tell(kind="synchronise")
        again = [run.expect(peer, "synced") for peer in peers]
        assert [(it["tx"], it["rx"], it["revision"]) for it in again] == [(0, 0, 10)] * 3
        end(run, peers)


def test_old_checkpoint_receives_only_what_differs(tmp_path: Path) -> None:
    held: dict[str, Any] = {"seed": 1, "revision": 9, "sizes": [64 * MIB + 7, 5]}
    old = {**held, "revision": 3, "changed": [0, 30 * MIB + 1, 30 * MIB + 2, 64 * MIB + 6]}
    with Run(tmp_path) as run:
        peers = start(run, held, old)
        order(run, peers)
        donor, fetcher = [run.expect(peer, "synced") for peer in peers]
        assert donor["tx"] == fetcher["rx"] == 2 * MIB + 7
        assert donor["digest"] == fetcher["digest"] == digest_of(**held)
        end(run, peers)


def test_killed_donor_is_replaced_in_the_middle_of_the_transfer(tmp_path: Path) -> None:
    held: dict[str, Any] = {"seed": 1, "revision": 9, "sizes": [64 * MIB]}
    with Run(tmp_path) as run:
        peers = start(run, held, held, {"seed": 2, "sizes": [64 * MIB], "pause_at": 6})
        order(run, peers)
        run.expect(peers[2], "paused")
        peers[0].kill()
        assert run.ended(peers[0]) == -9
        peers[2].tell(kind="go on")
        survivors = [run.expect(peer, "synced") for peer in peers[1:]]
        assert {it["digest"] for it in survivors} == {digest_of(**held)}
        assert survivors[1]["rx"] == 64 * MIB
        end(run, peers[1:])


def test_death_of_the_only_donor_changes_nothing_anywhere(tmp_path: Path) -> None:
    blank: dict[str, Any] = {"sizes": [64 * MIB]}
    with Run(tmp_path) as run:
        peers = start(
            run, {**blank, "seed": 1, "revision": 9}, {**blank, "seed": 2, "pause_at": 6}, {**blank, "seed": 3}
        )
        order(run, peers)
        run.expect(peers[1], "paused")
        peers[0].kill()
        peers[1].tell(kind="go on")
        for peer, seed in zip(peers[1:], (2, 3), strict=True):
            refusal = run.expect(peer, "refused")
            assert "no donor" in refusal["text"]
            assert refusal["digest"] == digest_of(**blank, seed=seed)
        end(run, peers[1:])


def test_spoiled_content_is_never_accepted(tmp_path: Path) -> None:
    held: dict[str, Any] = {"seed": 1, "revision": 9, "sizes": [64 * MIB]}
    with Run(tmp_path) as run:
        peers = start(run, {**held, "spoil": True}, {"seed": 2, "sizes": [64 * MIB]})
        order(run, peers)
        for _ in range(3):
            refusals = [run.expect(peer, "refused") for peer in peers]
            assert all("its 't0' does not match the hash that it offered" in it["text"] for it in refusals)
            # What was still on its way when it failed does not stand in the way of the next call.
            for peer in peers:
                peer.tell(kind="synchronise")
        refusals = [run.expect(peer, "refused") for peer in peers]
        assert refusals[1]["digest"] == digest_of(seed=2, sizes=[64 * MIB], revision=3)
        end(run, peers)


def test_spoiled_donor_is_replaced(tmp_path: Path) -> None:
    held: dict[str, Any] = {"seed": 1, "revision": 9, "sizes": [8 * MIB]}
    with Run(tmp_path) as run:
        peers = start(run, {**held, "spoil": True}, held, {"seed": 2, "sizes": [8 * MIB]})
        order(run, peers)
        results = [run.expect(peer, "synced") for peer in peers]
        assert results[2]["digest"] == digest_of(**held)
        assert results[1]["tx"] >= 4 * MIB
        end(run, peers)


def test_restarted_master_carries_the_synchronisation_on(tmp_path: Path) -> None:
    held: dict[str, Any] = {"seed": 1, "revision": 9, "sizes": [32 * MIB]}
    with Run(tmp_path, journal=True) as run:
        peers = start(run, held, held, {"seed": 2, "sizes": [32 * MIB], "pause_at": 4})
        order(run, peers)
        run.expect(peers[2], "paused")
        run.master.kill()
        run.master.start()
        peers[2].tell(kind="go on")
        results = [run.expect(peer, "synced") for peer in peers]
        assert {it["digest"] for it in results} == {digest_of(**held)}
        for peer in peers:
            peer.tell(kind="synchronise")
        assert [run.expect(peer, "synced")["revision"] for peer in peers] == [10] * 3
        end(run, peers)


def test_interrupted_donor_ends_the_call_for_all_and_may_call_again(tmp_path: Path) -> None:
    held: dict[str, Any] = {"seed": 1, "revision": 9, "sizes": [32 * MIB]}
    blank: dict[str, Any] = {"seed": 2, "sizes": [32 * MIB]}
    with Run(tmp_path) as run:
        peers = start(run, held, {**blank, "pause_at": 4}, held)
        order(run, peers)
        run.expect(peers[1], "paused")
        peers[0].kill(signal.SIGINT)
        run.expect(peers[0], "interrupted")
        text = run.expect(peers[2], "refused")["text"]
        assert "gave up its call while the state was fetched" in text
        peers[1].tell(kind="go on")
        assert run.expect(peers[1], "refused") == {"kind": "refused", "text": text, "digest": digest_of(**blank)}
        for peer in peers:
            peer.tell(kind="synchronise")
        results = [run.expect(peer, "synced") for peer in peers]
        assert len({it["digest"] for it in results}) == 1
        assert results[0]["revision"] == 10
        end(run, peers)


def test_refusal_reaches_every_caller_and_the_group_goes_on(tmp_path: Path) -> None:
    with Run(tmp_path) as run:
        peers = start(run, {"seed": 1, "sizes": [10, 8]}, {"seed": 1, "sizes": [10, 9]})
        order(run, peers)
        texts = [run.expect(peer, "refused")["text"] for peer in peers]
        assert len(set(texts)) == 1
        assert "shape mismatch: 't1' has shape" in texts[0]
        assert "(8,) on rank" in texts[0]
        assert "(9,) on rank" in texts[0]
        for peer in peers:
            peer.tell(kind="synchronise")
        assert [run.expect(peer, "refused")["text"] for peer in peers] == texts
        end(run, peers)


@pytest.mark.parametrize("sender", ["SEND_ONLY", "ENFORCE_POPULAR"])
def test_lost_group_is_planted_again_by_send_only(tmp_path: Path, sender: str) -> None:
    checkpoint: dict[str, Any] = {"seed": 1, "revision": 6}
    with Run(tmp_path) as run:
        lost = start(run, {"seed": 1, "revision": 9})
        order(run, lost)
        assert run.expect(lost[0], "synced")["revision"] == 9
        lost[0].kill()
        assert run.ended(lost[0]) == -9
        peers = start(run, {**checkpoint, "strategy": sender}, {"seed": 2})
        order(run, peers)
        if sender == "SEND_ONLY":
            results = [run.expect(peer, "synced") for peer in peers]
            assert [(it["revision"], it["digest"]) for it in results] == [(6, digest_of(**checkpoint))] * 2
        else:
            texts = [run.expect(peer, "refused")["text"] for peer in peers]
            assert all("no donor" in text and "revision 9" in text and "SEND_ONLY" in text for text in texts)
        end(run, peers)


# ---------------------------------------------------------------------------------------------- tensors of torch


def sharing_every_dtype(line: Line, address: str) -> None:
    import torch

    names = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")
    dtypes = [getattr(torch, name) for name in (*names, "complex64", "float8_e4m3fn", "float8_e5m2")]
    with join(address, 2) as comm:
        tensors = [torch.full((3, 5), comm.rank + 1.0).to(dtype) for dtype in dtypes]
        state = pccl.SharedState([pccl.TensorInfo.from_torch(it, str(it.dtype)) for it in tensors])
        info = comm.sync_shared_state(state)
        assert all((it.to(torch.complex64) == torch.ones(3, 5)).all() for it in tensors)
        line.send(kind="done", digest=state.hexdigest(), moved=info.tx_bytes + info.rx_bytes)
        comm.barrier()


def test_torch_tensors_of_every_dtype_are_shared(tmp_path: Path) -> None:
    with Run(tmp_path) as run:
        peers = [run.peer(sharing_every_dtype) for _ in range(2)]
        done = [run.expect(peer, "done") for peer in peers]
        assert done[0]["digest"] == done[1]["digest"]
        # Nothing is fetched of bool: 1.0 and 2.0 are both true.
        assert {it["moved"] for it in done} == {15 * (1 + 1 + 2 + 4 + 8 + 2 + 2 + 4 + 8 + 8 + 1 + 1)}
        assert [run.ended(peer) for peer in peers] == [0, 0]


# ---------------------------------------------------------------------------------------------- while others train


def training(line: Line, address: str, peers: str) -> None:
    """A loop as users write it: synchronise, reduce, admit. Ends when all agree that somebody was told to. Reports its
    first two steps."""
    weights = np.zeros(4 * MIB, np.float32)
    state = pccl.SharedState([pccl.TensorInfo.from_numpy(weights, "weights")])
    steps, told = 0, False
    with join(address, int(peers)) as comm:
        line.send(kind="joined", rank=comm.rank)
        while True:
            info = comm.sync_shared_state(state)
            step = np.array([1, told], np.float32)
            try:
                comm.all_reduce(step, op=pccl.ReduceOp.MAX)
            except pccl.TooFewPeers:
                step[1] = 0
            except pccl.PeerLost:
                continue
            if step[1]:
                break
            weights += step[0]
            state.push_revision()
            steps += 1
            if steps <= 2:
                line.send(kind="step", rx=info.rx_bytes)
            told = told or line.receive(timeout_s=0) is not None
            if comm.are_peers_pending():
                comm.update_topology()
    line.send(kind="end", revision=state.revision, digest=state.hexdigest())


def test_newcomer_catches_up_while_the_others_train(tmp_path: Path) -> None:
    with Run(tmp_path) as run:
        peers = [run.peer(training, "2") for _ in range(2)]
        for peer in peers:
            run.expect(peer, "joined")
            run.expect(peer, "step")
        newcomer = run.peer(training, "1")
        run.expect(newcomer, "joined")
        first = run.expect(newcomer, "step")
        assert first["rx"] == 16 * MIB
        assert run.expect(newcomer, "step")["rx"] == 0, "it is a member like the others now"
        newcomer.tell(kind="end")
        for peer in peers:
            assert run.expect(peer, "step")["rx"] == 0
        ends = [run.expect(peer, "end") for peer in (*peers, newcomer)]
        assert len({(it["revision"], it["digest"]) for it in ends}) == 1
        assert [run.ended(peer) for peer in (*peers, newcomer)] == [0, 0, 0]


def test_survivor_below_the_minimum_goes_on_with_a_fresh_peer(tmp_path: Path) -> None:
    """B44: everybody calls the synchronisation, then the reduction; the newcomer is brought up to date."""
    with Run(tmp_path) as run:
        peers = [run.peer(training, "2") for _ in range(2)]
        for peer in peers:
            run.expect(peer, "joined")
            run.expect(peer, "step")
        peers[0].kill()
        fresh = run.peer(training, "1")
        run.expect(fresh, "joined")
        assert run.expect(fresh, "step")["rx"] == 16 * MIB
        assert run.expect(fresh, "step")["rx"] == 0
        fresh.tell(kind="end")
        run.expect(peers[1], "step")
        ends = [run.expect(peer, "end") for peer in (peers[1], fresh)]
        assert ends[0]["digest"] == ends[1]["digest"]
        assert [run.ended(peer) for peer in (peers[1], fresh)] == [0, 0]
