#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""SIGKILL of one of four DDP ranks in the middle of a backward pass, again and again; then a ready process joins.

Half of the victims die when the gradient of some parameter is there, half at a random moment after their backward pass
has begun. The survivors must get the typed error, all in the same step, and repeat that step with three ranks;
the newcomer must have what they have after one step. Digests of the parameters are compared after every step. The exit
status is 0 only if nothing was wrong, nobody else ended, and the limits were kept.

Times in milliseconds, of each repeat the worst rank's:

    error   from the kill until a survivor has the error
    step    from the kill until the repeated step is good on all, without what it computes (measured before, on all
            ranks at once)
    join    a ready process: from its `reconfigure` until it is a member and has the state
    pause   of those that were there: from when the last of them calls `reconfigure` until all go on
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from torch_crew import CONTENDERS, Crew, Failed

from pccl.fleet import Message

PEERS = 4
STEPS = 4
SPREAD = 8
"""Parameters of the model (`torch_trainer.py`)."""


@dataclass(frozen=True)
class Limit:
    """Milliseconds, of the median and of the largest."""

    median_ms: float
    max_ms: float


LIMITS = {
    "error": Limit(1000, 1000),
    "step": Limit(200, 1000),
    "join": Limit(100, 100),
    "pause": Limit(30, 30),
}


@dataclass
class Tally:
    """Milliseconds by name, see the module; and how often the victim died too late to cost the step."""

    times: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in LIMITS})
    lost: int = 0
    kept: int = 0

    def show(self) -> Iterator[str]:
        """A table, and what broke a limit."""
        yield f"{'ms':>8} {'n':>4} {'median':>8} {'max':>8}   limits"
        for name, values in self.times.items():
            limit = LIMITS[name]
            if values:
                yield (
                    f"{name:>8} {len(values):4d} {statistics.median(values):8.1f} {max(values):8.1f}   "
                    f"{limit.median_ms:.0f}, {limit.max_ms:.0f}"
                )
        yield f"{self.lost} steps were lost and repeated, {self.kept} were good all the same"

    def broken(self) -> Iterator[str]:
        """What broke a limit."""
        for name, values in self.times.items():
            limit = LIMITS[name]
            if values and statistics.median(values) > limit.median_ms:
                yield f"{name}: the median is above {limit.median_ms:.0f} ms"
            if values and max(values) > limit.max_ms:
                yield f"{name}: {sum(it > limit.max_ms for it in values)} above {limit.max_ms:.0f} ms"


def kill_once(crew: Crew, tally: Tally, chance: random.Random, compute_ms: float, *, ours: bool) -> None:
    """One repeat: loses a rank in mid-backward, and gets another one. Of others than us, only the time of the step is
    taken."""
    team = list(crew.ranks)
    newcomer = crew.start() if ours else -1
    if ours:
        crew.told("ready", [newcomer])
    victim = chance.choice(team)
    survivors = [serial for serial in team if serial != victim]
    by_hook = chance.random() < 0.5
    crew.tell(survivors, do="train", steps=STEPS)
    crew.tell([victim], do="train", steps=STEPS, dies_at=chance.randrange(SPREAD) if by_hook else -1)
    if by_hook:
        killed_ns = crew.told("dies_ns", [victim])[victim][-1]["dies_ns"]
    else:
        crew.told("backward", [victim])
        end = time.monotonic() + chance.uniform(0.0, compute_ms / 1e3)
        while time.monotonic() < end:
            pass
        killed_ns = crew.ranks[victim].kill()
    said = crew.told("trained", [*survivors, victim], dying=victim)
    if not ours:
        judge_repeat(said, survivors, killed_ns, compute_ms, tally)
        return
    judge_loss(said, survivors, killed_ns, compute_ms, tally)
    crew.tell([*survivors, newcomer], do="train", steps=2, size=PEERS)
    judge_join(crew.told("trained", [*survivors, newcomer]), newcomer, tally)


def judge_loss(
    said: dict[int, list[Message]], survivors: list[int], killed_ns: int, compute_ms: float, tally: Tally
) -> None:
    """Adds the times of a loss. Raises Failed if the survivors do not agree on what was lost."""
    steps = [next(it for it in said[serial] if it.get("size") == PEERS - 1) for serial in survivors]
    lost = [it for serial in survivors for it in said[serial] if "lost" in it]
    if {it["lost"] + 1 for it in lost} - {it["step"] for it in steps[:1]} or len({it["step"] for it in steps}) != 1:
        raise Failed(f"the survivors do not agree on the step that was lost: {lost}, {steps}")
    if lost:  # who had not begun the step when it was lost has no error
        tally.lost += 1
        tally.times["error"].append(max(it["at_ns"] - killed_ns for it in lost) / 1e6)
    else:
        tally.kept += 1
    tally.times["step"].append(max(it["done_ns"] - killed_ns for it in steps) / 1e6 - compute_ms)


def judge_repeat(
    said: dict[int, list[Message]], survivors: list[int], killed_ns: int, compute_ms: float, tally: Tally
) -> None:
    """Adds the time until all survivors have made a step without the victim."""
    firsts = [
        next((it for it in said[serial] if it.get("done_ns", 0) > killed_ns and it["size"] < PEERS), None)
        for serial in survivors
    ]
    done_ns = [it["done_ns"] for it in firsts if it is not None]
    if len(done_ns) < len(survivors):
        raise Failed(f"a survivor made no step without the victim: {said}")
    tally.lost += 1
    tally.times["step"].append((max(done_ns) - killed_ns) / 1e6 - compute_ms)


def judge_join(said: dict[int, list[Message]], newcomer: int, tally: Tally) -> None:
    """Adds the times of a join."""
    firsts = {serial: next(it for it in found if it.get("joined")) for serial, found in said.items()}
    own = firsts.pop(newcomer)
    tally.times["join"].append((own["entered_ns"] - own["began_ns"]) / 1e6)
    here_ns, go_on_ns = (max(it[when] for it in firsts.values()) for when in ("began_ns", "entered_ns"))
    tally.times["pause"].append((go_on_ns - here_ns) / 1e6)


def computes_ms(crew: Crew, *, ours: bool) -> float:
    """How long the slowest rank computes in a step, while the others do, too."""
    begins = {} if ours else {"size": PEERS}  # where those that come first begin without the others
    crew.tell(list(crew.ranks), do="train", steps=STEPS, **begins)
    crew.told("trained", list(crew.ranks))
    crew.tell(list(crew.ranks), do="compute", times=9)
    said = crew.told("computed", list(crew.ranks))
    return max(statistics.median(found[-1]["computed"]) for found in said.values()) / 1e6


def run(whose: str, repeats: int, seed: int) -> Tally | None:
    """All kills of one form of ours, or of a contender. None, and says why, if something was wrong."""
    print(f"seed {seed}: {repeats} kills of one of {PEERS}, {whose}", flush=True)
    tally, chance, ours = Tally(), random.Random(seed), whose not in CONTENDERS
    try:
        for _ in range(1 if ours else repeats):  # contenders have a crew for each kill: nothing is asked of their joins
            with Crew(whose, PEERS) as crew:
                founders = [crew.start("--founders", str(PEERS)) for _ in range(PEERS)]
                crew.told("ready", founders)
                compute_ms = computes_ms(crew, ours=ours)
                print(f"a step computes for {compute_ms:.1f} ms", flush=True)
                for _ in range(repeats if ours else 1):
                    kill_once(crew, tally, chance, compute_ms, ours=ours)
    except Failed as failure:
        print("\n".join(tally.show()))
        print(f"FAILED: {failure}")
        return None
    print("\n".join(tally.show()), flush=True)
    return tally


def main() -> int:
    """Runs all repeats and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--form", choices=("native", "python"), default="native")
    parser.add_argument(
        "--vs", choices=sorted(CONTENDERS), help="the same kills there, afterwards: pip install torchft"
    )
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--no-limits", action="store_true", help="for a machine that is not one's own")
    options = parser.parse_args()
    tally = run(options.form, options.repeats, options.seed)
    if tally is None:
        return 1
    broken = [] if options.no_limits else list(tally.broken())
    for line in broken:
        print(f"FAILED: {line}")
    if not broken:
        print(f"{options.repeats} kills: no other parameters, no hang, no other end")
    if options.vs:
        run(options.vs, options.repeats, options.seed)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
