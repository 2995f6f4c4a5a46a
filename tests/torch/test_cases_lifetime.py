# SPDX-License-Identifier: MIT
"""Memory that is dropped, works that are never waited for, threads, forks, and the interpreter's lock."""

from __future__ import annotations

import gc
import multiprocessing
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

from tests.torch.ranks import Rank, Ranks

pytestmark = pytest.mark.process


def dropped(rank: Rank) -> None:
    """What is found in the end, nobody but the engine held meanwhile."""
    me, world, count = rank.rank, rank.world, 100_000
    with rank.group():
        for number in range(20):
            base = float(number * 10)
            kept = torch.full((count,), base + me)
            works: list[Any] = [
                dist.all_reduce(kept, async_op=True),
                dist.all_gather([torch.zeros(count) for _ in range(world)], torch.ones(count), async_op=True),
                dist.all_to_all_single(torch.zeros(count), torch.ones(count), async_op=True),
                dist.all_reduce(torch.ones(count), async_op=True),
            ]
            gathered = works[1].get_future()
            if number % 2:
                works = works[:1]  # nobody ever waits for the others
            gc.collect()
            noise = [torch.full((count,), -1.0) for _ in range(8)]
            for work in works:
                work.wait()
            assert (kept == world * base + sum(range(world))).all()
            if number % 2 == 0:
                (found,) = [gathered.wait()]
                assert all((it == 1).all() for it in (found[0] if isinstance(found[0], list) else found))
            assert all((it == -1).all() for it in noise)


def test_tensors_may_be_dropped_while_they_are_under_way(ranks: Ranks, form: str) -> None:
    """B83."""
    ranks.run(dropped, 2, form)


def all_at_once(rank: Rank) -> None:
    me, world = rank.rank, rank.world
    draw, order = random.Random(1), random.Random(me)
    dtypes = [torch.float32, torch.int64, torch.float64, torch.int16]
    with rank.group():
        groups = [dist.new_group() for _ in range(4)]
        for _ in range(5):
            under_way = []
            for number in range(32):
                x = torch.full((draw.randint(1, 60_000),), number + me, dtype=dtypes[number % 4])
                under_way.append((number, x, dist.all_reduce(x, async_op=True)))
                if number % 4 == 0:
                    y = torch.full((draw.randint(1, 60_000),), 100 + number + me, dtype=dtypes[number % 3])
                    group = groups[number // 4 % 4]
                    under_way.append((100 + number, y, dist.all_reduce(y, group=group, async_op=True)))
            order.shuffle(under_way)
            for number, x, work in under_way:
                work.wait()
                assert (x == world * number + sum(range(world))).all()


def test_many_operations_at_once(ranks: Ranks, form: str) -> None:
    """B84."""
    ranks.run(all_at_once, 3, form)


def two_threads(rank: Rank) -> None:
    """On one group: which operation is first is not said, so all are alike but for their values."""
    with rank.group():
        failures: list[BaseException] = []
        sums = []

        def work(thread: int) -> None:
            try:
                for step in range(500):
                    x = torch.full((32,), float(thread * 1000 + step))
                    dist.all_reduce(x)
                    assert (x == x[0]).all(), "of two operations"
                    sums.append(x[0].item())
            except BaseException as failure:
                failures.append(failure)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
        for it in threads:
            it.start()
        for it in threads:
            it.join()
        assert not failures, failures
        total = torch.tensor([sum(sums)], dtype=torch.float64)
        assert total.item() == rank.world * sum(thread * 1000 + step for thread in range(2) for step in range(500))


def test_threads_may_share_a_group(ranks: Ranks, form: str) -> None:
    """B71."""
    ranks.run(two_threads, 2, form)


def a_thread_for_each_group(rank: Rank) -> None:
    with rank.group():
        groups = [dist.new_group() for _ in range(8)]
        failures: list[BaseException] = []

        def work(thread: int) -> None:
            try:
                for step in range(125):
                    mark = float(thread * 1000 + step)
                    x = torch.full((32 + step,), mark + rank.rank)
                    dist.all_reduce(x, group=groups[thread])
                    assert (x == rank.world * mark + sum(range(rank.world))).all(), "of another group or step"
            except BaseException as failure:
                failures.append(failure)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(len(groups))]
        for it in threads:
            it.start()
        for it in threads:
            it.join()
        assert not failures, failures


def test_each_thread_may_have_a_group(ranks: Ranks, form: str) -> None:
    """B71."""
    ranks.run(a_thread_for_each_group, 2, form)


class Numbers(torch.utils.data.Dataset[int]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        return index


def _square(number: int) -> int:
    return number * number


def children(rank: Rank) -> None:
    with rank.group():
        x = torch.ones(1)
        dist.all_reduce(x)
        work = dist.all_reduce(x, async_op=True)
        loader = DataLoader(Numbers(), batch_size=2, num_workers=2, multiprocessing_context="fork")
        assert sum(int(it.sum()) for it in loader) == 28
        with multiprocessing.get_context("fork").Pool(2) as pool:
            assert pool.map(_square, range(4)) == [0, 1, 4, 9]
        assert subprocess.run([sys.executable, "-c", "print(1)"], check=True, capture_output=True).stdout == b"1\n"
        work.wait()
        for number in range(100):
            y = torch.full((3,), float(number))
            dist.all_reduce(y)
            assert y[0] == number * rank.world


def test_workers_that_fork_disturb_nobody(ranks: Ranks, form: str) -> None:
    """B64."""
    ranks.run(children, 2, form)


def answers(rank: Rank) -> None:
    """Rank 1 calls only when a thread of rank 0, which waits, has answered it."""
    meeting = dist.FileStore(str(rank.folder / "meeting"), rank.world)
    listener = socket.create_server(("127.0.0.1", 0)) if rank.rank == 0 else None
    if listener is not None:
        meeting.set("port", str(listener.getsockname()[1]))

        def answer() -> None:
            for _ in range(5):
                other, _ = listener.accept()
                with other:
                    other.sendall(b"y")

        thread = threading.Thread(target=answer)
        thread.start()

    def asked() -> None:
        if rank.rank == 1:
            with socket.create_connection(("127.0.0.1", int(meeting.get("port")))) as one:
                assert one.recv(1) == b"y"

    asked()
    rank.init()
    asked()
    dist.barrier()
    asked()
    dist.all_reduce(torch.ones(2), async_op=True).wait()
    asked()
    dist.all_reduce(torch.ones(2), async_op=True).get_future().wait()
    asked()
    if listener is not None:
        thread.join()
        listener.close()
    dist.destroy_process_group()


def test_who_waits_leaves_the_interpreter_to_others(ranks: Ranks, form: str) -> None:
    """B70."""
    ranks.run(answers, 2, form)


TICKS = 200_000
ROUNDS = 5


def ticks(rank: Rank) -> float:
    """Rank 0 waits in a collective until a thread of its own has ticked often enough, when rank 1 comes. How fast it
    ticks then, of how fast it does while nobody waits for anything."""
    meeting = dist.FileStore(str(rank.folder / "meeting"), rank.world)
    calls: list[Callable[[], object]] = [
        dist.barrier,
        lambda: dist.all_reduce(torch.ones(2)),
        lambda: dist.all_reduce(torch.ones(2), async_op=True).wait(),
        lambda: dist.all_reduce(torch.ones(2), async_op=True).get_future().wait(),
    ]
    with rank.group():
        best = []
        for number, call in enumerate(calls):
            names = [f"{number} {turn}" for turn in range(ROUNDS)]
            if rank.rank == 0:
                best.append(max(share(call, partial(meeting.set, name, "")) for name in names))
                continue
            for name in names:
                meeting.wait([name])
                call()
    return min(best, default=1.0)


def share(call: Callable[[], object], then: Callable[[], object]) -> float:
    """How fast a thread ticks while this one is in `call`, of how fast this one does alone."""
    idle_s, found = ticking(lambda: None), list[float]()
    thread = threading.Thread(target=lambda: found.append(ticking(then)))
    thread.start()
    call()
    thread.join()
    return idle_s / found[0]


def ticking(then: Callable[[], object]) -> float:
    """How long so many ticks take; `then` is done after the last one."""
    begun = time.perf_counter()
    for _ in range(TICKS):
        pass
    took = time.perf_counter() - begun
    then()
    return took


@pytest.mark.alone
def test_a_thread_is_as_fast_while_another_one_waits(ranks: Ranks, form: str) -> None:
    """B70. The best of some rounds, as whatever else the machine does slows ticks, too."""
    assert min(ranks.run(ticks, 2, form)) >= 0.8
