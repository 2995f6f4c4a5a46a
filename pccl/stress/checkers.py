# SPDX-License-Identifier: MIT
"""What must not happen, over the workers' reports. Each checker is a small class; `Checkers` asks all of them.

    exactness    a result is what its members gave, the input is as it was, the members are real
    agreement    every peer that finished a step finished it with the same members: one verdict
    parity       after a synchronisation all hold the state of the same step, it is what the formula says, and newer
                 than what they agreed to before
    innocence    nobody is lost or expelled without a fault, and no operation fails for want of a master
    leaks        descriptors, threads and memory of a peer do not grow
    spin         waiting takes no processor time, neither within a step nor between two

Must not know: processes, clocks. Times are seconds since the start of the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from pccl.fleet import Message
from pccl.stress import values
from pccl.stress.trial import Trial

KEPT_STEPS = 2000
WAIT_S = 2.0
SPIN_SHARE = 0.25
IDLE_SHARE = 0.05
WARM_SAMPLES = 5
LEAK_S = 30.0
FDS_GROWTH = 3
THREADS_GROWTH = 0
RSS_GROWTH = 24 << 20
RSS_SAMPLES = 30
TOLD_BY_ALL = ("collective", "epoch", "members", "source")
"""What peers say of one operation, or None; whoever says something says the same."""


@dataclass(frozen=True)
class Violation:
    """Something that must not happen. `peer` is None where it is everybody's."""

    at_s: float
    checker: str
    peer: int | None
    text: str

    def __str__(self) -> str:
        who = "" if self.peer is None else f"peer {self.peer}: "
        return f"{self.at_s:.1f} s  {self.checker}: {who}{self.text}"


class Checker(Protocol):
    """One rule. Yields what is wrong with a report."""

    def observe(self, at_s: float, number: int, message: Message) -> Iterator[str]:
        """A report of peer `number`."""


@dataclass
class Exactness:
    """Every element is checked by the worker, the total and the members here."""

    known: set[int] = field(default_factory=set)

    def observe(self, at_s: float, number: int, message: Message) -> Iterator[str]:
        """Looks at steps."""
        if message["kind"] != "step":
            return
        for fault in message["faults"]:
            yield f"step {message['step']}: {fault}"
        for index, tensor in enumerate(message["tensors"]):
            for fault in self._judge(number, message["step"], index, tensor):
                yield f"step {message['step']}, tensor {index}: {fault}"

    def _judge(self, number: int, step: int, index: int, tensor: Message) -> Iterator[str]:
        members = tensor["members"]
        if not self.known.issuperset((members or []) + (tensor["source"] or [])):
            yield f"{members or tensor['source']} has peers that were never started"
        if members is None:
            return
        if number not in members:
            yield f"its own contribution is missing from {members}"
        if len(members) != tensor["world"]:
            yield f"{members} took part, but the world size is {tensor['world']}"
        if "total" in tensor:
            total = values.total(members, step, index, tensor["count"])
            if tensor["total"] != total:
                yield f"the elements add up to {tensor['total']:.0f}, not {total}"


@dataclass
class Agreement:
    """The same members, or the same source, for the same tensor of the same step, whoever reports it. Not every
    collective tells every peer of them; then the epoch has to be the same."""

    _seen: dict[int, list[dict[str, tuple[int, Any]]]] = field(default_factory=dict)

    def observe(self, at_s: float, number: int, message: Message) -> Iterator[str]:
        """Looks at steps."""
        if message["kind"] != "step":
            return
        step = message["step"]
        known = self._seen.setdefault(step, [{} for _ in message["tensors"]])
        for index, (tensor, before) in enumerate(zip(message["tensors"], known, strict=True)):
            for what in TOLD_BY_ALL:
                if tensor[what] is not None:
                    first, theirs = before.setdefault(what, (number, tensor[what]))
                    if tensor[what] != theirs:
                        yield f"step {step}, tensor {index}: {what} {tensor[what]}, for peer {first} {theirs}"
        while len(self._seen) > KEPT_STEPS:
            del self._seen[next(iter(self._seen))]


@dataclass
class Parity:
    """One state per revision, and nobody falls back behind a state that it has agreed to."""

    _steps: dict[int, tuple[int, int]] = field(default_factory=dict)
    _last: dict[int, tuple[int, int]] = field(default_factory=dict)

    def observe(self, at_s: float, number: int, message: Message) -> Iterator[str]:
        """Looks at synchronisations and at the end."""
        if message["kind"] not in ("synced", "finished"):
            return
        revision, steps = message["revision"], message["steps"]
        if not message.get("right", True):
            yield f"the state of revision {revision} is not that of step {steps}"
        first, known = self._steps.setdefault(revision, (number, steps))
        if steps != known:
            yield f"revision {revision} is step {steps} here, but step {known} for peer {first}"
        before = self._last.get(number, (revision, steps))
        if revision < before[0] or steps < before[1]:
            yield f"it agreed to revision {before[0]} of step {before[1]}, then to revision {revision} of step {steps}"
        self._last[number] = revision, steps
        while len(self._steps) > KEPT_STEPS:
            del self._steps[next(iter(self._steps))]


@dataclass
class Innocence:
    """`excuses` says whether a fault in progress, or one that has just ended, may cost a peer its membership."""

    trials: list[Trial] = field(default_factory=list)
    grace_s: float = 10.0
    quiet_until_s: float = 0.0

    def observe(self, at_s: float, number: int, message: Message) -> Iterator[str]:
        """Looks at losses and expulsions."""
        if message["kind"] == "lost":
            if not any(self._may_cost(trial, at_s) for trial in self.trials) and at_s > self.quiet_until_s:
                yield f"an operation failed without a cause: {message['why']}"
        elif message["kind"] == "expelled":
            guilty = any(number in trial.victims and self._may_expel(trial, at_s) for trial in self.trials)
            if not guilty and at_s > self.quiet_until_s:
                yield f"it was expelled although a way led to it: {message['why']}"

    def _may_cost(self, trial: Trial, at_s: float) -> bool:
        return trial.fault.traits.lossy and self._recent(trial, at_s)

    def _may_expel(self, trial: Trial, at_s: float) -> bool:
        return trial.fault.traits.expels and self._recent(trial, at_s)

    def _recent(self, trial: Trial, at_s: float) -> bool:
        ended_s = trial.healed_s if trial.whole_s is None else trial.whole_s
        return at_s >= trial.at_s and (ended_s is None or trial.whole_s is None or at_s <= ended_s + self.grace_s)


@dataclass
class _Usage:
    """What one peer used after its warm-up; descriptors by the number of links that it has, each of which takes some.
    `over_s` says since when it has used more."""

    samples: int = 0
    fds: dict[int, int] = field(default_factory=dict)
    threads: int = 0
    rss_bytes: int = 0
    over_s: dict[str, float] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)


@dataclass
class Leaks:
    """Compares with the first samples after a warm-up. What is needed to get over a fault may take more for a while.
    Memory that was needed once is kept for the next time: some, and a copy of the `work_bytes` that a peer works on.
    """

    work_bytes: int = 0
    _usage: dict[int, _Usage] = field(default_factory=dict)

    def observe(self, at_s: float, number: int, message: Message) -> Iterator[str]:
        """Looks at synchronisations."""
        if message["kind"] in ("joined", "expelled"):
            self._usage[number] = _Usage()
        if message["kind"] != "synced":
            return
        usage = self._usage.setdefault(number, _Usage())
        usage.samples += 1
        if usage.samples <= WARM_SAMPLES:
            return
        usage.threads = usage.threads or message["threads"]
        if usage.samples <= RSS_SAMPLES:
            usage.rss_bytes = max(usage.rss_bytes, message["rss_bytes"])
        base = usage.fds.setdefault(message["links"], message["fds"])
        for what, grown, limit in (
            ("descriptors", message["fds"] - base, FDS_GROWTH),
            ("threads", message["threads"] - usage.threads, THREADS_GROWTH),
            ("bytes of memory", message["rss_bytes"] - usage.rss_bytes, RSS_GROWTH + self.work_bytes),
        ):
            if grown <= limit:
                usage.over_s.pop(what, None)
                continue
            since_s = usage.over_s.setdefault(what, at_s)
            if at_s - since_s > LEAK_S and what not in usage.told:
                usage.told.add(what)
                yield f"for {at_s - since_s:.0f} s now {grown} more {what} than after its warm-up"


class Spin:
    """A step that had to wait for seconds, and a peer that nobody asks for anything, sleep."""

    def observe(self, at_s: float, number: int, message: Message) -> Iterator[str]:
        """Looks at steps and at the idle time before the end."""
        if message["kind"] == "step":
            wall_s = (message["end_ns"] - message["begin_ns"]) / 1e9
            share = message["cpu_ns"] / 1e9 / wall_s if wall_s > 0 else 0.0
            if wall_s > WAIT_S and share > SPIN_SHARE:
                yield f"step {message['step']} took {wall_s:.1f} s and {share:.0%} of a processor"
        elif message["kind"] == "idle" and message["cpu_s"] > IDLE_SHARE * message["wall_s"]:
            yield f"idle for {message['wall_s']:.1f} s, it used {message['cpu_s']:.2f} s of processor time"


class Checkers:
    """All of them. `work_bytes` is the size of all tensors and the state together."""

    def __init__(self, heartbeat_s: float, work_bytes: int = 0) -> None:
        self.innocence = Innocence(grace_s=2 * heartbeat_s)
        self._exactness = Exactness()
        self._checkers: dict[str, Checker] = {
            "exactness": self._exactness,
            "agreement": Agreement(),
            "parity": Parity(),
            "innocence": self.innocence,
            "leaks": Leaks(work_bytes),
            "spin": Spin(),
        }
        self.violations: list[Violation] = []

    def started(self, number: int) -> None:
        """From now on a peer of that number may take part."""
        self._exactness.known.add(number)

    def observe(self, at_s: float, number: int, message: Message) -> None:
        """A report of a peer."""
        for name, checker in self._checkers.items():
            for text in checker.observe(at_s, number, message):
                self.violations.append(Violation(at_s, name, number, text))

    def add(self, at_s: float, checker: str, peer: int | None, text: str) -> None:
        """Something that the supervisor itself has seen."""
        self.violations.append(Violation(at_s, checker, peer, text))
