# SPDX-License-Identifier: MIT
"""What this process holds: descriptors, threads, memory. For whoever looks for leaks.

Memory is what the kernel says, resident pages. How much of it the C library only keeps free for the next time varies by
many MiB, up and down, with sizes and the timing of threads; so it would feign a leak as well as hide one. `release`
gives it back first.
"""

from __future__ import annotations

import ctypes
import gc
import os
import resource
from dataclasses import dataclass

PAGE_BYTES = resource.getpagesize()


@dataclass(frozen=True)
class Usage:
    """At one time."""

    fds: int
    threads: int
    rss_bytes: int


def usage() -> Usage:
    """Of this process, now; those of libraries included."""
    with open("/proc/self/statm") as statm:
        rss_bytes = int(statm.read().split()[1]) * PAGE_BYTES
    return Usage(len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), rss_bytes)


def release() -> None:
    """Collects what nobody refers to, and gives back what the C library holds free (where that is glibc)."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
