# SPDX-License-Identifier: MIT
"""What this process holds is seen when it comes and when it goes."""

from __future__ import annotations

import os
import threading

from pccl.stress.usage import release, usage

BLOCKS, BLOCK_BYTES = 1000, 64 << 10
"""So small that the C library keeps them when they are free."""


def test_a_descriptor_and_a_thread_count() -> None:
    over = threading.Event()
    before = usage()
    thread = threading.Thread(target=over.wait)
    thread.start()
    descriptor = os.open("/dev/null", os.O_RDONLY)
    during = usage()
    os.close(descriptor)
    over.set()
    thread.join()
    assert (during.fds - before.fds, during.threads - before.threads) == (1, 1)
    assert usage().fds == before.fds


def test_memory_that_was_let_go_does_not_count() -> None:
    release()
    before = usage().rss_bytes
    blocks = [b"x" * BLOCK_BYTES for _ in range(BLOCKS)]
    assert usage().rss_bytes - before > BLOCKS * BLOCK_BYTES * 3 // 4
    blocks.clear()
    release()
    assert usage().rss_bytes - before < BLOCKS * BLOCK_BYTES // 4
