# SPDX-License-Identifier: MIT
"""Fetching from donors that are quick, slow, dead, forgetful or lying, all of them made of arrays."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pccl.errors import Aborted, Closed, InvalidArgument, OperationTimeout, PCCLError, PeerLost, SharedStateError
from pccl.messages import StateDonor, StatePlan, StateReceived, StateSource
from pccl.shared_state import CHUNK_BYTES, Bytes, SharedState, StateDigest, TensorInfo
from pccl.state_fetch import REQUEST_BYTES, REQUESTS_PER_DONOR, RETRY_S, WRONG_ANSWERS, StateFetch

SYNC = 5
A, B, C = (bytes([number]) * 16 for number in (1, 2, 3))


@dataclass
class Request:
    """A request to a donor; `failure` or the bytes arrive when the donor says so."""

    donor: Donor
    region: int
    offset: int
    target: Bytes
    waits: int = 0

    def wait(self, timeout_ms: int) -> object | None:
        if not self.donor.answers(self):
            return None
        self.donor.in_flight -= 1
        if self.donor.failure is not None:
            raise self.donor.failure
        self.donor.fill(self)
        return object()

    def done(self) -> bool:
        return self.donor.answers(self)


@dataclass
class Donor:
    """A member that serves a state. `answers` says whether a request has ended, `spoil` what it does to its bytes."""

    state: SharedState
    failure: PCCLError | None = None
    refusal: PCCLError | None = None
    answers: Callable[[Request], bool] = lambda request: True
    spoil: Callable[[Request], None] = lambda request: None
    requests: list[Request] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0

    def __post_init__(self) -> None:
        self.chunks = StateDigest.of(self.state).chunks

    def fill(self, request: Request) -> None:
        index, listing = divmod(request.region, 2)
        served = self.chunks[index] if listing else self.state.tensors[index].content
        request.target[:] = served[request.offset : request.offset + request.target.nbytes]
        self.spoil(request)


class Group:
    """Donors by peer id, and the one who fetches."""

    def __init__(self, own: SharedState, donors: dict[bytes, Donor]) -> None:
        self.own = own
        self.donors = donors

    def start(self, donor: bytes, region: int, offset: int, target: Bytes) -> Request:
        serving = self.donors[donor]
        if serving.refusal is not None:
            raise serving.refusal
        request = Request(serving, region, offset, target)
        serving.requests.append(request)
        serving.in_flight += 1
        serving.most_in_flight = max(serving.most_in_flight, serving.in_flight)
        return request

    def fetch(self, sources: list[StateSource] | None = None, patience_s: float = 60.0) -> StateFetch:
        """Of everything that differs, from all donors, unless `sources` are given."""
        named = tuple(StateDonor(peer, rank) for rank, peer in enumerate(self.donors))
        digest = StateDigest.of(self.own)
        wanted = StateDigest.of(next(iter(self.donors.values())).state).entries
        if sources is None:
            pairs = zip(wanted, digest.entries, strict=True)
            sources = [StateSource(i, want.digest, ()) for i, (want, have) in enumerate(pairs) if want != have]
        plan = StatePlan(1, SYNC, False, named, tuple(sources))
        return StateFetch(plan, self.own.tensors, digest.chunks, self.start, patience_s)


class Clock:
    """Stands in for interruption: time passes only when it is waited for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.stop_at = float("inf")
        monkeypatch.setattr("pccl.state_fetch.time.monotonic", lambda: self.now)

    def __call__(self, seconds: float) -> bool:
        self.now += seconds
        return self.now >= self.stop_at


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def state(seed: int, *content_bytes: int) -> SharedState:
    generator = np.random.default_rng(seed)
    return SharedState(
        [TensorInfo(f"t{i}", generator.integers(0, 256, size, np.uint8)) for i, size in enumerate(content_bytes)]
    )


def copy_of(original: SharedState) -> SharedState:
    return SharedState([TensorInfo(tensor.name, tensor.content.copy()) for tensor in original.tensors])


def received(fetch: StateFetch, clock: Clock) -> dict[bytes, int]:
    return {it.donor: it.count for it in fetch.run(clock)}


SIZES = (10 * CHUNK_BYTES + 3, 0, 1, CHUNK_BYTES, CHUNK_BYTES + 1, 9 * CHUNK_BYTES)
TOTAL = sum(SIZES)


def test_everything_arrives_and_counts(clock: Clock) -> None:
    full, own = state(1, *SIZES), state(2, *SIZES)
    group = Group(own, {A: Donor(full), B: Donor(full)})
    fetch = group.fetch()
    before = own.hexdigest()
    counts = received(fetch, clock)
    assert sum(counts.values()) == TOTAL
    assert own.hexdigest() == before, "nothing is visible before it is published"
    assert fetch.publish() == (0, 2, 3, 4, 5)
    assert own.hexdigest() == full.hexdigest()


def test_donors_share_the_work(clock: Clock) -> None:
    full = state(1, 64 * CHUNK_BYTES)
    donors = {A: Donor(full), B: Donor(full)}
    counts = received(Group(state(2, 64 * CHUNK_BYTES), donors).fetch(), clock)
    assert counts == {A: 32 * CHUNK_BYTES, B: 32 * CHUNK_BYTES}
    assert all(donor.most_in_flight == REQUESTS_PER_DONOR for donor in donors.values())


def test_requests_are_within_their_limit_and_aligned_to_chunks(clock: Clock) -> None:
    full = state(1, 30 * CHUNK_BYTES + 5)
    donor = Donor(full)
    received(Group(state(2, 30 * CHUNK_BYTES + 5), {A: donor}).fetch(), clock)
    data = [request for request in donor.requests if request.region == 0]
    assert all(request.offset % CHUNK_BYTES == 0 and request.target.nbytes <= REQUEST_BYTES for request in data)
    assert sum(request.target.nbytes for request in data) == 30 * CHUNK_BYTES + 5


def test_old_copy_fetches_only_what_differs(clock: Clock) -> None:
    full = state(1, 40 * CHUNK_BYTES + 9)
    own = copy_of(full)
    for changed in (0, 7 * CHUNK_BYTES + 1, 8 * CHUNK_BYTES, 40 * CHUNK_BYTES + 8):
        own.tensors[0].content[changed] ^= 255
    donor = Donor(full)
    fetch = Group(own, {A: donor}).fetch()
    assert received(fetch, clock) == {A: 3 * CHUNK_BYTES + 9}
    assert [(it.region, it.offset, it.target.nbytes) for it in donor.requests] == [
        (1, 0, 41 * 16),
        (0, 0, CHUNK_BYTES),
        (0, 7 * CHUNK_BYTES, 2 * CHUNK_BYTES),
        (0, 40 * CHUNK_BYTES, 9),
    ]
    fetch.publish()
    assert own.hexdigest() == full.hexdigest()


def test_small_tensor_needs_no_list(clock: Clock) -> None:
    full = state(1, 100)
    donor = Donor(full)
    assert received(Group(state(2, 100), {A: donor}).fetch(), clock) == {A: 100}
    assert [request.region for request in donor.requests] == [0]


@pytest.mark.parametrize("deadly", [0, 1, 5, 9])
def test_another_donor_takes_over_from_one_that_dies(clock: Clock, deadly: int) -> None:
    full, own = state(1, *SIZES), state(2, *SIZES)
    dying = Donor(full)

    def answers(request: Request) -> bool:
        if len(dying.requests) > deadly:
            dying.failure = PeerLost("the link broke")
        return True

    dying.answers = answers
    fetch = Group(own, {A: dying, B: Donor(full)}).fetch()
    counts = received(fetch, clock)
    assert sum(counts.values()) == TOTAL
    assert counts[B] > 0
    fetch.publish()
    assert own.hexdigest() == full.hexdigest()


def test_donor_that_refuses_requests_is_left_alone_for_a_while(clock: Clock) -> None:
    full = state(1, 20 * CHUNK_BYTES)
    gone = Donor(full, refusal=InvalidArgument("no member"))
    counts = received(Group(state(2, 20 * CHUNK_BYTES), {A: gone, B: Donor(full)}).fetch(), clock)
    assert counts == {B: 20 * CHUNK_BYTES}


def test_broken_link_is_tried_again(clock: Clock) -> None:
    full = state(1, 6 * CHUNK_BYTES)
    donor = Donor(full, failure=PeerLost("reset"))
    start = clock.now

    def heals(request: Request) -> bool:
        if clock.now > start + 2 * RETRY_S:
            donor.failure = None
        return True

    donor.answers = heals
    assert received(Group(state(2, 6 * CHUNK_BYTES), {A: donor}).fetch(), clock) == {A: 6 * CHUNK_BYTES}
    assert clock.now >= start + 2 * RETRY_S


def test_silent_donors_end_it_with_their_names(clock: Clock) -> None:
    full = state(1, 100)
    donors = {A: Donor(full, failure=OperationTimeout("no progress")), B: Donor(full, refusal=PeerLost("reset"))}
    with pytest.raises(SharedStateError, match="no donor answered for 7 s: rank 0: no progress; rank 1: reset"):
        Group(state(2, 100), donors).fetch(patience_s=7.0).run(clock)


def spoiled(request: Request) -> None:
    request.target[-1] ^= 1


@pytest.mark.parametrize("region", [0, 1], ids=["content", "list"])
@pytest.mark.parametrize("size", [3 * CHUNK_BYTES, 10], ids=["chunks", "small"])
def test_wrong_bytes_are_never_accepted(clock: Clock, region: int, size: int) -> None:
    full, own = state(1, size), state(2, size)
    before = own.hexdigest()
    liar = Donor(full, spoil=lambda request: spoiled(request) if request.region == region else None)
    fetch = Group(own, {A: liar}).fetch()
    if size == 10 and region == 1:
        assert received(fetch, clock) == {A: 10}, "no list is asked for"
        return
    with pytest.raises(SharedStateError, match="rank 0: its 't0' does not match the hash that it offered"):
        fetch.run(clock)
    assert own.hexdigest() == before
    assert len([it for it in liar.requests if it.region == region]) >= WRONG_ANSWERS


def test_wrong_bytes_of_one_donor_come_from_another(clock: Clock) -> None:
    full, own = state(1, *SIZES), state(2, *SIZES)
    fetch = Group(own, {A: Donor(full, spoil=spoiled), B: Donor(full)}).fetch()
    assert received(fetch, clock) == {B: TOTAL}
    fetch.publish()
    assert own.hexdigest() == full.hexdigest()


def test_one_wrong_answer_is_forgiven(clock: Clock) -> None:
    full = state(1, 6 * CHUNK_BYTES)
    numbers = itertools.count()
    donor = Donor(full, spoil=lambda request: spoiled(request) if next(numbers) == 1 else None)
    assert received(Group(state(2, 6 * CHUNK_BYTES), {A: donor}).fetch(), clock) == {A: 6 * CHUNK_BYTES}


def test_quick_donor_does_the_work_of_a_slow_one(clock: Clock) -> None:
    full = state(1, 64 * CHUNK_BYTES)
    quick = Donor(full)
    slow = Donor(full, answers=lambda request: request.region == 1 or len(quick.requests) >= 12)
    counts = received(Group(state(2, 64 * CHUNK_BYTES), {A: slow, B: quick}).fetch(), clock)
    assert counts == {A: REQUESTS_PER_DONOR * REQUEST_BYTES, B: 12 * REQUEST_BYTES}


def test_interruption_ends_it_whatever_is_in_flight(clock: Clock) -> None:
    full, own = state(1, 64 * CHUNK_BYTES), state(2, 64 * CHUNK_BYTES)
    before = own.hexdigest()
    donor = Donor(full, answers=lambda request: request.region == 1)
    turns = itertools.count()
    with pytest.raises(Aborted):
        Group(own, {A: donor}).fetch().run(lambda seconds: next(turns) > 5)
    assert donor.in_flight == REQUESTS_PER_DONOR
    assert own.hexdigest() == before


def test_end_of_the_communicator_ends_it_at_once(clock: Clock) -> None:
    full = state(1, 64 * CHUNK_BYTES)
    group = Group(state(2, 64 * CHUNK_BYTES), {A: Donor(full, failure=Closed("closed")), B: Donor(full)})
    with pytest.raises(Closed):
        group.fetch().run(clock)
    refusing = Group(state(2, 64 * CHUNK_BYTES), {A: Donor(full, refusal=Closed("closed"))})
    with pytest.raises(Closed):
        refusing.fetch().run(clock)


# ---------------------------------------------------------------- entries with several sources


def sources_of(*states: SharedState) -> list[StateSource]:
    return [StateSource(0, StateDigest.of(it).entries[0].digest, (place,)) for place, it in enumerate(states)]


def test_first_source_is_preferred(clock: Clock) -> None:
    one, other, own = (state(seed, 3 * CHUNK_BYTES) for seed in (1, 2, 3))
    fetch = Group(own, {A: Donor(one), B: Donor(other)}).fetch(sources_of(one, other))
    assert received(fetch, clock) == {A: 3 * CHUNK_BYTES}
    fetch.publish()
    assert own.hexdigest() == one.hexdigest()


def test_next_source_is_fetched_whole_when_the_first_one_dies(clock: Clock) -> None:
    one, other, own = (state(seed, 30 * CHUNK_BYTES) for seed in (1, 2, 3))
    dying = Donor(one)

    def answers(request: Request) -> bool:
        dying.failure = PeerLost("reset") if len(dying.requests) > 3 and request.offset else None
        return True

    dying.answers = answers
    fetch = Group(own, {A: dying, B: Donor(other)}).fetch(sources_of(one, other))
    assert received(fetch, clock)[B] == 30 * CHUNK_BYTES
    fetch.publish()
    assert own.hexdigest() == other.hexdigest()


def test_sources_in_trouble_do_not_keep_others_waiting(clock: Clock) -> None:
    one, other, own = (state(seed, 10, 20 * CHUNK_BYTES) for seed in (1, 2, 3))
    donors = {A: Donor(one, refusal=PeerLost("reset")), B: Donor(other, refusal=PeerLost("reset")), C: Donor(one)}
    wanted = StateSource(1, StateDigest.of(one).entries[1].digest, (2,))
    fetch = Group(own, donors).fetch([*sources_of(one, other), wanted], patience_s=5.0)
    with pytest.raises(SharedStateError, match="no donor answered for 5 s: rank 0: reset; rank 1: reset"):
        fetch.run(clock)
    assert sum(request.target.nbytes for request in donors[C].requests if request.region == 2) == 20 * CHUNK_BYTES


# ---------------------------------------------------------------- plans that make no sense


@pytest.mark.parametrize(
    "source", [StateSource(1, b"x" * 16, ()), StateSource(0, b"x" * 16, (1,))], ids=["entry", "donor"]
)
def test_plan_that_does_not_fit_is_refused(source: StateSource) -> None:
    with pytest.raises(SharedStateError, match="does not fit"):
        Group(state(2, 10), {A: Donor(state(1, 10))}).fetch([source])


def test_plan_without_donors_is_refused() -> None:
    plan = StatePlan(1, SYNC, False, (), (StateSource(0, b"x" * 16, ()),))
    own = state(2, 10)
    with pytest.raises(SharedStateError, match="nobody"):
        StateFetch(plan, own.tensors, StateDigest.of(own).chunks, Group(own, {}).start)


def test_result_names_each_donor_once(clock: Clock) -> None:
    full = state(1, 8 * CHUNK_BYTES)
    result = Group(state(2, 8 * CHUNK_BYTES), {A: Donor(full), B: Donor(full)}).fetch().run(clock)
    assert all(isinstance(it, StateReceived) for it in result)
    assert len({it.donor for it in result}) == len(result)


# ---------------------------------------------------------------- whatever donors do


@given(
    st.lists(st.integers(0, 40 * 64), min_size=1, max_size=4),
    st.lists(st.sampled_from(["good", "slow", "flaky", "wrong", "gone"]), min_size=1, max_size=4),
    st.randoms(use_true_random=False),
)
@settings(deadline=None, max_examples=150)
def test_whatever_donors_do_the_bytes_are_right_or_nothing_changes(
    sizes: list[int], characters: list[str], random: Random
) -> None:
    def donor(full: SharedState, character: str) -> Donor:
        made = Donor(full, refusal=PeerLost("gone") if character == "gone" else None)

        def answers(request: Request) -> bool:
            made.failure = PeerLost("flaky") if character == "flaky" and random.random() < 0.3 else None
            return character != "slow" or random.random() < 0.2

        made.answers = answers
        if character == "wrong":
            made.spoil = lambda request: spoiled(request) if random.random() < 0.5 else None
        return made

    with pytest.MonkeyPatch.context() as patch:
        for module in ("shared_state", "state_fetch"):
            patch.setattr(f"pccl.{module}.CHUNK_BYTES", 64)
        patch.setattr("pccl.state_fetch.REQUEST_BYTES", 256)
        clock = Clock(patch)
        clock.stop_at = clock.now + 10_000
        full, own = state(1, *sizes), state(2, *sizes)
        group = Group(own, {bytes([i]) * 16: donor(full, it) for i, it in enumerate(characters)})
        fetch = group.fetch()
        before = own.hexdigest()
        try:
            counts = received(fetch, clock)
        except SharedStateError:
            assert not {"good", "slow", "flaky"} & {*characters}
            assert own.hexdigest() == before
        else:
            assert sum(counts.values()) == sum(sizes)
            fetch.publish()
            assert own.hexdigest() == full.hexdigest()
        assert all(it.most_in_flight <= REQUESTS_PER_DONOR for it in group.donors.values())
