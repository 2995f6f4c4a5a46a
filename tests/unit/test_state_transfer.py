# SPDX-License-Identifier: MIT
"""`synchronise` in several threads, over the real halves of master and peer, and engines made of dictionaries."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import cast

import numpy as np
import pytest

from pccl._native import Engine, Pointer, ffi
from pccl.errors import InvalidArgument, PeerLost, SharedStateError, error_for
from pccl.messages import Message
from pccl.protocol.state_master import MasterSync
from pccl.protocol.state_peer import PeerStateSync
from pccl.protocol.types import Ballot, PeerOutput, Resolve, SyncStep, Tell, VoteKind
from pccl.shared_state import CHUNK_BYTES, SharedState, SharedStateSyncInfo, SharedStateSyncStrategy, TensorInfo
from pccl.state_transfer import synchronise
from pccl.thread import Worker

POPULAR = SharedStateSyncStrategy.ENFORCE_POPULAR
RECEIVE = SharedStateSyncStrategy.RECEIVE_ONLY
SEND = SharedStateSyncStrategy.SEND_ONLY
WAIT_S = 20.0


class FakeFetch:
    """A copy that is made as soon as the donor serves it."""

    def __init__(self, run: Run, donor: bytes, copy: Callable[[], None], served: Callable[[], bool]) -> None:
        self._run = run
        self._donor = donor
        self._copy = copy
        self._served = served

    def wait(self, timeout_ms: int) -> object | None:
        with self._run.changed:
            if not self._run.changed.wait_for(self.done, timeout_ms / 1000):
                return None
            if self._donor in self._run.dead:
                raise PeerLost("the link broke")
            self._copy()
            return self

    def done(self) -> bool:
        return self._served() or self._donor in self._run.dead


class FakeEngine:
    """Serves regions to the other engines of its run, which copy them."""

    def __init__(self, run: Run, peer: bytes) -> None:
        self._run = run
        self._peer = peer
        self.served: dict[int, list[tuple[Pointer, int]]] = {}
        self.may_fetch: threading.Event | None = None

    def state_serve(self, sync_id: int, regions: list[tuple[Pointer, int]]) -> None:
        assert sync_id not in self.served
        with self._run.changed:
            self.served[sync_id] = regions
            self._run.changed.notify_all()

    def state_stop(self, sync_id: int) -> None:
        with self._run.changed:
            self.served.pop(sync_id, None)

    def state_fetch(
        self, sync_id: int, peer: bytes, region: int, offset: int, size: int, target: Pointer, timeout_ms: int
    ) -> FakeFetch:
        self._run.before_fetch(peer)
        ranks = [self._run.peers.index(it) for it in (self._peer, peer)]
        assert ranks[1] not in self._run.apart.get(ranks[0], ()), "there is no link"
        if self.may_fetch is not None:
            assert self.may_fetch.wait(WAIT_S)
        donor = self._run.engines[peer]

        def copy() -> None:
            data, region_bytes = donor.served[sync_id][region]
            assert offset + size <= region_bytes
            ffi.memmove(target, ffi.buffer(data, region_bytes)[offset : offset + size], size)

        return FakeFetch(self._run, peer, copy, lambda: sync_id in donor.served)


class FakeControl:
    """One peer's control plane: its own half of the protocol, and the master's by direct call."""

    def __init__(self, run: Run, peer: bytes) -> None:
        self._run = run
        self.peer = peer
        self.half = PeerStateSync()
        self.outputs: queue.SimpleQueue[PeerOutput | BaseException] = queue.SimpleQueue()

    @contextmanager
    def vote(self, kind: VoteKind, body: bytes = b"") -> Iterator[FakeControl]:
        assert kind == VoteKind.SYNC_SHARED_STATE
        try:
            self._run.voted(self, body)
            yield self
        except KeyboardInterrupt:
            self._run.abandoned(self.peer)
            raise

    def next(self) -> PeerOutput:
        output = self.outputs.get(timeout=WAIT_S)
        if isinstance(output, BaseException):
            raise output
        return output

    def state_event(self, event: object) -> None:
        with self._run.lock:
            self._run.told(self.peer, self.half.event(event, 0))

    def received(self, message: Message) -> None:
        self.perform(self.half.received(message, 0))

    def perform(self, outputs: list[PeerOutput]) -> None:
        for output in outputs:
            self.outputs.put(output)


class Run:
    """A group and its master, without a network: `MasterSync` is driven under one lock."""

    def __init__(self, *states: SharedState, last: int | None = None) -> None:
        self.lock = threading.RLock()
        self.changed = threading.Condition(threading.RLock())
        self.states = states
        self.peers = [bytes([rank + 1]) * 16 for rank in range(len(states))]
        self.engines = {peer: FakeEngine(self, peer) for peer in self.peers}
        self.controls = {peer: FakeControl(self, peer) for peer in self.peers}
        self.memory = b"" if last is None else last.to_bytes(8, "big")
        self.bodies: dict[bytes, bytes] = {}
        self.dead: list[bytes] = []
        self.apart: dict[int, tuple[int, ...]] = {}
        self.given_up = threading.Event()
        self.calls = 0
        self.sync_id = 100
        self.sync: MasterSync | None = None
        self.before_fetch: Callable[[bytes], None] = lambda donor: None

    def voted(self, control: FakeControl, body: bytes) -> None:
        with self.lock:
            self.bodies[control.peer] = body
            control.half.voted(self.calls, body, 0)
            if len(self.bodies) == len(self.peers) - len(self.dead):
                self.elect()

    def elect(self) -> None:
        """A new synchronisation of the open votes, as a master begins it, or begins it again after a restart."""
        with self.lock:
            self.sync_id += 1
            alive = [peer for peer in self.peers if peer not in self.dead]
            ballots = [
                Ballot(peer, rank, self.calls, self.bodies[peer], self._unreachable(rank))
                for rank, peer in enumerate(alive)
            ]
            self.sync = MasterSync(self.sync_id, 0, ballots, self.memory)
            self._perform(self.sync.begin(0))

    def _unreachable(self, rank: int) -> tuple[bytes, ...]:
        return tuple(self.peers[it] for it in self.apart.get(rank, ()))

    def told(self, peer: bytes, outputs: list[PeerOutput]) -> None:
        assert self.sync is not None
        for output in outputs:
            assert isinstance(output, Tell)
            self._perform(self.sync.received(peer, output.message, 0))

    def lose(self, peer: bytes) -> None:
        """The process `peer` dies; the view that follows offers no link that was not there before."""
        with self.lock, self.changed:
            if peer in self.dead:
                return
            self.dead.append(peer)
            self.changed.notify_all()
            self.controls[peer].outputs.put(PeerLost("killed"))
            assert self.sync is not None
            self._perform(self.sync.member_lost(peer, 0))
            apart = {it: self._unreachable(rank) for rank, it in enumerate(self.peers) if it not in self.dead}
            self._perform(self.sync.links(apart, 0))

    def abandoned(self, peer: bytes) -> None:
        """The caller of `peer` is gone, and so the master was told."""
        with self.lock:
            assert self.sync is not None
            assert not self.engines[peer].served, "it served nothing any more when it said so"
            self._perform(self.sync.abandoned(peer, 0))
            self.given_up.set()

    def _perform(self, step: SyncStep) -> None:
        for send in step.sends:
            self.controls[send.peer].received(send.message)
        if step.memory is not None:
            self.memory = step.memory
        for answer in step.answers or ():
            control = self.controls[answer.peer]
            control.half.ended(answer.status, 0)
            if answer.status:
                control.outputs.put(error_for(answer.status, answer.text))
            else:
                control.outputs.put(Resolve(answer.call, body=answer.body))

    def synchronise(self, *strategies: SharedStateSyncStrategy) -> list[Future[SharedStateSyncInfo]]:
        """All members call it; the results when all have returned."""
        self.calls += 1
        self.bodies.clear()
        chosen = strategies or (POPULAR,) * len(self.states)
        with ThreadPoolExecutor(len(self.states)) as threads:
            calls = [
                threads.submit(synchronise, self.controls[peer], cast(Engine, self.engines[peer]), state, strategy)
                for peer, state, strategy in zip(self.peers, self.states, chosen, strict=True)
            ]
        assert not any(engine.served for engine in self.engines.values()), "nobody serves any more"
        return calls


def state(seed: int, revision: int = 0, size: int = 5 * CHUNK_BYTES + 1) -> SharedState:
    generator = np.random.default_rng(seed)
    tensors = [TensorInfo("big", generator.integers(0, 256, size, np.uint8))]
    tensors.append(TensorInfo("small", generator.normal(size=3)))
    return SharedState(tensors, revision)


def digests(*states: SharedState) -> list[str]:
    return [it.hexdigest() for it in states]


@contextmanager
def unchanged(*states: SharedState) -> Iterator[None]:
    before = digests(*states)
    yield
    assert digests(*states) == before


STATE_BYTES = 5 * CHUNK_BYTES + 1 + 24


def test_equal_states_move_no_byte() -> None:
    one, other = state(1, revision=3), state(1, revision=3)
    results = [call.result() for call in Run(one, other, last=2).synchronise()]
    assert results == [SharedStateSyncInfo(0, 0, 3, 2)] * 2


def test_newcomer_receives_state_and_revision() -> None:
    states = state(1, revision=8), state(1, revision=8), state(2)
    run = Run(*states, last=7)
    results = [call.result() for call in run.synchronise()]
    assert len(set(digests(*states))) == 1
    assert states[2].revision == 8
    assert results[2] == SharedStateSyncInfo(0, STATE_BYTES, 8, 3)
    assert results[0].tx_bytes + results[1].tx_bytes == STATE_BYTES
    for it in states:
        it.push_revision()
    assert [call.result().rx_bytes for call in run.synchronise()] == [0, 0, 0]


def test_receive_only_and_send_only() -> None:
    states = state(1, revision=5), state(2, revision=3)
    results = [call.result() for call in Run(*states, last=5).synchronise(RECEIVE, SEND)]
    assert digests(*states) == digests(state(2, revision=3)) * 2
    assert [(it.tx_bytes, it.rx_bytes, it.revision) for it in results] == [(0, STATE_BYTES, 3), (STATE_BYTES, 0, 3)]


def test_refusal_changes_nothing() -> None:
    states = state(1, revision=5), state(2, revision=9)
    with unchanged(*states):
        for call in Run(*states, last=4).synchronise():
            with pytest.raises(SharedStateError, match="revision violation: rank 1 offers revision 9"):
                call.result()


def test_donor_that_dies_is_replaced() -> None:
    states = state(1, revision=5), state(1, revision=5), state(2)
    run = Run(*states, last=5)
    dying = run.peers[0]
    fetches = iter(range(1000))

    def kill(donor: bytes) -> None:
        if next(fetches) == 2:
            run.lose(dying)

    run.before_fetch = kill
    calls = run.synchronise()
    with pytest.raises(PeerLost):
        calls[0].result()
    assert calls[2].result().world_size == 2
    assert digests(states[2]) == digests(states[1])


CHAIN = {0: (2, 3), 1: (3,), 2: (0,), 3: (0, 1)}
"""Four members with links to their neighbours alone."""


def test_content_is_passed_on_before_anybody_takes_it_over() -> None:
    """The second one fetches a chunk and the small tensor, the third one a few chunks, the fourth one all."""
    states = state(1, revision=5), state(1), state(1), state(2)
    states[1].tensors[0].content[CHUNK_BYTES + 7] ^= 1
    states[1].tensors[1].content[0] ^= 1
    states[2].tensors[0].content[::2_000_000] ^= 1
    states[3].tensors[1].content[:] = states[0].tensors[1].content
    run = Run(*states, last=5)
    run.apart = CHAIN
    before = digests(*states)
    run.before_fetch = lambda donor: None if digests(*states) == before else pytest.fail("swapped too early")
    results = [call.result() for call in run.synchronise()]
    assert len(set(digests(*states))) == 1
    assert [it.rx_bytes for it in results] == [0, CHUNK_BYTES + 24, 3 * CHUNK_BYTES, STATE_BYTES - 24]
    assert [it.tx_bytes for it in results] == [CHUNK_BYTES + 24, 3 * CHUNK_BYTES, STATE_BYTES - 24, 0]


def test_donor_that_fetches_too_passes_on_both() -> None:
    """It serves its own content from the beginning, and what it fetched afterwards."""

    def pair(value: float, own: float, revision: int) -> SharedState:
        unequal = TensorInfo("own", np.full(3, own), allow_content_inequality=True)
        return SharedState([TensorInfo("all", np.full(3, value)), unequal], revision)

    states = pair(1.0, 1.0, 5), pair(1.0, 2.0, 4), pair(3.0, 3.0, 4)
    run = Run(*states, last=5)
    run.apart = {0: (2,), 2: (0,)}
    results = [call.result() for call in run.synchronise()]
    assert [it.tensors[1].content.view(np.float64)[0] for it in states] == [1.0, 1.0, 1.0]
    assert len(set(digests(*states))) == 1
    assert [it.tx_bytes for it in results] == [24, 48, 0]


def test_death_of_a_member_that_passes_on_changes_nothing() -> None:
    states = state(1, revision=5), state(2), state(3)
    run = Run(*states, last=5)
    run.apart = {0: (2,), 2: (0,)}
    run.before_fetch = lambda donor: run.lose(donor) if donor == run.peers[1] else None
    with unchanged(*states):
        calls = run.synchronise()
    for call in (calls[0], calls[2]):
        with pytest.raises(SharedStateError, match="rank 0 alone, to which rank 2 has no link"):
            call.result()


def test_death_of_the_last_donor_changes_nothing() -> None:
    states = state(1, revision=5), state(2), state(3)
    run = Run(*states, last=5)
    run.before_fetch = run.lose
    with unchanged(*states):
        calls = run.synchronise()
    for call in calls[1:]:
        with pytest.raises(SharedStateError, match="no donor"):
            call.result()


def test_content_that_does_not_match_its_hash_is_never_accepted() -> None:
    states = state(1, revision=5), state(2), state(3)
    run = Run(*states, last=5)

    def spoil(donor: bytes) -> None:
        states[0].tensors[0].content[:] = 0

    run.before_fetch = spoil
    with unchanged(*states[1:]):
        calls = run.synchronise()
    for call in calls:
        with pytest.raises(SharedStateError, match="rank 0: its 'big' does not match the hash that it offered"):
            call.result()


def test_master_that_begins_again_replaces_the_plan() -> None:
    states = state(1, revision=5), state(2)
    run = Run(*states, last=5)
    fetches = iter(range(1000))

    def restart(donor: bytes) -> None:
        if next(fetches) == 1:
            run.elect()

    run.before_fetch = restart
    results = [call.result() for call in run.synchronise()]
    assert run.sync_id == 102
    assert results[1].rx_bytes == STATE_BYTES
    assert digests(states[0]) == digests(states[1])


def test_what_was_fetched_for_a_forgotten_election_is_dropped() -> None:
    """The only holder of the newest state dies together with the master: the others are equal, and need no plan."""
    states = state(1, revision=6), state(2, revision=5), state(2, revision=5)
    run = Run(*states, last=5)

    def restart(donor: bytes) -> None:
        with run.lock, run.changed:
            if not run.dead:
                run.dead.append(donor)
                run.controls[donor].outputs.put(PeerLost("killed"))
                run.changed.notify_all()
                run.elect()

    run.before_fetch = restart
    with unchanged(*states):
        calls = run.synchronise()
    assert run.sync_id == 102
    for call in calls[1:]:
        assert (call.result().revision, call.result().rx_bytes) == (5, 0)


def test_writing_to_a_state_while_it_is_synchronised_is_noticed() -> None:
    states = state(1, revision=5), state(1, revision=5)
    states[1].tensors[0].content[0] ^= 1
    states[1].revision = 0
    run = Run(*states, last=5)

    def write(donor: bytes) -> None:
        states[1].tensors[0].content[-1] = 77

    run.before_fetch = write
    calls = run.synchronise()
    assert calls[0].result().tx_bytes > 0
    with pytest.raises(SharedStateError, match="'big' was written to while it was synchronised"):
        calls[1].result()


def test_interrupted_caller_stops_serving_and_changes_nothing() -> None:
    states = state(1, revision=5), state(2)
    run = Run(*states, last=5)
    started = threading.Event()

    def interrupt(donor: bytes) -> None:
        if not started.is_set():
            started.set()
            for control in run.controls.values():
                control.outputs.put(KeyboardInterrupt())

    run.before_fetch = interrupt
    with unchanged(*states):
        calls = run.synchronise()
    for call in calls:
        with pytest.raises(KeyboardInterrupt):
            call.result()


def test_a_second_interrupt_does_not_take_memory_from_who_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller is gone while its thread still fetches: that keeps all until it has stopped it."""
    donor, fetcher = state(1, revision=5), state(2)
    run = Run(donor, fetcher, last=5)
    fetching, resume = threading.Event(), threading.Event()

    def interrupt(donor: bytes) -> None:
        fetching.set()
        run.controls[run.peers[1]].outputs.put(KeyboardInterrupt())
        assert resume.wait(WAIT_S)

    def interrupted(worker: Worker, timeout_s: float = 0) -> bool:
        workers.append(worker)
        raise KeyboardInterrupt

    run.before_fetch = interrupt
    workers: list[Worker] = []
    monkeypatch.setattr(Worker, "wait", interrupted)
    stopped: list[int] = []
    engine = run.engines[run.peers[1]]
    monkeypatch.setattr(engine, "state_stop", stopped.append)
    with ThreadPoolExecutor(2) as threads:
        for peer, one in zip(run.peers, run.states, strict=True):
            call = threads.submit(synchronise, run.controls[peer], cast(Engine, run.engines[peer]), one, POPULAR)
        with pytest.raises(KeyboardInterrupt):
            call.result(WAIT_S)
        assert fetching.is_set()
        assert stopped == []
        resume.set()
    for worker in workers:
        worker.join(WAIT_S)
        assert not worker.is_alive()
    assert stopped == [run.sync_id]


@pytest.mark.parametrize("gone", [0, 1])
def test_an_interrupted_donor_or_fetcher_ends_the_call_for_all(gone: int) -> None:
    states = state(1, revision=5), state(2), state(3)
    run = Run(*states, last=5)
    started = threading.Event()

    def interrupt(donor: bytes) -> None:
        if not started.is_set():
            started.set()
            run.controls[run.peers[gone]].outputs.put(KeyboardInterrupt())

    run.before_fetch = interrupt
    run.engines[run.peers[2]].may_fetch = run.given_up  # or all might be done before the interrupt is seen
    with unchanged(*states):
        calls = run.synchronise()
    with pytest.raises(KeyboardInterrupt):
        calls.pop(gone).result()
    for call in calls:
        with pytest.raises(SharedStateError, match=f"rank {gone} gave up its call"):
            call.result()


def test_read_only_tensors_can_only_be_sent() -> None:
    frozen = np.arange(4.0)
    frozen.flags.writeable = False
    states = SharedState([TensorInfo("t", frozen)]), SharedState([TensorInfo("t", np.zeros(4))])
    with pytest.raises(InvalidArgument, match="'t' is read-only"):
        Run(states[0]).synchronise()[0].result()
    assert Run(*states).synchronise(SEND, POPULAR)[1].result().rx_bytes == 32
    assert digests(states[0]) == digests(states[1])


def test_unequal_tensor_travels_with_an_old_revision_only() -> None:
    def pair(value: float, revision: int) -> SharedState:
        own = TensorInfo("own", np.full(3, value), allow_content_inequality=True)
        return SharedState([TensorInfo("all", np.ones(3)), own], revision)

    states = pair(1.0, 5), pair(2.0, 5), pair(3.0, 0)
    results = [call.result() for call in Run(*states, last=5).synchronise()]
    assert [it.rx_bytes for it in results] == [0, 0, 24]
    assert [it.tensors[1].content.view(np.float64)[0] for it in states] == [1.0, 2.0, 1.0]


def test_offer_that_is_too_long_for_its_message_is_refused() -> None:
    names = [f"{index:05}" + "é" * 250 for index in range(20_000)]
    tensor = np.zeros(1, np.uint8)
    with pytest.raises(InvalidArgument, match="names and shapes of the shared state take"):
        Run(SharedState([TensorInfo(name, tensor) for name in names])).synchronise()[0].result()
