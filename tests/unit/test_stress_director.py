# SPDX-License-Identifier: MIT
"""The course of a stress test, with peers that exist on paper only and a clock that is a number."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from pccl.stress import values
from pccl.stress.checkers import Checkers
from pccl.stress.director import KEEP, Action, Begin, Director, Heal, Phase, Start, Tell
from pccl.stress.kinds import KINDS
from pccl.stress.scenario import Scenario, Source

STEP_S = 0.25
SCENARIO = Scenario("paper", "", minutes=0.5, peers=4, gap_s=(0.5, 1.0), faults=(Source("kill"),))


@dataclass
class Paper:
    """Performs what the director says, on paper: everybody that lives and is not stopped does steps."""

    director: Director
    now_s: float = 0.0
    step: int = 0
    running: dict[int, bool] = field(default_factory=dict)
    stopped: set[int] = field(default_factory=set)
    paused: bool = False
    immortal: set[int] = field(default_factory=set)
    log: list[Action] = field(default_factory=list)

    def play(self, limit_s: float = 200.0) -> None:
        """Until it is over."""
        self._perform(self.director.open())
        while self.director.phase != Phase.OVER and self.now_s < limit_s:
            self.now_s += STEP_S
            self._step()
            self._perform(self.director.tick(self.now_s))

    def _step(self) -> None:
        for number in [number for number, joined in self.running.items() if not joined]:
            self.running[number] = True
            self._report(number, {"kind": "joined", "world": len(self.running)})
        members = sorted(set(self.running) - self.stopped)
        if len(members) < 2 or self.paused:
            return
        self.step += 1
        told = {"collective": "all_reduce", "members": members, "source": None, "world": len(members), "epoch": 1}
        total = float(values.total(members, self.step, 0, 600))
        tensors = [{**told, "total": total, "count": 600}]
        tensors.append({**told, "collective": "scatter", "members": None, "source": members[:1]})
        for number in members:
            message = {"kind": "step", "step": self.step, "faults": [], "tensors": tensors, "cpu_ns": 0}
            self._report(number, {**message, "begin_ns": 0, "end_ns": 1})

    def _report(self, number: int, message: dict[str, Any]) -> None:
        self.director.checkers.observe(self.now_s, number, message)
        self.director.observe(self.now_s, number, message, self.now_s - STEP_S / 2, self.now_s)

    def _perform(self, actions: list[Action]) -> None:
        self.log += actions
        for action in actions:
            if isinstance(action, Start):
                self.running[action.number] = False
                self.director.checkers.started(action.number)
            elif isinstance(action, Tell):
                self._obey(action)
            elif isinstance(action, Begin):
                self._begin(action)
            else:
                self.stopped -= set(action.trial.victims)
                self.paused = False
                self.director.healed(action.trial, self.now_s)

    def _begin(self, action: Begin) -> None:
        trial = action.trial
        assert set(trial.victims) <= set(self.running)
        assert len(set(self.running) - set(trial.victims) - self.stopped) >= KEEP
        self.director.begun(trial, self.now_s)
        self.paused = trial.fault.kind == "master"
        for number in trial.victims:
            if trial.fault.traits.replaced:
                del self.running[number]
                if number not in self.immortal:
                    self.director.ended(self.now_s, number, 0 if trial.fault.kind == "leave" else -9)
            else:
                self.stopped.add(number)

    def _obey(self, action: Tell) -> None:
        if action.do == "finish":
            self._report(action.number, {"kind": "finished", "revision": 1, "steps": self.step})
        elif action.do == "idle":
            self._report(action.number, {"kind": "idle", "wall_s": 2.0, "cpu_s": 0.0})
        elif action.do == "end":
            del self.running[action.number]
            self.director.ended(self.now_s, action.number, 0)


def director(scenario: Scenario, seed: int = 1, **options: Any) -> Director:
    return Director(scenario, seed, list(KINDS), Checkers(scenario.heartbeat_s), lambda text: None, **options)


def violations(made: Director) -> list[str]:
    return [str(violation) for violation in made.checkers.violations]


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("double", [0.0, 1.0])
def test_faults_come_one_after_the_other_until_time_is_up(kind: str, double: float) -> None:
    hold_s = (1.0, 3.0) if KINDS[kind].held else (0.0, 0.0)
    sources = (Source(kind, hold_s=hold_s), Source("leave", 0.2))
    paper = Paper(director(replace(SCENARIO, faults=sources, double=double, peers=5)))
    paper.play()
    assert violations(paper.director) == []
    assert paper.director.phase == Phase.OVER
    trials = paper.director.trials
    assert len(trials) > 5
    assert {trial.fault.kind for trial in trials} <= {kind, "leave"}
    assert all(trial.over for trial in trials)
    at_once = max(sum(one.at_s <= trial.at_s <= (one.whole_s or 0.0) for one in trials) for trial in trials)
    assert at_once <= 2
    assert all(peer.exit_code is not None for peer in paper.director.peers.values())
    for action in paper.log:
        if isinstance(action, Heal) and action.trial.fault.traits.held:
            assert (action.trial.healed_s or 0.0) >= action.trial.at_s + action.trial.fault.hold_s


def test_the_seed_decides_which_faults_there_are() -> None:
    sources = (Source("kill"), Source("stop", hold_s=(0.5, 3.0)), Source("cut", hold_s=(0.5, 3.0)))
    kinds = []
    for seed in (1, 1, 2):
        paper = Paper(director(replace(SCENARIO, faults=sources), seed))
        paper.play()
        kinds.append([(trial.fault, trial.victims) for trial in paper.director.trials])
    assert kinds[0] == kinds[1] != kinds[2]


def test_a_fault_of_a_host_hits_all_peers_on_it() -> None:
    sources = (Source("cut", hold_s=(0.5, 1.0)),)
    paper = Paper(director(replace(SCENARIO, faults=sources), mates=lambda seat: [seat % 2, seat % 2 + 2]))
    paper.play()
    assert violations(paper.director) == []
    assert {len(trial.victims) for trial in paper.director.trials} == {2}


def test_with_too_few_peers_nothing_is_done_to_anybody() -> None:
    paper = Paper(director(replace(SCENARIO, peers=KEEP)))
    paper.play()
    assert paper.director.trials == []
    assert violations(paper.director) == []


def test_a_newcomer_is_there_before_a_donor_dies() -> None:
    paper = Paper(director(replace(SCENARIO, faults=(Source("donor"),))))
    paper.play()
    assert violations(paper.director) == []
    for trial in paper.director.trials:
        starts = [action.number for action in paper.log[: paper.log.index(Begin(trial))] if isinstance(action, Start)]
        assert max(starts) not in trial.victims
        assert trial.world == SCENARIO.peers + 1


def test_no_progress_ends_the_test_with_its_name() -> None:
    made = director(SCENARIO)
    paper = Paper(made)
    paper.play(limit_s=5.0)
    assert made.phase == Phase.RUNNING
    for _ in range(200):
        paper.now_s += 1.0
        if made.tick(paper.now_s) and made.phase == Phase.OVER:
            break
    assert made.phase == Phase.OVER
    assert made.checkers.violations[0].checker == "progress"
    assert made.checkers.violations[0].at_s > 5.0 + SCENARIO.heartbeat_s + SCENARIO.margin_s


def test_a_peer_that_ends_by_itself_is_a_violation() -> None:
    made = director(SCENARIO)
    paper = Paper(made)
    paper.play(limit_s=3.0)
    made.ended(3.0, min(made.living), -11)
    assert "ended by itself with exit status -11" in violations(made)[0]


def test_a_peer_that_was_told_to_leave_has_to_end() -> None:
    made = director(replace(SCENARIO, faults=(Source("leave"),)))
    paper = Paper(made, immortal={made.scenario.peers})
    paper.play()
    assert made.phase == Phase.OVER
    assert [violation.checker for violation in made.checkers.violations] == ["progress"]
    assert re.search(r"nothing happened for \d+ s; ending: peer 4 \(leaving\)", violations(made)[0])


def test_a_machine_that_stood_still_makes_times_void() -> None:
    made = director(SCENARIO)
    paper = Paper(made)
    paper.play(limit_s=4.0)
    made.stood_still(60.0, 56.0)
    made.tick(60.0)
    assert made.phase == Phase.FINISHING
    assert all(trial.void for trial in made.active)
    assert violations(made) == []
