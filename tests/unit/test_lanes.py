# SPDX-License-Identifier: MIT
"""Lanes: in order within a tag of a scope, at once between these, whoever waits and however."""

from __future__ import annotations

import asyncio
import copy
import gc
import threading
import weakref
from collections.abc import Callable
from functools import partial

import pytest

from pccl import PeerLost, SystemFailure, WaitTimeout
from pccl.lanes import Job, Lanes

LIMIT_S = 30.0


def test_one_after_the_other_in_a_lane() -> None:
    lanes, order, gate = Lanes(), list[int](), threading.Event()

    def work(number: int) -> Callable[[], int]:
        def act() -> int:
            assert gate.wait(LIMIT_S)
            order.append(number)
            return number

        return act

    jobs = [lanes.submit((0, 7), f"job {number}", work(number)) for number in range(20)]
    for key in [(0, 8), (5, 7)]:
        other = lanes.submit(key, "other", lambda: 99)
        assert other.wait(LIMIT_S) == 99, "another lane does not wait"
    assert not jobs[0].done()
    assert lanes.pending() == 20
    with pytest.raises(WaitTimeout, match=r"not ended within 0\.01 s: job 19"):
        jobs[19].wait(0.01)
    gate.set()
    assert [job.wait(LIMIT_S) for job in reversed(jobs)] == list(range(19, -1, -1))
    assert order == list(range(20))
    assert lanes.pending() == 0
    assert lanes.submit((0, 7), "later", lambda: 5).wait(LIMIT_S) == 5


def test_a_failure_is_raised_as_often_as_asked_and_stops_nobody() -> None:
    lanes = Lanes()

    def fail() -> None:
        raise PeerLost("rank 1")

    failed, good = lanes.submit((0, 0), "bad", fail), lanes.submit((0, 0), "good", lambda: None)
    for _ in range(2):
        with pytest.raises(PeerLost, match="rank 1"):
            failed.wait(LIMIT_S)
    assert good.wait(LIMIT_S) is None
    assert repr(failed) == "<pccl.Job, bad: failed>"
    assert repr(good) == "<pccl.Job, good: done>"
    with pytest.raises(TypeError, match=r"pccl\.Job cannot be copied"):
        copy.copy(good)


def lost(epoch: int) -> Callable[[], None]:
    def fail() -> None:
        failure = PeerLost(f"epoch {epoch} ended")
        failure.epoch = epoch
        raise failure

    return fail


def test_calls_behind_a_lost_epoch_fail_too_until_its_failure_was_looked_at() -> None:
    """Else one of them could meet what another member calls again."""
    lanes, gate, made = Lanes(), threading.Event(), list[str]()
    holding = lanes.submit((0, 0), "holding", lambda: gate.wait(LIMIT_S))
    first, second = (
        lanes.submit((0, 0), "first", lost(7)),
        lanes.submit((0, 0), "second", lambda: made.append("second")),
    )
    gate.set()
    assert holding.wait(LIMIT_S)
    while not second.done():
        pass
    third = lanes.submit((0, 0), "third", lambda: made.append("third"))
    other = lanes.submit((0, 1), "other", lambda: made.append("other"))
    other.wait(LIMIT_S)
    gate.clear()
    with pytest.raises(PeerLost, match=r"^epoch 7 ended"):
        first.wait(LIMIT_S)
    again = lanes.submit((0, 0), "again", lambda: made.append("again"))
    again.wait(LIMIT_S)
    for job in (second, third):
        with pytest.raises(PeerLost, match="called behind a failure that was not looked at yet: epoch 7 ended") as late:
            job.wait(LIMIT_S)
        assert late.value.epoch == 7
    assert made == ["other", "again"]


def test_a_call_stays_behind_what_it_was_made_behind() -> None:
    """Whoever looks at the failure before it is its turn."""
    lanes, gate, made = Lanes(), threading.Event(), list[int]()
    first = lanes.submit((0, 0), "first", lost(7))
    while not first.done():
        pass
    busy = lanes.submit((0, 0), "busy", lambda: made.append(0))
    with pytest.raises(PeerLost):
        first.wait(LIMIT_S)
    with pytest.raises(PeerLost):
        busy.wait(LIMIT_S)
    waits = [lanes.submit((0, 0), "holding", lambda: gate.wait(LIMIT_S)), lanes.submit((0, 0), "next", lost(8))]
    behind = lanes.submit((0, 0), "behind", lambda: made.append(1))
    gate.set()
    assert waits[0].wait(LIMIT_S)
    with pytest.raises(PeerLost, match=r"^epoch 8"):
        waits[1].wait(LIMIT_S)
    with pytest.raises(PeerLost, match="behind a failure"):
        behind.wait(LIMIT_S)
    assert made == []
    assert lanes.submit((0, 0), "free", lambda: 5).wait(LIMIT_S) == 5


def test_threads_end_with_their_lanes_and_hold_nothing() -> None:
    class Thing:
        pass

    lanes, thing = Lanes(), Thing()
    alive = weakref.ref(thing)
    job = lanes.submit((0, 3), "job", lambda thing=thing: str(thing))  # type: ignore[misc]
    del thing
    assert job.wait(LIMIT_S)
    for thread in threading.enumerate():
        if thread.name == "pccl-lane-3":
            thread.join(LIMIT_S)
    gc.collect()
    assert alive() is None
    assert "pccl-lane-3" not in {thread.name for thread in threading.enumerate()}


def test_a_failure_that_nobody_looked_at_holds_nothing() -> None:
    class Thing:
        pass

    def fail(thing: Thing) -> None:
        lost = PeerLost(f"lost with {thing}")
        lost.epoch = 5
        raise lost

    lanes, thing = Lanes(), Thing()
    alive = weakref.ref(thing)
    first = lanes.submit((0, 3), "job", partial(fail, thing))
    behind = lanes.submit((0, 3), "behind", lambda: 1)
    del thing, first
    with pytest.raises(PeerLost, match="not looked at yet: lost with"):
        behind.wait(LIMIT_S)
    gc.collect()
    assert alive() is None


def test_awaiting_and_cancelling() -> None:
    lanes, gate = Lanes(), threading.Event()

    async def result(job: Job[int]) -> int:
        return await job

    async def story() -> None:
        job = lanes.submit((0, 0), "job", lambda: int(gate.wait(LIMIT_S)))
        cancelled, waiting = (asyncio.ensure_future(result(job)) for _ in range(2))
        await asyncio.wait([cancelled, waiting], timeout=0.01)
        cancelled.cancel()
        gate.set()
        assert await waiting == 1
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert await job == 1

    asyncio.run(story())


def test_no_thread_is_an_error_and_the_next_call_works(monkeypatch: pytest.MonkeyPatch) -> None:
    lanes = Lanes()

    def none(_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr("pccl.lanes.Worker.start", none)
        with pytest.raises(SystemFailure, match="no thread for job: can"):
            lanes.submit((0, 0), "job", lambda: 1)
    assert lanes.submit((0, 0), "job", lambda: 2).wait(LIMIT_S) == 2
