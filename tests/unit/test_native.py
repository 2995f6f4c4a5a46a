# SPDX-License-Identifier: MIT
"""Engines in this process, without any master: views, operations, events, the end."""

from __future__ import annotations

import gc
import os
import select
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from pccl import (
    Closed,
    CollectiveMismatch,
    Expelled,
    InvalidArgument,
    PeerLost,
    Status,
    SystemFailure,
    TooFewPeers,
    _native,
    arrays,
)
from pccl._native import Engine, EngineOptions, Event, Operation, ReduceInfo, constants
from pccl.messages import Member, OperationName
from pccl.trace import record

LIMIT_S = 20.0
CALLS = 1000


def peer(number: int) -> bytes:
    return bytes([number + 1]) * 16


def members(engines: list[Engine]) -> list[Member]:
    return [Member(peer(number), "127.0.0.1", engine.port, 1) for number, engine in enumerate(engines)]


@pytest.fixture(params=["door", "slots"])
def pair(request: pytest.FixtureRequest) -> Iterator[list[Engine]]:
    """Whose calls pass through the door, where there is one, or take slots: the outcomes are the same."""
    secret = os.urandom(16)
    engines = [Engine(EngineOptions(peer(number), secret, "127.0.0.1")) for number in range(2)]
    for rank, engine in enumerate(engines):
        if request.param == "slots":
            engine._door = _native._PlainDoor(0)  # type: ignore[assignment]
        engine.install(1, rank, members(engines), [0, 1])
    yield engines
    for engine in engines:
        engine.close()


def both(calls: list[Callable[[], Any]]) -> list[Any]:
    """Makes the calls at the same time: what each returned or raised."""
    outcomes: list[Any] = [None] * len(calls)

    def work(number: int) -> None:
        try:
            outcomes[number] = calls[number]()
        except Exception as failure:
            outcomes[number] = failure

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
        assert not thread.is_alive()
    return outcomes


def call_of(owner: object, **fields: Any) -> _native.Call:
    one = _native.Call(owner)
    for name, value in fields.items():
        setattr(one.call, name, value)
    return one


def reduction(array: np.ndarray, **fields: int) -> _native.Call:
    """The call that reduces an array in place."""
    memory = arrays.borrow(array, True, "x")
    place = _native.pointer(memory.address)
    layout = {"dtype": memory.dtype, "count": memory.elements, "input": place, "output": place}
    return call_of(array, collective=constants.PCCL_ALL_REDUCE, **{**layout, **fields})


def run(engine: Engine, array: np.ndarray, **fields: int) -> ReduceInfo:
    return engine.run(reduction(array, **fields))


def ended(operation: Operation) -> ReduceInfo:
    """Waits for the end."""
    while (info := operation.wait(_native.SLICE_MS)) is None:
        pass
    return info


def next_event(engine: Engine) -> Event:
    while (event := engine.next_event()) is None:
        assert select.select([engine.event_fd], [], [], LIMIT_S)[0]
    return event


def test_words_come_from_the_header() -> None:
    assert [_native.status_phrase(status) for status in (0, 5, 999)] == ["success", "peer lost", "unknown status"]
    assert _native.dtype_name(constants.PCCL_BFLOAT16) == "bfloat16"
    assert _native.algorithm_name(constants.PCCL_RING) == "ring"
    assert _native.hash128(np.zeros(0, np.uint8)).hex() == "99aa06d3014798d86001c324468d497f"


def test_a_collective(pair: list[Engine]) -> None:
    x = [np.arange(1000, dtype=np.float32) * (rank + 1) for rank in range(2)]
    infos = both([lambda: run(pair[0], x[0]), lambda: run(pair[1], x[1])])
    assert (x[0] == np.arange(1000) * 3).all()
    assert (x[1] == x[0]).all()
    assert [(info.rank, info.world_size, info.epoch) for info in infos] == [(0, 2, 1), (1, 2, 1)]
    assert infos[0].tx_bytes == infos[1].rx_bytes == infos[0].rx_bytes > 0
    assert infos[0].local_world_size == 2
    assert pair[0].pending() == 0


def test_a_tree_is_kept_to_whatever_was_wished(pair: list[Engine]) -> None:
    for rank, engine in enumerate(pair):
        engine.install(2, rank, members(pair), [1, 0], shape=constants.PCCL_SHAPE_TREE, parents=[0, 0])
    x = [np.full(5, rank + 1) for rank in range(2)]
    infos = both([lambda: run(pair[0], x[0]), lambda: run(pair[1], x[1], algorithm=constants.PCCL_AUTO)])
    assert [info.algorithm for info in infos] == [constants.PCCL_TREE] * 2
    wished = both([partial(run, engine, np.ones(9), algorithm=constants.PCCL_RING) for engine in pair])
    assert [info.algorithm for info in wished] == [constants.PCCL_TREE] * 2
    with pytest.raises(InvalidArgument, match="no such tree"):
        pair[0].install(3, 0, members(pair), [0, 1], shape=constants.PCCL_SHAPE_TREE, parents=[0, 1])


def test_a_link_that_is_asked_for_is_told(pair: list[Engine]) -> None:
    pair[0].dial(1, peer(9))
    pair[0].dial(2, peer(1))  # neither a member nor this epoch: nothing happens
    pair[0].dial(1, peer(1))
    event = next_event(pair[0])
    assert (event.kind, event.peer, event.epoch) == (constants.PCCL_EVENT_LINKED, peer(1), 1)


def test_errors_become_exceptions(pair: list[Engine]) -> None:
    outcomes = both([lambda: run(pair[0], np.ones(3)), lambda: run(pair[1], np.ones(4))])
    assert [type(outcome) for outcome in outcomes] == [CollectiveMismatch] * 2
    with pytest.raises(InvalidArgument):
        run(pair[0], np.ones(3), op=99)
    with pytest.raises(InvalidArgument):
        pair[0].install(1, 0, members(pair), [0, 1])
    with pytest.raises(InvalidArgument):
        pair[0].install(2, 0, members(pair), [0, 0])
    with pytest.raises(InvalidArgument):
        pair[0].report(1)
    with pytest.raises(PeerLost):
        run(pair[0], np.ones(3), expected_epoch=7)
    with pytest.raises(SystemFailure):
        Engine(EngineOptions(peer(7), bytes(16), "127.0.0.1", listen_port=pair[0].port))


def test_an_operation_with_notice(pair: list[Engine]) -> None:
    x, y = np.ones(5, np.int32), np.ones(5, np.int32)
    first = pair[0].start(reduction(x, tag=3), 42)
    assert not first.done()
    assert first.wait(1) is None
    assert pair[0].pending() == 1
    assert pair[0].has_started(1, OperationName(3, 0)) == 1
    assert pair[0].has_started(1, OperationName(3, 1)) == 0
    assert pair[0].has_started(2, OperationName(3, 0)) == -1
    second = pair[1].start(reduction(y, tag=3), 43)
    first.prompt()
    for engine, operation, token in ((pair[0], first, 42), (pair[1], second, 43)):
        while not (tokens := engine.ended()):
            assert select.select([engine.event_fd], [], [], LIMIT_S)[0]
            event = engine.next_event()
            assert event is None or event.kind == constants.PCCL_EVENT_STALLED
        assert tokens == [token]
        assert engine.ended() == []
        info = operation.wait(0)
        assert info is not None
        assert info.world_size == 2
        assert operation.done()


def test_a_freeze_a_report_and_a_verdict(pair: list[Engine]) -> None:
    x = np.ones(5, np.int32)
    open_ = pair[0].start(reduction(x, tag=3), 1)
    pair[0].freeze(1)
    while (event := next_event(pair[0])).kind != constants.PCCL_EVENT_FROZEN:
        assert event.kind == constants.PCCL_EVENT_STALLED
    assert event.epoch == 1
    report = pair[0].report(1)
    assert [(line.tag, line.returned_below, line.sequence) for line in report] == [(3, 0, 0)]
    assert report[0].state == constants.PCCL_DATA_PHASE
    pair[0].install(2, 0, members(pair)[:1], [0], [], Status.PEER_LOST, "rank 1 went\0away")
    with pytest.raises(PeerLost, match="rank 1 went"):
        open_.wait(1000)
    with pytest.raises(TooFewPeers):
        run(pair[0], np.ones(3))


def test_a_halt_ends_what_is_open_and_what_comes(pair: list[Engine]) -> None:
    waiting = threading.Thread(target=lambda: pair[0].halt(Status.EXPELLED, "you were asleep"))
    x = np.ones(5)
    open_ = pair[0].start(reduction(x), 1)
    waiting.start()
    with pytest.raises(Expelled, match="you were asleep"):
        ended(open_)
    waiting.join(LIMIT_S)
    with pytest.raises(Expelled):
        run(pair[0], np.ones(3))


def test_explain_names_an_algorithm(pair: list[Engine]) -> None:
    kinds = {"collective": constants.PCCL_ALL_REDUCE, "dtype": constants.PCCL_FLOAT32}
    for count in (1, 1 << 26):
        assert ":" in pair[0].explain(call_of(None, **kinds, count=count).call)
    forced = pair[0].explain(call_of(None, **kinds, count=1, algorithm=constants.PCCL_RING).call)
    assert forced.startswith("ring")


def test_close_waits_for_threads_and_later_calls_raise(pair: list[Engine]) -> None:
    inside = threading.Event()
    outcomes: list[Exception] = []

    def work() -> None:
        inside.set()
        try:
            run(pair[0], np.ones(3))
        except Exception as failure:
            outcomes.append(failure)

    thread = threading.Thread(target=work)
    thread.start()
    inside.wait(LIMIT_S)
    pair[0].close()
    pair[0].close()
    thread.join(LIMIT_S)
    assert [type(outcome) for outcome in outcomes] == [Closed]
    for call in (pair[0].pending, pair[0].next_event, lambda: run(pair[0], np.ones(3)), lambda: pair[0].freeze(1)):
        with pytest.raises(Closed):
            call()


def interrupted(engine: Engine, array: np.ndarray) -> None:
    """Ctrl-C ends a call of this thread that waits for others."""

    def interrupt() -> None:
        while not engine.pending():
            pass
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        run(engine, array)
    thread.join(LIMIT_S)


def test_what_an_interrupt_left_keeps_its_memory_until_it_has_ended(pair: list[Engine]) -> None:
    arrays_ = [np.ones(3), np.ones(3)]
    alive = weakref.ref(arrays_[0])
    interrupted(pair[0], arrays_.pop(0))
    gc.collect()
    assert alive() is not None
    run(pair[1], arrays_[0])
    assert (arrays_[0] == 2).all(), "the other side got what was left"
    while pair[0].pending():
        pass
    interrupted(pair[0], np.ones(3))  # only now somebody looks what has ended
    gc.collect()
    assert alive() is None


def test_memory_is_given_back_when_the_engine_is_freed(pair: list[Engine]) -> None:
    array = np.ones(3)
    alive = weakref.ref(array)
    interrupted(pair[0], array)
    del array
    pair[0].close()
    gc.collect()
    assert alive() is None


def test_calls_and_errors_leak_nothing() -> None:
    engine = Engine(EngineOptions(peer(0), os.urandom(16), "127.0.0.1", min_world_size=1))
    engine.install(1, 0, members([engine]), [0])
    good, bad = reduction(np.ones(3), tag=2**40), reduction(np.ones(3), expected_epoch=7)
    watched = (good, bad, ReduceInfo, PeerLost, good.owner)

    def work() -> None:
        for _ in range(CALLS):
            assert engine.run(good).world_size == 1
            with pytest.raises(PeerLost):
                engine.run(bad)

    work()
    gc.collect()
    before, blocks = [sys.getrefcount(it) for it in watched], sys.getallocatedblocks()
    work()
    gc.collect()
    assert max(now - then for now, then in zip(map(sys.getrefcount, watched), before, strict=True)) < CALLS // 10
    assert sys.getallocatedblocks() - blocks < CALLS // 10
    engine.close()


def test_a_forked_engine_refuses() -> None:
    engine = Engine(EngineOptions(peer(0), os.urandom(16), "127.0.0.1", min_world_size=1))
    engine.install(1, 0, members([engine]), [0])
    child = os.fork()
    if child == 0:
        engine.forked()
        try:
            run(engine, np.ones(3))
        except Closed as failure:
            os._exit(0 if "forked child" in str(failure) else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert run(engine, np.ones(3)).world_size == 1
    engine.close()


class Interrupted(list[Any]):
    """Slots, the first of which a signal's exception takes out of the hands of the call that takes it."""

    def pop(self, *_: Any) -> Any:
        super().pop()
        raise KeyboardInterrupt


def test_a_slot_that_an_interrupt_lost_does_not_hold_up_the_end(pair: list[Engine]) -> None:
    engine = pair[0]
    assert engine.pending() == 0
    engine._slots = Interrupted(engine._slots)
    with pytest.raises(KeyboardInterrupt):
        engine.pending()
    engine._slots = list(engine._slots)
    engine.close()
    assert engine._freed


def test_state_is_served_and_fetched(pair: list[Engine]) -> None:
    source = np.arange(1 << 16, dtype=np.uint8)
    target = np.zeros(1000, np.uint8)
    pair[0].state_serve(5, [(_native.pin(source, False), source.nbytes)])
    with pytest.raises(InvalidArgument):
        pair[0].state_serve(5, [(_native.pin(source, False), source.nbytes)])
    fetch = pair[1].state_fetch(5, peer(0), 0, 300, 1000, _native.pin(target, True), 5000)
    ended(fetch)
    assert (target == source[300:1300]).all()
    beyond = pair[1].state_fetch(5, peer(0), 0, source.nbytes - 1, 1000, _native.pin(target, True), 5000)
    with pytest.raises(InvalidArgument):
        ended(beyond)
    pair[0].state_stop(5)


def test_the_flight_recorder_is_read(pair: list[Engine]) -> None:
    both([lambda: run(pair[0], np.ones(3, np.float32)), lambda: run(pair[1], np.ones(3, np.float32))])
    x = np.ones(5, np.int32)
    open_ = pair[0].start(reduction(x, tag=3), 1)
    assert open_.describe().startswith("all_reduce(int32[5], op=sum, algorithm=doubling) tag 3 #0 of epoch 1 has run")
    records = pair[0].trace()
    done, waiting = [it for it in records if isinstance(it, record.Operation)]
    assert (done.call, done.tag, done.sequence, done.status) == ("all_reduce(float32[3], sum, doubling)", 0, 0, 0)
    assert (done.payload_bytes, done.tx_bytes, done.rx_bytes, done.last_peer) == (12, 12, 12, peer(1).hex())
    assert 0 < done.called_ns <= done.started_ns <= done.data_done_ns <= done.ended_ns
    assert (waiting.status, waiting.ended_ns, waiting.tag) == (record.PENDING, 0, 3)
    assert [wait.rank for wait in waiting.waits] == [1]
    assert [it.kind for it in records if isinstance(it, record.Event)] == ["epoch", "link_up"]
    assert [(it.rank, it.peer, it.status) for it in records if isinstance(it, record.Link)] == [(1, peer(1).hex(), 0)]
