# SPDX-License-Identifier: MIT
"""The simulated world: one master, some peers, their connections, and the two phases of a run.

What for: the real cores, the real encoder, the real journal and the real shared-state election run against models of
all that is around them. Must not know: what is right (checkers.py), which faults strike when (faults.py).

The one idea: two phases. First faults of a random selection of kinds, during which only safety is checked; then a core
of peers is healed, the others are out of reach for good, and every peer of the core must get on within a bounded
virtual time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from pccl.messages import NO_PLACE
from pccl.protocol.master import MasterProtocol
from pccl.protocol.peer import PeerProtocol
from pccl.protocol.state_master import MasterSync
from pccl.protocol.types import Change, Notify, Record
from tests.sim.checkers import Checkers
from tests.sim.dataplane import Engine
from tests.sim.faults import FAULTS, HARMLESS, HINDRANCES, Faults
from tests.sim.links import Links
from tests.sim.master import LIMITS, Disk, SimMaster
from tests.sim.network import Clock, Wire
from tests.sim.operation import PeerId
from tests.sim.peer import JOINT_TIMEOUT_MS, Control, SimPeer
from tests.sim.program import Habits

CHURN_MS = 3_500.0
HEAL_MS = 20_000.0
STEPS_AFTER_HEAL = 2


@dataclass(frozen=True, slots=True)
class Kinds:
    """The classes that a world is made of. Mutants replace one of them."""

    master: type[MasterProtocol] = MasterProtocol
    peer: type[PeerProtocol] = PeerProtocol
    engine: type[Engine] = Engine
    disk: type[Disk] = Disk
    sync: type[MasterSync] = MasterSync


class World:
    """One run. `run()` returns the violations."""

    def __init__(
        self,
        seed: int,
        *,
        kinds: Kinds | None = None,
        faults: Sequence[str] | None = None,
        master_dies: tuple[int, str] | None = None,
        record: bool = False,
    ) -> None:
        """`master_dies`: at which of its journal writes, and how (BEFORE, TORN or AFTER)."""
        self.clock = Clock(seed)
        self.checkers = Checkers()
        self.kinds = kinds or Kinds()
        rng = self.clock.random
        share = rng.choice([0.1, 0.3, 0.5])
        drawn = [fault for fault in (HARMLESS if rng.random() < 0.2 else FAULTS) if rng.random() < share]
        self.faults = Faults(self, drawn if faults is None else faults)
        self.master_fails = bool(master_dies) or self.faults.any_of("master_crash", "master_pause", "journal_crash")
        self.groups = rng.choice([1, 1, 1, 2, 3])
        self.min_world = rng.choice([1, 2])
        self._founding = Random(f"founding {seed}")  # its own: what a seed deals otherwise stays as it was
        self.founders = self._founding.choice([1, 1, 1, 2, 3])
        self.places = self._founding.random() < 0.5
        self.pause_ms = rng.choice([15.0, 40.0])
        self.delay = rng.choice([0.3, 1.0, 4.0])
        self.master = SimMaster(self)
        if master_dies is not None:
            self.master.crash_at_write = lambda number: master_dies[1] if number == master_dies[0] else None
        self.peers: dict[PeerId, SimPeer] = {}
        self.dead: dict[PeerId, bool] = {}
        self.links = Links(self.clock, self.delay)
        self.operations = self.aborts = 0
        self.lines: list[str] | None = [] if record else None
        self.healed = False
        self.healed_after = 0.0
        self._generation = 0
        self._goal: dict[PeerId, tuple[int, int, int]] = {}

    def trace(self, what: str, text: str = "") -> None:
        if self.lines is not None:
            self.lines.append(f"{self.clock.now:10.3f} {what} {text}")

    def written(self, record: Record) -> None:
        """The journal has one more record."""
        self.checkers.recorded(record)
        if not isinstance(record, Change):
            return
        for view in record.views:
            self.checkers.founded(view, self.founders, [self.peers[view.members[it]].place for it in view.admitted])
        for admission in record.admissions:
            if not self.peers[admission.id].alive:
                # It died after it had answered the probe, or the first of all were admitted unseen.
                self.checkers.disturbed(admission.group)

    def judge_loss(self, loss: Notify) -> None:
        """A member was removed, and not by its own wish."""
        peer = self.peers[loss.peer]
        if peer.alive and peer.accepted and not self.faults.excuses(peer, loss.event):
            self.checkers.fail(f"a healthy peer was removed: {loss.text}")

    def judge_refusal(self, peer: SimPeer, text: str) -> None:
        """A synchronisation failed on `peer`: not for want of a way as long as there is one."""
        in_vain = "could not fetch the state" in text or "has no link" in text
        if in_vain and not self.faults.any_of(*HINDRANCES) and not self.faults.is_cut_off(peer):
            self.checkers.fail(f"a synchronisation failed although its members hang together: {text}")

    def run(self) -> list[str]:
        self.master.start()
        for index in range(self.clock.random.randint(2, 6)):
            self.clock.after(self.clock.random.uniform(0, 100), self.spawn, index % self.groups)
        self.faults.begin()
        self.clock.run(CHURN_MS, self._broken)
        if not self.checkers.violations:
            self._heal()
            if not self.clock.run(self.clock.now + HEAL_MS, self._satisfied):
                self.checkers.fail(self._unsatisfied())
            self.healed_after = self.clock.now - CHURN_MS
        return self.checkers.violations

    def _broken(self) -> bool:
        return bool(self.checkers.violations)

    # ------------------------------------------------------------------------------------------ peers

    def spawn(self, group: int) -> SimPeer:
        place = self._founding.randrange(4) if self.places else NO_PLACE
        peer = SimPeer(self, self.clock.random.randbytes(16), group, place)
        self.peers[peer.id] = peer
        self.faults.born(peer)
        self.trace("spawn", f"{peer.id.hex()[:8]} in group {group}")
        peer.begin()
        return peer

    def habits(self) -> Habits:
        """What a new program is like."""
        quiet = self.healed
        return Habits(
            mistake=0.1 if "mistake" in self.faults.kinds and not quiet else 0.0,
            drift=0.15 if "drift" in self.faults.kinds and not quiet else 0.0,
            pause_ms=self.pause_ms,
            optimize=self.groups == 1,
            shy=self.clock.random.random() < 0.2,
        )

    def patience_ms(self) -> int:
        """How long a new peer waits for others in a joint call, and for its admission."""
        if "impatience" not in self.faults.kinds or self.healed:
            return JOINT_TIMEOUT_MS
        return self.clock.random.choice([50, 100, 400])

    def crash(self, peer: SimPeer, silent: bool) -> None:
        """The process is gone. Its connections are reset, unless the machine went too (`silent`)."""
        if not peer.alive:
            return
        self.trace("crash", peer.id.hex()[:8])
        if peer.accepted:
            self.checkers.disturbed(peer.group)
        peer.kill()
        self.dead[peer.id] = True
        if not silent:
            self.break_control(peer)
            self.links.crashed(peer.id)

    # ------------------------------------------------------------------------------------------ control connections

    def connect(self, peer: SimPeer) -> Control:
        """A fresh control connection of `peer`. The router takes it when it has read the one before to its end."""
        self._generation += 1
        up = Wire(self.clock, peer, self.master, self.delay, peer.control.up if peer.control else None)
        return Control(up, Wire(self.clock, self.master, peer, self.delay), self._generation)

    def is_cut_off(self, peer: SimPeer) -> bool:
        """Whether its packets do not reach the master: it cannot connect."""
        return self.faults.cut_off(peer)

    def break_control(self, peer: SimPeer) -> None:
        """The connection is gone; both ends notice it on their own."""
        control = peer.control
        if control is None or not control.stands:
            return
        control.stands = False
        control.up.cut()
        control.down.cut()
        self.clock.after(self.clock.random.uniform(0, 15), self._router_notices, control)
        self.clock.after(self.clock.random.uniform(0, 15), peer.deliver, peer.cut_off, control)

    def _router_notices(self, control: Control) -> None:
        control.reachable = False
        self.master.deliver(self.master.closed, None)

    def restart_master(self) -> None:
        self.clock.after(self.clock.random.choice([5.0, 50.0, 500.0]), self.master.start)

    # ------------------------------------------------------------------------------------------ healing

    def _heal(self) -> None:
        """No more faults. The core must get somewhere; the rest is dead, or as good as dead."""
        self.trace("heal")
        self.healed = True
        self.faults.end()
        for peer in self.peers.values():
            peer.be_patient()
            peer.program.behave()
        alone = max(self.founders, 2 if self.min_world > 1 else 1)
        for group in range(self.groups):
            for _ in range(alone):
                self.spawn(group)
        for peer in self.peers.values():
            program = peer.program
            self._goal[peer.id] = (program.steps + STEPS_AFTER_HEAL, program.syncs + 1, program.votes + 1)

    def _behind(self) -> list[SimPeer]:
        """Peers of the core that have not yet done their steps, a synchronisation and a vote."""
        return [peer for peer in self.peers.values() if peer.alive and not peer.stopped and self._is_behind(peer)]

    def _is_behind(self, peer: SimPeer) -> bool:
        goal = self._goal.get(peer.id, (0, 0, 0))
        done = (peer.program.steps, peer.program.syncs, peer.program.votes)
        return any(have < wanted for have, wanted in zip(done, goal, strict=True))

    def _satisfied(self) -> bool:
        return bool(self.checkers.violations) or not self._behind()

    def _unsatisfied(self) -> str:
        waiting = [
            f"{peer.id.hex()[:8]} ({peer.program.doing}, epoch {peer.core.epoch}: {peer.core.explain()!r})"
            for peer in self._behind()
        ]
        master = self.master.core.explain() if self.master.core is not None else "is down"
        return f"no progress after healing: {'; '.join(waiting)}; master: {master!r}"


__all__ = ["LIMITS", "Kinds", "World"]
