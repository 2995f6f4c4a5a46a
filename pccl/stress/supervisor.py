# SPDX-License-Identifier: MIT
"""Runs a stress test: starts the master and the workers on their hosts, performs what the director says, and passes the
workers' reports to it and to the checkers.

Must not know: what happens when (`director`), what is right (`checkers`), how it looks (`screen`).
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from pccl.fleet import Child, Fleet, Master, Message
from pccl.stress import hosts, values
from pccl.stress.checkers import Checkers
from pccl.stress.director import Action, Begin, Director, Heal, Phase, Start, Tell
from pccl.stress.hosts import HostsError, Site, Wanted
from pccl.stress.kinds import KINDS
from pccl.stress.links import Links, NamespaceLinks, PlainLinks, RelayLinks
from pccl.stress.namespaces import Namespaces
from pccl.stress.scenario import Scenario
from pccl.stress.screen import Screen
from pccl.stress.timeline import Timeline
from pccl.stress.trial import Trial
from pccl.stress.worker import Orders

TURN_S = 0.5
SHOW_S = 0.25
STANDSTILL_S = 3.0
EXPLAIN_S = 3.0
# Peers outnumber the cores of a small machine: threads of a library would only fight each other.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Settings:
    """What the command line may choose beside the scenario. `python` is how to call it on other machines; `patience`
    stretches all limits of time."""

    seed: int
    wanted: Wanted
    folder: Path
    patience: float = 1.0
    python: str = "python3"


@dataclass
class Outcome:
    """All that a report needs."""

    scenario: Scenario
    settings: Settings
    director: Director
    checkers: Checkers
    timeline: Timeline
    unable: list[str]
    seconds: float = 0.0


class Supervisor:
    """One test. Logs and journal go to the settings' folder."""

    def __init__(self, scenario: Scenario, settings: Settings, screen: Screen) -> None:
        self._scenario = scenario
        self._settings = settings
        self._screen = screen
        self._begin_s = time.monotonic()
        self._children: dict[int, Child] = {}
        self._offsets_ns: dict[str, int] = {}
        self._shown_s = 0.0
        self._checkers = Checkers(scenario.heartbeat_s * settings.patience, scenario.work.bytes)
        self._timeline = Timeline()

    def run(self) -> Outcome:
        """Blocks until it is over. Raises HostsError when there is no place to run it."""
        with ExitStack() as stack:
            site, links = stack.enter_context(_place(self._settings, self._scenario))
            kinds = [name for name, kind in KINDS.items() if not kind.links or name in links.able]
            outcome = self._prepare(site, kinds)
            journal = Path(f"{site.scratch or self._settings.folder}", "master.journal")
            options = ["--heartbeat-timeout", f"{self._scenario.heartbeat_s:g}"]
            self._site, self._links = site, links
            self._master = stack.enter_context(Master(self._settings.folder, journal, site.master, options))
            self._fleet = stack.enter_context(Fleet(self._settings.folder))
            for action in self._director.open():
                self._perform(action)
            self._follow()
        outcome.seconds = self._now()
        return outcome

    def _prepare(self, site: Site, kinds: list[str]) -> Outcome:
        unable = [source.kind for source in self._scenario.faults if source.kind not in kinds]
        if unable and len(unable) == len(self._scenario.faults):
            raise HostsError(f"these hosts can do none of the scenario's faults: {', '.join(unable)}")
        self._director = Director(
            self._scenario,
            self._settings.seed,
            kinds,
            self._checkers,
            lambda text: self._screen.say(self._now(), text),
            site.mates,
            self._settings.patience,
        )
        self._timeline.trials = self._director.trials
        return Outcome(self._scenario, self._settings, self._director, self._checkers, self._timeline, unable)

    # ------------------------------------------------------------ the loop

    def _follow(self) -> None:
        told = 0
        while self._director.phase != Phase.OVER:
            before_s = self._now()
            wait_s = min(TURN_S, max(0.0, self._director.deadline() - before_s))
            arrived = self._fleet.next(wait_s)
            if self._now() - before_s - wait_s > STANDSTILL_S:
                self._director.stood_still(self._now(), self._now() - before_s - wait_s)
            if arrived is not None:
                self._take(*arrived)
            for action in self._director.tick(self._now()):
                self._perform(action)
            for violation in self._checkers.violations[told:]:
                self._timeline.violations.append(violation.at_s)
                self._screen.say(violation.at_s, f"VIOLATION of {violation}")
            told = len(self._checkers.violations)
            self._show()
        self._listen_to_explanations()

    def _take(self, child: Child, message: Message | None) -> None:
        """A child's report, or its end."""
        number, now_s = int(child.name.removeprefix("peer-")), self._now()
        if message is None:
            self._timeline.ended(number, now_s)
            del self._children[number]
            self._links.ended(number)
            self._director.ended(now_s, number, child.exit_code)
            return
        self._translate(child, message)
        at_s = self._seconds(child, message["at_ns"])
        begin_s = end_s = at_s
        if message["kind"] == "step":
            begin_s, end_s = (self._seconds(child, message[key]) for key in ("begin_ns", "end_ns"))
            self._timeline.stepped(message["step"], begin_s, end_s, message["tensors"][0]["world"])
        elif message["kind"] == "joined":
            self._links.joined(number, message["peer"])
        elif message["kind"] == "explained":
            self._screen.say(now_s, f"peer {number}: {message['text']}")
        elif message["kind"] == "failed":
            self._checkers.add(at_s, "errors", number, f"{message['error']}: {message['text']}")
        self._checkers.observe(at_s, number, message)
        self._director.observe(now_s, number, message, begin_s, end_s)

    def _translate(self, child: Child, message: Message) -> None:
        """Slots of ballots become peers' numbers; the clock of another machine, ours."""
        if self._settings.wanted.kind == "ssh":
            offset_ns = time.monotonic_ns() - message["at_ns"]
            self._offsets_ns[child.name] = min(offset_ns, self._offsets_ns.get(child.name, offset_ns))
        for tensor in message.get("tensors", ()):
            for told in ("members", "source"):
                if tensor[told] is not None:
                    tensor[told] = values.numbers(tensor[told], self._director.newest)

    def _listen_to_explanations(self) -> None:
        """After a test that went wrong: what everybody waited for."""
        waiting = set(self._director.living)
        deadline_s = self._now() + EXPLAIN_S
        while waiting and self._now() < deadline_s:
            arrived = self._fleet.next(deadline_s - self._now())
            if arrived is not None:
                child, message = arrived
                number = int(child.name.removeprefix("peer-"))
                if message is None or message["kind"] == "explained":
                    waiting.discard(number)
                if message is not None and message["kind"] == "explained":
                    self._screen.say(self._now(), f"peer {number}: {message['text']}")

    def _show(self) -> None:
        if self._now() >= self._shown_s + SHOW_S:
            self._shown_s = self._now()
            self._screen.show(self._now(), self._director, self._timeline)

    # ------------------------------------------------------------ actions

    def _perform(self, action: Action) -> None:
        if isinstance(action, Start):
            self._start(action)
        elif isinstance(action, Tell):
            self._children[action.number].tell(do=action.do, **dict(action.fields))
        elif isinstance(action, Begin):
            at_ns = self._begin(action.trial)
            self._director.begun(action.trial, at_ns / 1e9 - self._begin_s)
        elif isinstance(action, Heal):
            self._heal(action.trial)
            self._director.healed(action.trial, self._now())

    def _start(self, action: Start) -> None:
        place = self._links.place(action.number, action.seat, self._master.address)
        work = self._scenario.work
        orders = Orders(
            number=action.number,
            master=place.master,
            advertise=place.advertise,
            shm=place.shm,
            seed=self._settings.seed,
            tensors=list(work.tensors),
            collectives=list(work.collectives),
            state=work.state,
            in_flight=work.in_flight,
            steps_per_sync=work.steps_per_sync,
            pause_ms=work.pause_ms,
            connections=work.connections,
            trace=None if self._site.scratch else str(self._settings.folder.resolve() / f"peer-{action.number}.trace"),
        )
        arguments = ["-m", "pccl.stress.worker", json.dumps(asdict(orders))]
        host = self._site.host(action.seat)
        self._checkers.started(action.number)
        self._children[action.number] = self._fleet.start(f"peer-{action.number}", arguments, ENVIRONMENT, host)
        self._timeline.started(action.number, self._now())

    def _begin(self, trial: Trial) -> int:
        """Does it; the monotonic time in nanoseconds just before."""
        now_ns, kind = time.monotonic_ns(), trial.fault.kind
        if kind == "master":
            return self._master.kill()
        if trial.fault.traits.links:
            self._links.begin(kind, trial.victims)
            return now_ns
        for number in trial.victims:
            child = self._children[number]
            if kind == "leave":
                child.tell(do="leave")
            else:
                child.kill(signal.SIGSTOP if kind == "stop" else signal.SIGKILL)
        return now_ns

    def _heal(self, trial: Trial) -> None:
        kind = trial.fault.kind
        if kind == "master":
            self._master.start()
        elif kind == "stop":
            for number in trial.victims:
                if number in self._children:  # or it has ended by itself, which is told elsewhere
                    self._children[number].kill(signal.SIGCONT)
        elif trial.fault.traits.links:
            self._links.heal(kind, trial.victims)

    def _seconds(self, child: Child, there_ns: int) -> float:
        """A worker's monotonic time as seconds since our start."""
        return (there_ns + self._offsets_ns.get(child.name, 0)) / 1e9 - self._begin_s

    def _now(self) -> float:
        return time.monotonic() - self._begin_s


@contextmanager
def _place(settings: Settings, scenario: Scenario) -> Iterator[tuple[Site, Links]]:
    """The hosts and the links between them, for the time of the test. Raises HostsError."""
    wanted = settings.wanted
    if wanted.kind == "ssh":
        with hosts.ssh(wanted.destinations, settings.python) as site:
            yield site, PlainLinks()
    elif wanted.kind == "netns":
        with Namespaces(wanted.count, scenario.link_rate) as made:
            yield Site(made.master, made.hosts), NamespaceLinks(made, scenario.link_rate, scenario.slow_rate)
    elif any(KINDS[source.kind].links for source in scenario.faults):
        links = RelayLinks(scenario.slow_rate)
        try:
            yield hosts.local(), links
        finally:
            links.close()
    else:
        yield hosts.local(), PlainLinks()


def draw_seed() -> int:
    """A seed of chance."""
    return int.from_bytes(os.urandom(4), "big")
