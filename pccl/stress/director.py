# SPDX-License-Identifier: MIT
"""What happens in a stress test, and when: a state machine over the workers' reports and the clock.

    gathering -> running -> finishing -> idling -> ending -> over

While it runs, one fault after the other begins, at most two at a time; the next is not drawn before all peers have done
a step together again. `tick` says what to do now; who performs it tells `begun` and `healed` when it was done.

Must not know: processes, networks, terminals. Times are seconds since the start of the run.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pccl.fleet import Message
from pccl.stress import faults
from pccl.stress.checkers import Checkers
from pccl.stress.faults import Fault
from pccl.stress.scenario import Scenario
from pccl.stress.trial import Trial

IDLE_S = 2.0
KEEP = 2
"""So many peers are left alone by faults at any time: a group of one does no steps."""
DONOR_S = 0.06
"""The donor dies within so much time after the newcomer was admitted."""


class Phase(enum.Enum):
    """Where the test is."""

    GATHERING = "gathering"
    RUNNING = "running"
    FINISHING = "finishing"
    IDLING = "idling"
    ENDING = "ending"
    OVER = "over"


@dataclass(frozen=True)
class Start:
    """Start a peer on the host of a seat."""

    number: int
    seat: int


@dataclass(frozen=True)
class Begin:
    """Do to the victims what the fault is."""

    trial: Trial


@dataclass(frozen=True)
class Heal:
    """Undo it. Processes that a fault has ended are replaced by a Start of their own."""

    trial: Trial


@dataclass(frozen=True)
class Tell:
    """A command for a peer."""

    number: int
    do: str
    fields: tuple[tuple[str, Any], ...] = ()


Action = Start | Begin | Heal | Tell


@dataclass
class Peer:
    """What is known of a peer from its reports."""

    number: int
    seat: int
    status: str = "starting"
    epoch: int = 0
    world: int = 0
    step: int = 0
    steps: int = 0
    lost: int = 0
    rss_bytes: int = 0
    joined: bool = False
    finished: bool = False
    idled: bool = False
    gone: bool = False
    leaving: bool = False
    exit_code: int | None = None


@dataclass
class _Newcomer:
    """A donor's fault before its time: somebody has to fetch first."""

    fault: Fault
    number: int
    kill_s: float | None = None


@dataclass
class Director:
    """One test. `mates` gives all seats that a link fault of one seat hits as well, that seat included."""

    scenario: Scenario
    seed: int
    able: Sequence[str]
    checkers: Checkers
    say: Callable[[str], None]
    mates: Callable[[int], list[int]] = lambda seat: [seat]
    patience: float = 1.0
    phase: Phase = Phase.GATHERING
    peers: dict[int, Peer] = field(default_factory=dict)
    trials: list[Trial] = field(default_factory=list)
    active: list[Trial] = field(default_factory=list)
    _living: set[int] = field(default_factory=set)
    _ending: set[int] = field(default_factory=set)
    _next_number: int = 0
    _progress_s: float = 0.0
    _begin_s: float = 0.0
    _due_s: float = 0.0
    _master_back_s: float = 0.0
    _newcomer: _Newcomer | None = None

    def __post_init__(self) -> None:
        self._plan: Iterator[Fault] = faults.plan(self.scenario, self.seed, self.able)
        self._fault: Fault | None = next(self._plan, None)
        self.checkers.innocence.trials = self.trials

    # ------------------------------------------------------------ what it is told

    def open(self) -> list[Action]:
        """The first peers."""
        return [self._start(seat) for seat in range(self.scenario.peers)]

    def observe(self, at_s: float, number: int, message: Message, begin_s: float = 0.0, end_s: float = 0.0) -> None:
        """A report of a peer; of a step also when it began and ended."""
        peer = self.peers[number]
        kind = message["kind"]
        peer.epoch, peer.world = message.get("epoch", peer.epoch), message.get("world", peer.world)
        if kind in ("step", "joined", "synced", "finished", "idle"):
            self._progress_s = at_s
        if kind == "joined":
            peer.joined, peer.status = True, "joined"
            if self._newcomer is not None and self._newcomer.number == number:
                self._newcomer.kill_s = at_s + DONOR_S * self._newcomer.fault.share
        elif kind == "step":
            self._stepped(peer, message, begin_s, end_s)
        elif kind == "synced":
            peer.rss_bytes = message["rss_bytes"]
        elif kind == "lost":
            peer.lost += 1
            for trial in self.active:
                trial.lost(number)
        elif kind in ("alone", "expelled"):
            peer.status = kind
            self.say(f"peer {number} is {kind}" + (f": {message['why']}" if "why" in message else ""))
        elif kind == "finished":
            peer.finished, peer.status = True, "finished"
        elif kind == "idle":
            peer.idled = True

    def ended(self, at_s: float, number: int, exit_code: int | None) -> None:
        """A peer's process has ended."""
        peer = self.peers[number]
        peer.exit_code = exit_code
        if peer.gone:
            expected = (0,) if peer.leaving else (-9, 255)  # ssh says 255 for its own end and any signal
            if exit_code not in expected:
                self.checkers.add(at_s, "processes", number, f"ended with exit status {exit_code}")
        elif not (self.phase == Phase.ENDING and exit_code == 0):
            self.checkers.add(at_s, "processes", number, f"ended by itself with exit status {exit_code}")
        self._bury(peer)
        self._ending.discard(number)
        peer.status = "left" if exit_code == 0 else "killed"

    def begun(self, trial: Trial, at_s: float) -> None:
        """The fault was performed; `at_s` is the time just before."""
        trial.at_s = at_s
        held = f", for {trial.fault.hold_s:.1f} s" if trial.fault.traits.held else ""
        self.say(f"{trial.text}{held}")

    def healed(self, trial: Trial, at_s: float) -> None:
        """It was undone."""
        trial.healed(at_s)
        if trial.fault.traits.held:
            self.say(f"over: {trial.text}")
        if trial.fault.kind == "master":
            self._master_back_s = at_s
        self._progress_s = at_s

    def stood_still(self, at_s: float, seconds: float) -> None:
        """The whole machine did: whatever was measured meanwhile says nothing."""
        self.say(f"the machine stood still for {seconds:.1f} s: what happens now is not judged by time")
        self._progress_s = at_s
        self._due_s += seconds
        self.checkers.innocence.quiet_until_s = at_s + self._limit_s
        for trial in self.active:
            trial.void = True

    # ------------------------------------------------------------ what it says

    @property
    def living(self) -> set[int]:
        """Peers whose processes should be running. To be read only."""
        return self._living

    @property
    def newest(self) -> int:
        """The number of the last peer that was started."""
        return self._next_number - 1

    def tick(self, at_s: float) -> list[Action]:
        """What to do now."""
        if self.phase == Phase.GATHERING:
            return self._gather(at_s)
        if self.phase == Phase.RUNNING:
            return self._run(at_s)
        if self.phase == Phase.FINISHING:
            if all(self.peers[number].finished for number in self.living):
                self.phase = Phase.IDLING
                return self._tell_all("idle", seconds=IDLE_S)
        elif self.phase == Phase.IDLING:
            if all(self.peers[number].idled for number in self.living):
                self.phase = Phase.ENDING
                return self._tell_all("end")
        elif self.phase == Phase.ENDING and not self.living and not self._ending:
            self.phase = Phase.OVER
        return self._hurry(at_s)

    def deadline(self) -> float:
        """When `tick` is due at the latest, reports aside."""
        times = [self._progress_s + self._limit_s]
        if self.phase == Phase.RUNNING:
            times += [trial.at_s + trial.fault.hold_s for trial in self.active if trial.healed_s is None]
            if not self.active and self._fault is not None:
                times.append(self._due_s)
            if self._newcomer is not None and self._newcomer.kill_s is not None:
                times.append(self._newcomer.kill_s)
            times.append(self._end_s)
        return min(times)

    def explain(self) -> str:
        """What it waits for."""
        where = ", ".join(
            f"peer {number} ({self.peers[number].status}) step {self.peers[number].step}"
            for number in sorted(self.living | self._ending)
        )
        return f"{self.phase.value}: {where}"

    # ------------------------------------------------------------ phases

    @property
    def _limit_s(self) -> float:
        return self.patience * (self.scenario.heartbeat_s + self.scenario.margin_s)

    @property
    def _end_s(self) -> float:
        return self._begin_s + 60 * self.scenario.minutes

    def _gather(self, at_s: float) -> list[Action]:
        if all(self.peers[number].world >= self.scenario.peers and self.peers[number].steps for number in self.living):
            self.phase, self._begin_s = Phase.RUNNING, at_s
            self.say(f"all {self.scenario.peers} peers train together")
            self._wait(at_s)
            return []
        return self._hurry(at_s)

    def _run(self, at_s: float) -> list[Action]:
        actions: list[Action] = []
        for trial in list(self.active):
            if trial.healed_s is None and trial.fault.traits.held and at_s >= trial.at_s + trial.fault.hold_s:
                actions.append(Heal(trial))
            if trial.over:
                self.active.remove(trial)
                if not self.active and self._newcomer is None:
                    self._wait(at_s)
        if self._newcomer is not None and self._newcomer.kill_s is not None and at_s >= self._newcomer.kill_s:
            newcomer, self._newcomer = self._newcomer, None
            actions += self._hit(newcomer.fault, at_s, spare=newcomer.number)
        busy = bool(self.active) or self._newcomer is not None or bool(actions)
        if not busy and at_s >= self._end_s:
            self.phase = Phase.FINISHING
            self.say("time is up: the peers are asked to finish")
            return self._tell_all("finish")
        if not busy and self._fault is not None and at_s >= self._due_s:
            actions += self._next_faults(at_s)
        return actions or self._hurry(at_s)

    def _wait(self, at_s: float) -> None:
        """The next fault's gap begins."""
        if self._fault is not None:
            self._due_s = at_s + self._fault.gap_s

    def _next_faults(self, at_s: float) -> list[Action]:
        """The fault that is due, and the one that joins it, if any."""
        actions: list[Action] = []
        while self._fault is not None:
            fault, self._fault = self._fault, next(self._plan, None)
            actions += self._invite(fault) if fault.kind == "donor" else self._hit(fault, at_s)
            if self._fault is None or not self._fault.joins:
                break
        if not actions:
            self._wait(at_s)
        return actions

    def _invite(self, fault: Fault) -> list[Action]:
        """A newcomer, so that there is somebody to fetch the state; the donor's time comes when it was admitted."""
        start = self._start(self._next_number % self.scenario.peers)
        self._newcomer = _Newcomer(fault, start.number)
        return [start]

    def _victims(self, fault: Fault, free: set[int]) -> list[int]:
        """Whom a fault hits, if that leaves enough of those who are free to be hit."""
        victims = set(faults.choose(fault, sorted(free), KEEP))
        if fault.traits.links:
            seats = {mate for number in victims for mate in self.mates(self.peers[number].seat)}
            victims = {number for number in self.living if self.peers[number].seat in seats}
        return sorted(victims) if len(free - victims) >= KEEP else []

    def _hit(self, fault: Fault, at_s: float, spare: int | None = None) -> list[Action]:
        """Begins a fault; replaces its victims at once where it ends them. Nothing if too few would be left."""
        hurt = {number for trial in self.active for number in trial.victims}
        free = {number for number in self.living if self.peers[number].joined} - hurt
        victims: list[int] = []
        if fault.kind == "master":
            if any(trial.fault.kind == "master" for trial in self.active):
                return []
        elif not (victims := self._victims(fault, free - {spare})):
            return []
        trial = Trial(fault, at_s, tuple(victims), free - set(victims), len(self.living))
        for other in self.active:
            other.leaves(victims, at_s)
        self.trials.append(trial)
        self.active.append(trial)
        actions: list[Action] = [Begin(trial)]
        if fault.traits.replaced:
            for number in victims:
                self._bury(self.peers[number])
                self.peers[number].leaving = fault.kind == "leave"
                self.peers[number].status = "leaving" if fault.kind == "leave" else "killed"
            if fault.kind != "donor":
                actions += [self._start(self.peers[number].seat) for number in victims]
        if not fault.traits.held:
            actions.append(Heal(trial))
        return actions

    def _hurry(self, at_s: float) -> list[Action]:
        """Ends the test when something takes too long, or so many peers are gone that nothing can follow."""
        late = self._late(at_s)
        if late is None and self.phase not in (Phase.ENDING, Phase.OVER) and len(self.living) < KEEP:
            late = f"only {len(self.living)} peers are left"
        if late is None:
            return []
        self.checkers.add(at_s, "progress", None, late)
        self.phase = Phase.OVER
        return self._tell_all("explain")

    def _late(self, at_s: float) -> str | None:
        limit_s = self._limit_s
        if any(trial.fault.kind == "master" and trial.healed_s is None for trial in self.active):
            return None
        for trial in self.active:
            if trial.recovered_s is None and at_s > max(trial.at_s, self._master_back_s) + limit_s and not trial.void:
                return f"{trial.explain()}, {at_s - trial.at_s:.0f} s ago"
        held = any(trial.healed_s is None for trial in self.active)
        if not held and self.active:
            last_s = max(trial.healed_s or 0.0 for trial in self.active)
            late = next((trial for trial in self.active if trial.whole_s is None and not trial.void), None)
            if late is not None and at_s > last_s + limit_s:
                return f"{late.explain()}, {at_s - last_s:.0f} s ago"
        if not held and at_s > self._progress_s + limit_s:
            return f"nothing happened for {at_s - self._progress_s:.0f} s; {self.explain()}"
        return None

    # ------------------------------------------------------------ small things

    def _stepped(self, peer: Peer, message: Message, begin_s: float, end_s: float) -> None:
        told = [set(tensor["members"]) for tensor in message["tensors"] if tensor["members"] is not None]
        members, ever = (set.intersection(*told), set.union(*told)) if told else (set[int](), set[int]())
        peer.step, peer.world = message["step"], len(members)
        peer.status = peer.status if peer.gone else "training"
        peer.steps += 1
        living = self.living
        for trial in self.active:
            hit = ever & set(trial.victims)
            trial.stepped(peer.number, begin_s, end_s, members | hit, living)

    def _start(self, seat: int) -> Start:
        number = self._next_number
        self._next_number += 1
        self.peers[number] = Peer(number, seat)
        self._living.add(number)
        return Start(number, seat)

    def _bury(self, peer: Peer) -> None:
        """It counts no more. Its process may take its time to end, but not for ever."""
        peer.gone = True
        self._living.discard(peer.number)
        self._ending.add(peer.number)

    def _tell_all(self, do: str, **fields: Any) -> list[Action]:
        return [Tell(number, do, tuple(fields.items())) for number in sorted(self.living)]
