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
