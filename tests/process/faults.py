# SPDX-License-Identifier: MIT
"""What can be done to a member, and what has to be so afterwards.

A `Fault` strikes in a relay's thread, between two bytes. `test_matrix` combines all of them with all collectives and
phases; files named after one of them hold what is particular to it.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from pccl.stress.relay import Directions
from tests.process.team import Member, Team

Strike = Callable[[Team, Member], None]

DAMAGED_BYTES = 64
SILENCE_S = 4.0
"""Longer than it takes to give up a link with OPTIONS."""


@dataclass(frozen=True)
class Fault:
    """`gone`: the victim is a member no more. `revive` makes it come to itself again; it then finds itself expelled.
    `spared`: no operation fails. `armed`: what SIGUSR1 does to the victim."""

    strike: Strike
    gone: bool = False
    revive: Strike | None = None
    heal: Strike | None = None
    spared: bool = False
    armed: str = ""


def each_link(team: Team, victim: Member, verb: Callable[..., object], **arguments: object) -> None:
    """Calls a method of Link for all that the victim's data pass through."""
    for link, name in team.links_of(victim):
        verb(link, name=name, **arguments)


def pause(team: Team, victim: Member) -> None:
    """Stopped until another member has something to tell the master: that it waits, at the latest a heartbeat."""
    victim.child.kill(signal.SIGSTOP)
    team.others(victim)[-1].control.at("up", 1, lambda: victim.child.kill(signal.SIGCONT))


def cut_off(team: Team, victim: Member) -> None:
    """Its cable is pulled: nothing gets through in either direction, and no connection ends."""
    each_link(team, victim, type(victim.data).set, hold=True)
    victim.control.set(hold=True)


def plug_in(team: Team, victim: Member) -> None:
    each_link(team, victim, type(victim.data).set, hold=False)
    victim.control.set(hold=False)


def corrupt(team: Team, victim: Member) -> None:
    """Most of the next few bytes from or to the victim are damaged, wherever they belong; then no more."""
    each_link(team, victim, type(victim.data).set, corrupt_every=1)
    team.data.at(DAMAGED_BYTES, lambda: purify(team, victim))


def purify(team: Team, victim: Member) -> None:
    each_link(team, victim, type(victim.data).set, corrupt_every=0)


def far_side(team: Team, victim: Member) -> Member:
    """One that the victim has a link to. Where the first two of four fetch state from the others, it is on the other
    side."""
    return team.all[team.all.index(victim) - 2]


def sever(one: Member, other: Member) -> None:
    """Whoever of the two dials the other from now on gets a reset, and so does what stands."""
    for dialled, dialler in ((one, other), (other, one)):
        dialled.data.set(name=dialler.id, refuse=True)
        dialled.data.reset(dialler.id)


def mend(one: Member, other: Member) -> None:
    for dialled, dialler in ((one, other), (other, one)):
        dialled.data.set(name=dialler.id, refuse=False)


def silence(one: Member, other: Member, direction: Directions, hold: bool = True) -> None:
    """Nothing gets through in a direction, seen from who dialled, but the connections stay; nor in any made later."""
    for dialled, dialler in ((one, other), (other, one)):
        dialled.data.set(direction, name=dialler.id, hold=hold)


def speak_again(team: Team, victim: Member) -> None:
    """Ends a silence; whoever was about to give the link up for it has done so then. The members are to be idle."""
    silence(victim, far_side(team, victim), "both", hold=False)
    begun = time.monotonic()
    while time.monotonic() - begun < SILENCE_S:
        team.footprint([victim])


def reset_control(victim: Member) -> None:
    victim.control.reset()


def control_corrupt(team: Team, victim: Member) -> None:
    """Bytes between the victim and the master are damaged, some in each kilobyte."""
    victim.control.set(corrupt_every=400)


def one_stripe(team: Team, victim: Member) -> None:
    """Resets one of the connections that the victim's data pass through."""
    for link, name in team.links_of(victim):
        if link.reset(name, limit=1):
            return
    raise AssertionError("no connection of the victim is open")


FAULTS = {
    "kill": Fault(lambda team, victim: _signal(victim, signal.SIGKILL), gone=True),
    "exit": Fault(lambda team, victim: _signal(victim, signal.SIGUSR1), gone=True, armed="exit"),
    "close": Fault(lambda team, victim: _signal(victim, signal.SIGUSR1), gone=True, armed="close"),
    "stop": Fault(
        lambda team, victim: _signal(victim, signal.SIGSTOP),
        gone=True,
        revive=lambda team, victim: _signal(victim, signal.SIGCONT),
    ),
    "pause": Fault(pause, spared=True),
    "cut_off": Fault(cut_off, gone=True, revive=plug_in),
    "reset": Fault(lambda team, victim: each_link(team, victim, type(victim.data).reset)),
    "cut": Fault(lambda team, victim: each_link(team, victim, type(victim.data).cut)),
    "stripe": Fault(one_stripe, spared=True),
    "corrupt": Fault(corrupt, heal=purify),
    "sever": Fault(
        lambda team, victim: sever(victim, far_side(team, victim)),
        heal=lambda team, victim: mend(victim, far_side(team, victim)),
    ),
    "silence": Fault(
        lambda team, victim: silence(victim, far_side(team, victim), "both"),
        heal=speak_again,
    ),
    "control_reset": Fault(lambda team, victim: reset_control(victim), spared=True),
    "control_corrupt": Fault(
        control_corrupt, spared=True, heal=lambda team, victim: victim.control.set(corrupt_every=0)
    ),
}
"""Of a process, of its host, of all its links, of one connection, of one link, of its way to the master."""

OPTIONS = {"p2p_connection_pool_size": 4, "checksum": "always", "link_timeout": 2.0}
"""Of every Communicator that any of these is done to: several stripes, damage that is seen, a silence that is short."""


def long(*values: Any) -> list[Any]:
    """Parameters of a test that run with the matrix only."""
    return [pytest.param(*(it if isinstance(it, tuple) else (it,)), marks=pytest.mark.matrix) for it in values]


class Case:
    """One fault in one operation of a team, from before it to the proof that nothing remains of it."""

    def __init__(self, team: Team, fault: str) -> None:
        self._team = team
        self._fault = FAULTS[fault]
        self._victim: Member | None = None
        self._struck = threading.Event()
        team.works()
        team.footprint(team.all)  # with all links

    def play(self, collective: str, elements: int, in_place: bool, share: float, tail_bytes: int = 0) -> None:
        """Strikes after a share of the operation's traffic, less some bytes."""
        team, fault = self._team, self._fault
        victim = self._victim = team.all[len(team.all) // 2]
        survivors = team.others(victim) if fault.gone else team.all
        if fault.armed:
            team.tell([victim], "arm", how=fault.armed)
            team.answers("armed", [victim])
        at = max(1, int(team.traffic(collective, elements, in_place) * share) - tail_bytes)
        before = team.footprint(survivors)
        self._struck.clear()
        team.data.at(at, self._strike)
        team.begin(collective, elements, in_place)
        result = team.outcomes(survivors)
        self._strike()  # with fewer acknowledgements than before, it comes between two operations
        assert result.lost == 0 or not fault.spared, "an operation failed that had no need to"
        if fault.heal is not None:
            fault.heal(team, victim)
        if fault.gone:
            team.gone(victim)
        team.settle()
        if fault.gone:
            self._replace(victim)
        team.works()
        team.back_to(before, survivors)

    def _strike(self) -> None:
        if not self._struck.is_set() and self._victim is not None:
            self._struck.set()
            self._fault.strike(self._team, self._victim)

    def _replace(self, victim: Member) -> None:
        """A new member comes, or the old one with a new life."""
        if self._fault.revive is None:
            self._team.recruit()
        else:
            self._fault.revive(self._team, victim)
            self._team.let_in([victim], "rejoin")


def _signal(victim: Member, number: int) -> None:
    victim.child.kill(number)
