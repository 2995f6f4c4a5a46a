#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""SIGKILL of one of four peers during in-place all_reduces, at chosen bytes: early, about the end of the data, in the
finish phase. Then the same under all_reduce_multiple_with_retry, with 1, 4 and 16 in flight.

All traffic goes through a relay in this process, which delays it (so that the last round trips take long enough to be
hit) and kills after so many bytes. Where the abort came relative to the end of the data of each survivor is read from
the flight recorders. Each time the survivors must agree, and the retried result, in the very buffer that the failed
attempt worked in, must be exact. A call for several tensors that returns must have reduced every one of them. The exit
status is 0 only if all that was so, and if aborts of all kinds came up.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from typing import Any

from crew import Crew, Failed

from pccl.stress.relay import Relay

PEERS = 4
SIZE_BYTES = 1 << 20
SMALL_ELEMENTS = 2048
"""What recursive doubling is used for; the whole buffer takes the ring."""

TENSORS = 32
TENSOR_BYTES = 32 << 10
IN_FLIGHT = (1, 4, 16)

DELAY_MS = 2.0
WARM_UP = 5
FRAME_BYTES = 128
TAIL_FRAMES = 64
BEFORE = "survivors whose abort came before the end of their data"
AFTER = "survivors whose abort came after the end of their data"

SERIALS_MAX = 120
"""So many peers of one crew; then a new one, before numbers in the ballots of results come round again."""


class Killer:
    """A crew behind a relay, and one peer at a time that is killed after a number of bytes."""

    def __init__(self, crew: Crew, relay: Relay, chance: random.Random) -> None:
        self._crew = crew
        self._relay = relay
        self._chance = chance
        self._bytes: dict[str, int] = {}
        self._step = 0

    def gather(self) -> None:
        """The first members."""
        self._crew.tell(self._crew.recruit(PEERS), do="gather", peers=PEERS)
        self._crew.answers("gathered", self._crew.serials)

    def strike(self, answer: str, key: str, **command: Any) -> dict[int, Any]:
        """Lets all do the command, kills one of them in it, gives the survivors' `answer`s. `key` tells commands apart
        that move different amounts."""
        crew = self._crew
        if key not in self._bytes:
            self._bytes[key] = self._measure(answer, **command)
        everybody = crew.serials
        victim = crew.doom(self._chance.choice(everybody))
        survivors = crew.serials
        self._step += 100
        command |= {"step": self._step, "serials": everybody, "survivors": survivors, "until": len(survivors)}
        self._relay.at(self._moment(self._bytes[key]), victim.kill)
        victim.tell(**command)
        crew.tell(survivors, **command)
        return crew.answers(answer, survivors)

    def ask(self, answer: str, serials: list[int], **command: Any) -> dict[int, Any]:
        """A question about the last strike."""
        command |= {"step": self._step, "serials": serials}
        self._crew.tell(serials, **command)
        return self._crew.answers(answer, serials)

    def refill(self) -> None:
        """A newcomer takes the place of the dead."""
        present = self._crew.serials
        newcomers = self._crew.call_up(1)
        self._crew.tell(newcomers, do="gather", peers=PEERS)
        self._crew.tell(present, do="admit", peers=PEERS)
        self._crew.answers("gathered", self._crew.serials)

    def _measure(self, answer: str, **command: Any) -> int:
        """How many bytes the command moves among all when nothing happens: the least of a few times."""
        everybody, moved = self._crew.serials, []
        for _ in range(WARM_UP):
            self._step += 100
            before = self._relay.total_bytes()
            told = {"step": self._step, "serials": everybody, "survivors": everybody, "until": len(everybody)}
            self._crew.tell(everybody, **command, **told)
            self._crew.answers(answer, everybody)
            moved.append(self._relay.total_bytes() - before)
        return min(moved)

    def _moment(self, moved: int) -> int:
        """A third anywhere, the others within the last frames: the end of the data and the finish phase."""
        if self._chance.random() < 1 / 3:
            return self._chance.randrange(1, moved)
        return max(1, moved - self._chance.randrange(min(moved, TAIL_FRAMES * FRAME_BYTES)))


def kill_in_place(killer: Killer, crew: Crew, repeat: int, ends: Counter[str]) -> None:
    """One repeat of the first part. Raises Failed."""
    small = repeat % 3 == 0
    elements = SMALL_ELEMENTS if small else SIZE_BYTES // 4
    outcomes = killer.strike("outcomes", str(elements), do="reduce", in_place=True, elements=elements)
    survivors = list(outcomes)
    successes = [[size for size, *_ in calls if size] for calls in outcomes.values()]
    if any(sizes != successes[0] for sizes in successes):
        raise Failed(f"repeat {repeat}: a split verdict: the survivors' calls succeeded with {successes} members")
    if not all(killer.ask("right", survivors, do="check").values()):
        raise Failed(f"repeat {repeat}: the retried result is wrong")
    found = list(killer.ask("end", survivors, do="end").values())
    note(repeat, found, ends)


def note(repeat: int, found: list[tuple[int, str, int | None]], ends: Counter[str]) -> None:
    """Counts how the operation ended for the survivors: number, how, when its data were done. Raises Failed."""
    kinds = {end for _, end, _ in found}
    aborted = [after_us for _, end, after_us in found if end == "aborted"]
    if len({(number, end) for number, end, _ in found}) > len({number for number, _, _ in found}):
        raise Failed(f"repeat {repeat}: committed for some and aborted for others: {found}")
    if aborted:
        when = {0: "after", len(aborted): "before"}.get(aborted.count(None), "before some and after other survivors'")
        ends[f"aborted, {when} local end of the data"] += 1
    if "committed" in kinds:
        ends["committed: every survivor's data were done"] += 1
    if kinds == {"between"}:
        ends["between two operations"] += 1
    ends[BEFORE] += aborted.count(None)
    ends[AFTER] += len(aborted) - aborted.count(None)


def kill_multiple(killer: Killer, in_flight: int, repeat: int, mixed: Counter[int]) -> None:
    """One repeat of the second part. Raises Failed."""
    load = {"tensors": TENSORS, "tensor_bytes": TENSOR_BYTES, "in_flight": in_flight}
    rounds = killer.strike("rounds", f"multiple {in_flight}", do="multiple", **load)
    first = next(iter(rounds.values()))
    if any(it != first for it in rounds.values()):
        raise Failed(f"repeat {repeat} with {in_flight} in flight: the survivors' results differ: {rounds}")
    mixed[in_flight] += any(len(set(sizes)) > 1 for sizes in first)


def crews(kills: int, seed: int) -> list[tuple[int, int]]:
    """(seed, kills) of as many crews as it takes."""
    each = SERIALS_MAX - PEERS
    return [(seed + index, min(each, kills - index * each)) for index in range(-(-kills // each))]


def first_part(kills: int, seed: int) -> Counter[str]:
    """Kills in place. Raises Failed."""
    ends: Counter[str] = Counter()
    repeat = 0
    for crew_seed, count in crews(kills, seed):
        with Relay() as relay, Crew(SIZE_BYTES, relay=relay, delay_ms=DELAY_MS) as crew:
            killer = Killer(crew, relay, random.Random(crew_seed))
            killer.gather()
            for _ in range(count):
                repeat += 1
                kill_in_place(killer, crew, repeat, ends)
                killer.refill()
                if repeat % 50 == 0:
                    print(f"{repeat} kills in place", flush=True)
    return ends


def second_part(kills: int, seed: int) -> Counter[int]:
    """Kills under many at once, `kills` for each number in flight. Raises Failed."""
    mixed: Counter[int] = Counter()
    for in_flight in IN_FLIGHT:
        for crew_seed, count in crews(kills, seed):
            with Relay() as relay, Crew(SIZE_BYTES, relay=relay, delay_ms=DELAY_MS) as crew:
                killer = Killer(crew, relay, random.Random(crew_seed))
                killer.gather()
                for repeat in range(count):
                    kill_multiple(killer, in_flight, repeat, mixed)
                    killer.refill()
        print(f"{kills} kills with {in_flight} of {TENSORS} tensors in flight: every tensor was reduced", flush=True)
    return mixed


def main() -> int:
    """Both parts, and what they found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=500, help="of the first part")
    parser.add_argument("--kills-of-many", type=int, default=40, help="of the second part, for each number in flight")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    options = parser.parse_args()
    print(f"seed {options.seed}: {options.kills} kills, {PEERS} peers, {SIZE_BYTES >> 20} MiB and 8 KiB", flush=True)
    try:
        ends = first_part(options.kills, options.seed)
        mixed = second_part(options.kills_of_many, options.seed)
    except Failed as failure:
        print(f"FAILED: {failure}")
        return 1
    for what, count in sorted(ends.items()):
        print(f"{count:6d}  {what}")
    for in_flight, count in mixed.items():
        print(f"{count:6d}  calls with {in_flight} in flight that a kill divided: some tensors of 4 members, some of 3")
    missing = [
        what for what in ("before", "after") if not ends[f"survivors whose abort came {what} the end of their data"]
    ]
    if missing and options.kills >= 100:
        print(f"FAILED: no abort came {' or '.join(missing)} the local end of the data, so nothing was shown of that")
        return 1
    many = f"{len(IN_FLIGHT)} x {options.kills_of_many}"
    print(f"{options.kills} + {many} kills: no split verdict, no wrong number, no hang")
    return 0


if __name__ == "__main__":
    sys.exit(main())
