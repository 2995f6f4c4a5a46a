# SPDX-License-Identifier: MIT
"""Many all-reduces at once, each repeated until it succeeded with whoever is left.

The one idea: all survivors get the same verdict for each operation, so all of them are left with the same list; working
it off in its order, a few at a time, they always have the first unfinished one in common.
"""

from __future__ import annotations

import contextlib
import heapq
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from pccl._native import ReduceInfo
from pccl.errors import PCCLError, PeerLost


class Started(Protocol):
    """What a start gives: a Handle, or what stands for one."""

    def wait(self) -> ReduceInfo:
        """Blocks until the operation has ended. Raises what it ended with."""


def until_done(starts: Sequence[Callable[[], Started]], max_in_flight: int) -> ReduceInfo:
    """Starts each, at most `max_in_flight` at a time, again after each PeerLost; the last info, with all bytes added.

    Any other failure is raised once nothing is in flight any more. Ctrl-C ends the wait only: what had to wait for its
    turn is started before that is passed on, since the others wait for it; nothing is repeated any more.
    """
    waiting = list(range(len(starts)))
    flying: deque[tuple[int, Started]] = deque()
    failure: PCCLError | None = None
    tx_bytes = rx_bytes = 0
    last = ReduceInfo(0, 0, 0, 0, 0, 0)
    while flying or (waiting and failure is None):
        try:
            while waiting and failure is None and len(flying) < max_in_flight:
                index = heapq.heappop(waiting)
                flying.append((index, starts[index]()))
            if not flying:
                break
            index, handle = flying.popleft()
            last = handle.wait()
        except PeerLost:
            heapq.heappush(waiting, index)
        except PCCLError as error:
            failure = failure or error
        except BaseException:
            if failure is None:
                _start_all([starts[it] for it in sorted(waiting)])
            raise
        else:
            tx_bytes += last.tx_bytes
            rx_bytes += last.rx_bytes
    if failure is not None:
        raise failure
    return last._replace(tx_bytes=tx_bytes, rx_bytes=rx_bytes)


def _start_all(starts: Sequence[Callable[[], Started]]) -> None:
    """Each once, unless one fails: then its fellow members are told so too, or will be."""
    with contextlib.suppress(PCCLError):
        for start in starts:
            start()
