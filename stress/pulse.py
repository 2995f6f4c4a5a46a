# SPDX-License-Identifier: MIT
"""When the machine itself stood still: watchers at real-time priority, one per core, that wake every millisecond.

Must not know: what is measured meanwhile. The one idea: no load keeps such a watcher from its core, so when it wakes
late, nothing ran there: a hypervisor had taken the core, or the memory behind it. (The method of jHiccup.)
"""

from __future__ import annotations

import gc
import os
import select
import subprocess
import sys
import time
from types import TracebackType

PERIOD_S = 0.001
PAUSE_NS = 8_000_000
"""From here on it is a pause; a healthy machine wakes a watcher some 0.1 ms late."""


class Pulse:
    """The watchers of all cores. A context manager; without the right to real-time priority it sees no pause."""

    def __init__(self) -> None:
        self.watchers: list[subprocess.Popen[bytes]] = []
        self._pauses: list[tuple[int, int]] = []

    def __enter__(self) -> Pulse:
        for core in sorted(os.sched_getaffinity(0)):
            command = [sys.executable, __file__, str(core)]
            watcher = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
            self.watchers.append(watcher)
            assert watcher.stdout is not None
            watcher.stdout.readline()  # it has begun
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for watcher in self.watchers:
            watcher.communicate()  # closes its stdin, which ends it

    def pause_ms(self, begin_ns: int, end_ns: int) -> float:
        """The longest pause that touches this time (monotonic): 0 if there was none."""
        self._listen()
        return max((end - begin for begin, end in self._pauses if begin < end_ns and end > begin_ns), default=0) / 1e6

    def _listen(self) -> None:
        for watcher in self.watchers:
            assert watcher.stdout is not None
            while select.select([watcher.stdout], [], [], 0)[0]:
                line = watcher.stdout.readline()
                if not line:
                    break
                begin, end = line.split()
                self._pauses.append((int(begin), int(end)))


def watch(core: int) -> None:
    """Says each pause of one core, as "begin end", until stdin ends."""
    gc.disable()
    os.sched_setaffinity(0, {core})
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))
    except PermissionError:
        print("no right to real-time priority: pauses of the machine are not told from load", file=sys.stderr)
        print("begun", flush=True)
        return
    print("begun", flush=True)
    last_ns = time.monotonic_ns()
    while not select.select([sys.stdin], [], [], PERIOD_S)[0]:
        now_ns = time.monotonic_ns()
        if now_ns - last_ns > PAUSE_NS:
            print(last_ns, now_ns, flush=True)
        last_ns = now_ns


if __name__ == "__main__":
    watch(int(sys.argv[1]))
