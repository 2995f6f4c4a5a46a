# SPDX-License-Identifier: MIT
"""Handles and flights, over operations whose end the test decides."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref

import numpy as np
import pytest

from pccl import Closed, PeerLost, ReduceInfo, WaitTimeout
from pccl.handle import Flights, Handle

INFO = ReduceInfo(2, 8, 8, 0, 1, 1)


class FakeOperation:
    """As `_native.Operation`."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.outcome: ReduceInfo | Exception = INFO
        self.prompted = False

    def end(self, outcome: ReduceInfo | Exception = INFO) -> None:
        self.outcome = outcome
        self.ended.set()

    def describe(self) -> str:
        return "all_reduce has run for 10 ms"

    def prompt(self) -> None:
        self.prompted = True

    def wait(self, timeout_ms: int) -> ReduceInfo | None:
        if not self.ended.wait(timeout_ms / 1000):
            return None
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


def launch(flights: Flights, memory: object = None) -> tuple[FakeOperation, Handle, int]:
    operation, tokens = FakeOperation(), []

    def start(token: int) -> FakeOperation:
        tokens.append(token)
        return operation

    return operation, Handle(flights.launch(memory, start), None), tokens[0]  # type: ignore[arg-type]


def test_wait_gives_the_info_as_often_as_asked() -> None:
    operation, handle, _ = launch(Flights())
    assert not handle.done()
    with pytest.raises(WaitTimeout, match=r"not ended within 0\.01 s: all_reduce has run for 10 ms"):
        handle.wait(0.01)
    operation.end()
    assert handle.wait() == handle.wait(0) == INFO
    assert handle.done()


@pytest.mark.parametrize("outcome", [INFO, PeerLost("rank 1 was lost")])
def test_an_end_that_another_thread_sees_just_after_our_wait_is_not_forgotten(outcome: ReduceInfo | Exception) -> None:
    flights = Flights()
    operation, handle, token = launch(flights)
    wait = operation.wait

    def too_early(timeout_ms: int) -> ReduceInfo | None:
        """Runs out of time; before its caller runs on, the operation ends and the control thread lands it."""
        operation.wait = wait  # type: ignore[method-assign]
        operation.end(outcome)
        flights.ended([token])
        return None

    operation.wait = too_early  # type: ignore[method-assign]
    if isinstance(outcome, Exception):
        with pytest.raises(PeerLost):
            handle.wait(1.0)
    else:
        assert handle.wait(1.0) == INFO


def test_wait_raises_what_it_ended_with_as_often_as_asked() -> None:
    operation, handle, _ = launch(Flights())
    operation.end(PeerLost("rank 1 was lost"))
    for _ in range(2):
        with pytest.raises(PeerLost, match="rank 1"):
            handle.wait()
    assert handle.done()


def test_memory_lives_until_the_end_whatever_the_user_does() -> None:
    flights = Flights()
    array = np.ones(10)
    alive = weakref.ref(array)
    operation, handle, token = launch(flights, array)
    del array, handle
    gc.collect()
    assert alive() is not None
    operation.end()
    flights.ended([token])
    gc.collect()
    assert alive() is None


def test_await_wakes_on_the_end() -> None:
    flights = Flights()

    async def story() -> list[ReduceInfo]:
        launched = [launch(flights) for _ in range(3)]
        waits = [asyncio.ensure_future(_result(handle)) for _, handle, _ in launched]
        await asyncio.wait(waits, timeout=0.01)
        assert not any(wait.done() for wait in waits)
        assert all(operation.prompted for operation, _, _ in launched)
        for operation, _, token in launched:
            operation.end()
            threading.Thread(target=flights.ended, args=([token],)).start()
        return [await wait for wait in waits]

    assert asyncio.run(story()) == [INFO] * 3


async def _result(handle: Handle) -> ReduceInfo:
    return await handle


def test_await_raises_and_may_be_cancelled() -> None:
    flights = Flights()

    async def story() -> None:
        operation, handle, token = launch(flights)
        cancelled = asyncio.ensure_future(_result(handle))
        waiting = asyncio.ensure_future(_result(handle))
        await asyncio.wait([cancelled, waiting], timeout=0.01)
        cancelled.cancel()
        operation.end(PeerLost("gone"))
        flights.ended([token])
        with pytest.raises(PeerLost):
            await waiting
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        with pytest.raises(PeerLost):
            await handle

    asyncio.run(story())


def test_the_end_of_the_engine_lands_all() -> None:
    flights = Flights()
    (ended, known, _), (open_, unknown, _) = launch(flights), launch(flights)
    ended.end()
    flights.poll()
    ended.end(Closed("closed"))
    open_.end(Closed("closed"))
    flights.land()
    assert known.wait() == INFO
    with pytest.raises(Closed):
        unknown.wait()


def test_an_operation_that_does_not_start_leaves_nothing() -> None:
    flights = Flights()

    def refuse(token: int) -> FakeOperation:
        raise PeerLost("no")

    with pytest.raises(PeerLost):
        flights.launch(None, refuse)  # type: ignore[arg-type]
    flights.land()
    flights.ended([1])
    assert launch(flights)[2] == 2


def test_what_a_signal_cuts_off_right_after_its_start_keeps_its_memory() -> None:
    flights, memory, tokens = Flights(), np.ones(3), []

    def start(token: int) -> FakeOperation:
        tokens.append(token)
        raise KeyboardInterrupt

    borrowed = weakref.ref(memory)
    with pytest.raises(KeyboardInterrupt):
        flights.launch(memory, start)  # type: ignore[arg-type]
    del memory
    gc.collect()
    assert borrowed() is not None
    flights.ended(tokens)
    gc.collect()
    assert borrowed() is None
