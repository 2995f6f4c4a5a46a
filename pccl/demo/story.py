# SPDX-License-Identifier: MIT
"""What happens in the demo and when: a pure state machine over the peers' reports.

`observe` takes a report and says what to do next; every step of the story waits for rounds that peers have finished,
never for a time. At the end `faults` says what was not as promised.

Must not know: processes, clocks, terminals.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

ACCURACY_LIMIT = 0.95


@dataclass(frozen=True)
class Script:
    """How long each part of the story is, in rounds unless said otherwise."""

    peers: int = 4
    newcomers: int = 2
    rounds_before_kill: int = 10
    rounds_before_master_kill: int = 10
    rounds_without_master: int = 3
    rounds_before_newcomers: int = 8
    rounds_together: int = 25
    rounds_per_cycle: int = 8


@dataclass(frozen=True)
class Kill:
    """SIGKILL for a peer."""

    peer: str


class Step(enum.Enum):
    """Things to do that need no name."""

    KILL_MASTER = enum.auto()
    RESTART_MASTER = enum.auto()
    START_NEWCOMERS = enum.auto()
    FINISH = enum.auto()


Action = Kill | Step


@dataclass
class PeerState:
    """What is known of a peer from its reports."""

    name: str
    status: str = "starting"
    rank: int | None = None
    world_size: int = 0
    epoch: int = 0
    round: int = 0
    rounds_here: int = 0
    loss: float | None = None
    tx_bytes: int = 0
    rx_bytes: int = 0
    digest: str = ""
    retries: int = 0
    joints: int = 0
    state_bytes: int | None = None
    accuracy: float | None = None
    exit_code: int | None = None
    mark: int = 0
    rounds_masterless: int = 0

    @property
    def rounds_since_mark(self) -> int:
        """Rounds it has finished since the story's last step."""
        return self.rounds_here - self.mark


@dataclass
class Story:
    """The state of the whole demo. `say` hears of events as lines of text."""

    script: Script
    say: Callable[[str], None]
    peers: dict[str, PeerState] = field(default_factory=dict)
    victim: str | None = None
    _chapter: int = 0
    _splits: list[str] = field(default_factory=list)
    _digests: dict[int, str] = field(default_factory=dict)

    def started(self, name: str) -> None:
        """A peer's process was started."""
        self.peers[name] = PeerState(name)

    def ended(self, name: str, exit_code: int | None) -> None:
        """A peer's process has ended."""
        peer = self.peers[name]
        peer.exit_code = exit_code
        peer.status = "killed" if name == self.victim else "left" if exit_code == 0 else f"exit {exit_code}"

    def observe(self, name: str, message: dict[str, Any]) -> list[Action]:
        """Takes a peer's report in; returns what to do now."""
        peer = self.peers[name]
        kind = message["kind"]
        if kind == "joined":
            peer.status = "joined"
            self._take_place(peer, message)
            self.say(f"{name} joined as rank {peer.rank} of {peer.world_size} in epoch {peer.epoch}")
        elif kind == "synced":
            self._synced(peer, message)
        elif kind == "lost":
            self.say(f"{name} retries: {message['why']}")
        elif kind == "joint":
            peer.joints += 1
        elif kind == "round":
            self._round(peer, message)
        elif kind == "finished":
            peer.status = "finished"
            peer.accuracy, peer.digest, peer.round = message["accuracy"], message["digest"], message["round"]
        return self._advance()

    def living(self) -> list[PeerState]:
        """Peers that are not the victim and have not ended."""
        return [peer for peer in self.peers.values() if peer.name != self.victim and peer.exit_code is None]

    @property
    def over(self) -> bool:
        """True when nothing can follow any more."""
        return all(peer.exit_code is not None for peer in self.peers.values())

    def explain(self) -> str:
        """What the story waits for, and what each peer has got to."""
        rounds = ", ".join(
            f"{peer.name} ({peer.status}) round {peer.round}, {peer.rounds_since_mark} since" for peer in self.living()
        )
        return f"chapter {self._chapter + 1} of {len(_CHAPTERS)} waits: {rounds or 'nobody is left'}"

    def faults(self) -> list[str]:
        """What was not as promised; empty is success. For the end."""
        found = list(self._splits)
        if self._chapter < len(_CHAPTERS):
            found.append(f"the story did not end: {self.explain()}")
        expected = self.script.peers - 1 + self.script.newcomers
        finished = [peer for peer in self.peers.values() if peer.accuracy is not None]
        if len(finished) != expected:
            found.append(f"{len(finished)} peers finished, not {expected}")
        if len({peer.digest for peer in finished}) != 1:
            found.append(f"states differ: {', '.join(f'{peer.name} {peer.digest}' for peer in finished)}")
        for peer in finished:
            if peer.accuracy is not None and peer.accuracy < ACCURACY_LIMIT:
                found.append(f"{peer.name} has an accuracy of {peer.accuracy:.1%}, below {ACCURACY_LIMIT:.0%}")
            if peer.exit_code != 0:
                found.append(f"{peer.name} ended with exit status {peer.exit_code}")
        for peer in self._newcomers():
            if not peer.state_bytes:
                found.append(f"{peer.name} did not receive the shared state")
        return found

    def _take_place(self, peer: PeerState, message: dict[str, Any]) -> None:
        peer.rank, peer.world_size, peer.epoch = message["rank"], message["world_size"], message["epoch"]

    def _synced(self, peer: PeerState, message: dict[str, Any]) -> None:
        if peer.state_bytes is None:
            peer.state_bytes = message["received_bytes"]
            if message["received_bytes"]:
                amount = message["received_bytes"] / 1e3
                self.say(f"{peer.name} received the shared state of round {message['round']} ({amount:.0f} kB)")

    def _round(self, peer: PeerState, message: dict[str, Any]) -> None:
        self._take_place(peer, message)
        peer.status = "training"
        peer.round, peer.loss, peer.digest = message["round"], message["loss"], message["digest"]
        peer.tx_bytes, peer.rx_bytes = message["tx_bytes"], message["rx_bytes"]
        peer.retries += message["retries"]
        peer.rounds_here += 1
        known = self._digests.setdefault(peer.round, peer.digest)
        if known != peer.digest:
            self._splits.append(f"round {peer.round}: {peer.name} holds {peer.digest}, another peer {known}")

    def _newcomers(self) -> list[PeerState]:
        return list(self.peers.values())[self.script.peers :]

    def _advance(self) -> list[Action]:
        if self._chapter == len(_CHAPTERS):
            return []
        ready, act = _CHAPTERS[self._chapter]
        if not ready(self):
            return []
        self._chapter += 1
        actions = act(self)
        for peer in self.peers.values():
            peer.mark = peer.rounds_here
        return actions

    def _all_have(self, rounds: int) -> bool:
        return all(peer.rounds_since_mark >= rounds for peer in self.living())

    def _first_part_over(self) -> bool:
        return len(self.peers) == self.script.peers and self._all_have(self.script.rounds_before_kill)

    def _kill_a_peer(self) -> list[Action]:
        self.victim = list(self.peers)[self.script.peers // 2]
        self.say(f"SIGKILL for {self.victim}")
        return [Kill(self.victim)]

    def _cycle_has_begun(self) -> bool:
        """Early in a cycle, so that the rounds left in it show that nobody needs the master."""
        begun = all(peer.round % self.script.rounds_per_cycle in (1, 2) for peer in self.living())
        recovered = all(peer.world_size == self.script.peers - 1 for peer in self.living())
        return recovered and begun and self._all_have(self.script.rounds_before_master_kill)

    def _kill_the_master(self) -> list[Action]:
        self.say("kill -9 for the master; the peers go on without it")
        for peer in self.living():
            peer.joints = 0
        return [Step.KILL_MASTER]

    def _went_on_alone(self) -> bool:
        """A peer that already waits for the next joint call has done all the rounds that it can without the master."""
        wanted = self.script.rounds_without_master
        return all(peer.rounds_since_mark >= wanted or peer.joints for peer in self.living())

    def _restart_the_master(self) -> list[Action]:
        for peer in self.living():
            peer.rounds_masterless = peer.rounds_since_mark
        alone = min(peer.rounds_masterless for peer in self.living())
        if not alone:
            self._splits.append("no round was finished while the master was away")
        self.say(f"every peer finished at least {alone} rounds without a master; it restarts from its journal")
        return [Step.RESTART_MASTER]

    def _resumed(self) -> bool:
        return self._all_have(self.script.rounds_before_newcomers + self.script.rounds_per_cycle)

    def _start_newcomers(self) -> list[Action]:
        epoch = self.living()[0].epoch
        self.say(f"the restarted master carries on in epoch {epoch}; {self.script.newcomers} newcomers start")
        return [Step.START_NEWCOMERS]

    def _trained_together(self) -> bool:
        total = self.script.peers - 1 + self.script.newcomers
        together = all(peer.world_size == total for peer in self.living())
        newcomers = self._newcomers()
        return (
            len(newcomers) == self.script.newcomers
            and together
            and all(peer.rounds_here >= self.script.rounds_together for peer in newcomers)
        )

    def _finish(self) -> list[Action]:
        self.say("enough rounds: the peers are asked to finish")
        return [Step.FINISH]


# When each chapter is ready to begin, and what it begins with.
_CHAPTERS: list[tuple[Callable[[Story], bool], Callable[[Story], list[Action]]]] = [
    (Story._first_part_over, Story._kill_a_peer),
    (Story._cycle_has_begun, Story._kill_the_master),
    (Story._went_on_alone, Story._restart_the_master),
    (Story._resumed, Story._start_newcomers),
    (Story._trained_together, Story._finish),
]
