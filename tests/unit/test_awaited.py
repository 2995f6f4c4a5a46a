# SPDX-License-Identifier: MIT
"""An end wakes all loops that await it, also those that have gone."""

from __future__ import annotations

import asyncio
import threading

from pccl.awaited import Awaited


def test_loops_of_several_threads_are_woken() -> None:
    end, ready = Awaited(), threading.Barrier(4)
    woken = []

    async def wait() -> None:
        future = end.future()
        ready.wait(30)
        await future
        woken.append(threading.get_ident())

    threads = [threading.Thread(target=lambda: asyncio.run(wait())) for _ in range(3)]
    for thread in threads:
        thread.start()
    ready.wait(30)
    end.end()
    end.end()
    for thread in threads:
        thread.join(30)
    assert len(set(woken)) == 3


def test_after_the_end_nobody_waits_and_a_closed_loop_is_nobody() -> None:
    end = Awaited()

    async def leave() -> None:
        end.future()

    asyncio.run(leave())
    end.end()

    async def late() -> bool:
        return end.future().done()

    assert asyncio.run(late())


def test_callbacks_come_once_after_the_end_or_at_once() -> None:
    end = Awaited()
    told: list[int] = []
    end.call(lambda: told.append(1))
    end.call(lambda: told.append(2))
    assert told == []
    end.end()
    end.end()
    assert told == [1, 2]
    end.call(lambda: told.append(3))
    assert told == [1, 2, 3]
