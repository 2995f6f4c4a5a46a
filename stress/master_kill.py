#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""kill -9 of the master in the middle of a stream of all_reduces, again and again.

Not one operation may fail (G12): every peer goes on for a good number of operations without a master. Restarted on
its port from its journal, the master carries the run on, and a newcomer joins. The exit status is 0 only if all of
that was so.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from crew import Crew, Failed
from reducer import PROGRESS_OPERATIONS

OPERATIONS = 10 * PROGRESS_OPERATIONS
KILL_AT = 2 * PROGRESS_OPERATIONS
RESTART_AT = 6 * PROGRESS_OPERATIONS


def kill_once(crew: Crew) -> int:
    """One repeat. The least number of operations that any peer finished while there was no master."""
    crew.tell(crew.serials, do="stream", operations=OPERATIONS, serials=crew.serials)
    reached = dict.fromkeys(crew.serials, 0)
    killed = restarted = False
    at_kill: dict[int, int] = {}
    alone = 0
    while min(reached.values()) < OPERATIONS:
        serial, message = crew.next()
        reached[serial] = message.get("reached", reached[serial])
        if not killed and min(reached.values()) >= KILL_AT:
            crew.master.kill()
            killed, at_kill = True, dict(reached)
        elif killed and not restarted and min(reached.values()) >= RESTART_AT:
            alone = min(reached[peer] - at_kill[peer] for peer in reached)
            crew.master.start()
            restarted = True
    return alone


def admit_one(crew: Crew) -> None:
    """A newcomer joins through the restarted master, and all reduce together."""
    peers = len(crew.peers) + 1
    newcomers = crew.recruit(1)
    crew.tell(newcomers, do="gather", peers=peers)
    crew.tell([serial for serial in crew.serials if serial not in newcomers], do="admit", peers=peers)
    crew.answers("gathered", crew.serials)
    crew.tell(crew.serials, do="stream", operations=PROGRESS_OPERATIONS, serials=crew.serials)
    crew.answers("reached", crew.serials)


def main() -> int:
    """Runs all repeats; peers grow by one each time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peers", type=int, default=3)
    parser.add_argument("--kibibytes", type=int, default=256)
    options = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory() as folder, Crew(options.kibibytes << 10, Path(folder, "journal")) as crew:
            crew.tell(crew.recruit(options.peers), do="gather", peers=options.peers)
            crew.answers("gathered", crew.serials)
            for repeat in range(1, options.repeats + 1):
                alone = kill_once(crew)
                admit_one(crew)
                print(
                    f"repeat {repeat}: {OPERATIONS} all_reduces of {len(crew.peers) - 1} peers, at least {alone} of "
                    "them without a master, none failed; then a newcomer joined the restarted master",
                    flush=True,
                )
    except (Failed, RuntimeError) as failure:
        print(f"FAILED: {failure}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
