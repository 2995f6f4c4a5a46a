# SPDX-License-Identifier: MIT
"""The simulated world: one master, some peers, their wires, and the churn that a seed deals.

What for: the real cores, the real encoder, the real journal and the real shared-state election run against models of
all that is around them. Must not know: what is right (checkers.py).

The one idea: two phases. First faults of a random selection of kinds, during which only safety is checked; then
everything heals, and all live peers must make progress within a bounded virtual time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pccl.protocol.master import MasterProtocol
from pccl.protocol.types import Change, Record
from tests.sim.checkers import Checkers
from tests.sim.dataplane import Engine, PeerId
from tests.sim.network import Clock, Wire
from tests.sim.program import Content
from tests.sim.shells import JOINT_TIMEOUT_MS, Control, SimMaster, SimPeer

CHURN_MS = 3_500.0
HEAL_MS = 30_000.0
STEPS_AFTER_HEAL = 2

FAULTS = (
    "crash",
    "silent_crash",
    "leave",
    "pause",
    "slow",
    "control_break",
    "control_partition",
    "data_break",
    "data_partition",
    "data_dead",
    "master_crash",
    "master_pause",
    "newcomer_death",
    "mistake",
    "interrupt",
    "impatience",
)

PACE_MS = {"crash": (150.0, 900.0), "silent_crash": (150.0, 900.0), "leave": (150.0, 900.0), "interrupt": (0.0, 80.0)}
"""From one strike of a fault to the next: at least, and what comes to it on average."""

HARMLESS = ("master_crash", "master_pause", "newcomer_death")
"""Faults under which no operation may fail (G7, G12). A fifth of all seeds has no others."""


class World:
    """One run. `run()` returns the violations."""

    def __init__(
        self,
        seed: int,
        *,
        master_class: type[MasterProtocol] = MasterProtocol,
        engine_class: type[Engine] = Engine,
        faults: Sequence[str] | None = None,
        record: bool = False,
    ) -> None:
        self.clock = Clock(seed)
        self.checkers = Checkers()
        self.master_class, self.engine_class = master_class, engine_class
        rng = self.clock.random
        share = rng.choice([0.1, 0.3, 0.5])
        kinds = HARMLESS if rng.random() < 0.2 else FAULTS
        drawn = [fault for fault in kinds if rng.random() < share]
        self.faults = list(faults) if faults is not None else drawn
        self.master_fails = "master_crash" in self.faults or "master_pause" in self.faults
        self.groups = rng.choice([1, 1, 1, 2])
        self.mistake = 0.1 if "mistake" in self.faults else 0.0
        self.pause_ms = rng.choice([15.0, 40.0])
        self.delay = rng.choice([0.3, 1.0, 4.0])
        self.master = SimMaster(self)
        self.peers: dict[PeerId, SimPeer] = {}
        self.operations = self.aborts = 0
        self.lines: list[str] | None = [] if record else None
        self._healed = False
        self._wires: dict[tuple[PeerId, PeerId], Wire] = {}
        self._dead_links: dict[tuple[PeerId, PeerId], int] = {}
        self._unreachable: dict[tuple[PeerId, PeerId], bool] = {}
        self._generation = 0
        self._goal: dict[PeerId, int] = {}

    def trace(self, what: str, text: str = "") -> None:
        if self.lines is not None:
            self.lines.append(f"{self.clock.now:10.3f} {what} {text}")

    def written(self, record: Record) -> None:
        """The journal has one more record."""
        self.checkers.newcomers_need_a_vote(record)
        self.checkers.votes_agree(record)
        self.checkers.views_need_every_voice(record)
        for admission in record.admissions if isinstance(record, Change) else ():
            if not self.peers[admission.id].alive:
                # It died after it had answered the probe, or the first of all were admitted unseen.
                self.checkers.disturbed(admission.group)

    def run(self) -> list[str]:
        self.master.start()
        for index in range(self.clock.random.randint(2, 5)):
            self.clock.after(self.clock.random.uniform(0, 100), self.spawn, index % self.groups)
        for fault in self.faults:
            self._schedule(fault)
        self.clock.run(CHURN_MS, self._broken)
        if not self.checkers.violations:
            self._heal()
            if not self.clock.run(self.clock.now + HEAL_MS, self._satisfied):
                self.checkers.fail(self._unsatisfied())
        return self.checkers.violations

    def _broken(self) -> bool:
        return bool(self.checkers.violations)

    # ------------------------------------------------------------------------------------------ peers

    def spawn(self, group: int) -> None:
        peer = SimPeer(self, self.clock.random.randbytes(16), group)
        self.peers[peer.id] = peer
        if "slow" in self.faults and self.clock.random.random() < 0.3:
            peer.slowness = self.clock.random.choice([5.0, 20.0])
            self.checkers.disturbed(group)
        self.trace("spawn", f"{peer.id.hex()[:8]} in group {group}")
        peer.begin()

    def patience_ms(self) -> int:
        """How long a new peer waits for others in a joint call, and for its admission."""
        if "impatience" not in self.faults or self._healed:
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
        if silent:
            return
        if peer.control is not None:
            self.break_control(peer)
        for (source, target), wire in self._wires.items():
            if peer.id in (source, target):
                wire.cut()
        for other in self.peers.values():
            if other.alive and peer.id in other.engine.members and self.clock.random.random() < 0.8:
                other.later(self.clock.random.uniform(0, 20), self._reset, other, peer.id)

    def _reset(self, peer: SimPeer, lost: PeerId) -> None:
        peer.engine.link_broke(lost, peer.engine.epoch, "connection reset")

    # ------------------------------------------------------------------------------------------ control connections

    def dial(self, peer: SimPeer) -> None:
        self.clock.after(self.clock.random.uniform(1, 40), self._dialled, peer)

    def _dialled(self, peer: SimPeer) -> None:
        if not peer.alive:
            return
        if not self.master.alive:
            self.dial(peer)
            return
        self._generation += 1
        again = peer.control is not None
        control = Control(
            Wire(self.clock, peer, self.master, self.delay),
            Wire(self.clock, self.master, peer, self.delay),
            self._generation,
        )
        peer.deliver(peer.connected, control, again)

    def break_control(self, peer: SimPeer, at_once: bool = False) -> None:
        """The connection is gone; both ends notice it on their own."""
        control = peer.control
        if control is None or not control.stands:
            if at_once and control is not None:
                peer.cut_off(control)
            return
        control.stands = False
        control.up.cut()
        control.down.cut()
        self.clock.after(self.clock.random.uniform(0, 15), self._router_notices, control)
        if at_once:
            peer.cut_off(control)
        else:
            self.clock.after(self.clock.random.uniform(0, 15), peer.deliver, peer.cut_off, control)

    def _router_notices(self, control: Control) -> None:
        control.reachable = False
        self.master.deliver(self.master.closed, None)

    # ------------------------------------------------------------------------------------------ data links

    def transmit(self, source: SimPeer, target: PeerId, frame: tuple[Any, ...]) -> None:
        peer = self.peers[target]
        pair = (source.id, target)
        if pair in self._unreachable:
            source.later(5.0, self._link_noticed, source, target, frame[1])
            return
        if not peer.alive or frame[1] <= self._dead_links.get(pair, 0):
            return
        wire = self._wires.get(pair)
        if wire is None:
            wire = self._wires[pair] = Wire(self.clock, source, peer, self.delay)
        wire.send(peer_receives, (peer, source.id, frame))

    def break_link(self, one: SimPeer, other: SimPeer) -> None:
        epoch = max(one.engine.epoch, other.engine.epoch)
        for source, target in ((one, other), (other, one)):
            self._dead_links[source.id, target.id] = epoch
            wire = self._wires.get((source.id, target.id))
            if wire is not None:
                wire.cut()
            notice = self.clock.random.uniform(0, 30)
            self.clock.after(notice, source.deliver, self._link_noticed, source, target.id, epoch)

    def _link_noticed(self, peer: SimPeer, other: PeerId, epoch: int) -> None:
        if peer.engine.epoch <= epoch:
            peer.engine.link_broke(other, peer.engine.epoch, "link broke")

    # ------------------------------------------------------------------------------------------ faults

    def _schedule(self, fault: str) -> None:
        begin, mean = PACE_MS.get(fault, (150.0, 500.0))
        self.clock.after(begin + self.clock.random.expovariate(1 / mean), self._strike, fault)

    def _strike(self, fault: str) -> None:
        if not self._healed:
            getattr(self, "_fault_" + fault)()
            self._schedule(fault)

    def _pick(self) -> SimPeer | None:
        """A live accepted peer. Its group counts as disturbed from now on."""
        live = [peer for peer in self.peers.values() if peer.alive and peer.accepted]
        if not live:
            return None
        peer = self.clock.random.choice(live)
        self.checkers.disturbed(peer.group)
        return peer

    def _pair(self) -> tuple[SimPeer, SimPeer] | None:
        one = self._pick()
        if one is None:
            return None
        others = [self.peers[it] for it in one.engine.members if it != one.id and self.peers[it].alive]
        return (one, self.clock.random.choice(others)) if others else None

    def _fault_crash(self, silent: bool = False) -> None:
        peer = self._pick()
        if peer is not None:
            self.crash(peer, silent)
            if self.clock.random.random() < 0.7:
                self.clock.after(self.clock.random.uniform(1, 400), self.spawn, peer.group)

    def _fault_silent_crash(self) -> None:
        self._fault_crash(silent=True)

    def _fault_leave(self) -> None:
        peer = self._pick()
        if peer is not None:
            peer.deliver(peer._call, peer.core.leave, "enough")
            self.clock.after(self.clock.random.uniform(1, 400), self.spawn, peer.group)

    def _fault_pause(self) -> None:
        peer = self._pick()
        if peer is not None:
            peer.stop()
            self.clock.after(self.clock.random.choice([50.0, 400.0, 1_500.0]), peer.resume)

    def _fault_slow(self) -> None:
        """Peers are slow from their birth."""

    def _fault_control_break(self) -> None:
        peer = self._pick()
        if peer is not None:
            self.break_control(peer)

    def _fault_control_partition(self) -> None:
        peer = self._pick()
        if peer is None or peer.control is None or not peer.control.stands:
            return
        wire = self.clock.random.choice([peer.control.up, peer.control.down])
        wire.hold()
        self.clock.after(self.clock.random.choice([50.0, 400.0, 1_500.0]), wire.release)

    def _fault_data_break(self) -> None:
        pair = self._pair()
        if pair is not None:
            self.break_link(*pair)

    def _fault_data_partition(self) -> None:
        pair = self._pair()
        if pair is None:
            return
        wire = self._wires.get((pair[0].id, pair[1].id))
        if wire is not None:
            wire.hold()
            self.clock.after(self.clock.random.choice([50.0, 400.0, 1_500.0, 3_000.0]), wire.release)

    def _fault_data_dead(self) -> None:
        """Two members can never reach each other again: the group must not try for ever."""
        pair = self._pair()
        if pair is not None:
            one, other = pair
            self._unreachable[one.id, other.id] = self._unreachable[other.id, one.id] = True
            self.break_link(one, other)

    def _fault_master_crash(self) -> None:
        """Now, or within the next few outputs."""
        if not self.master.alive:
            return
        if self.clock.random.random() < 0.3:
            self.master.crash()
            self.restart_master()
        else:
            self.master.crash_in = self.clock.random.randint(1, 12)

    def restart_master(self) -> None:
        self.clock.after(self.clock.random.choice([5.0, 50.0, 500.0]), self.master.start)

    def _fault_master_pause(self) -> None:
        self.master.stop()
        self.clock.after(self.clock.random.choice([50.0, 400.0, 1_500.0]), self.master.resume)

    def _fault_newcomer_death(self) -> None:
        """A newcomer that dies somewhere between its first word and its acceptance."""
        group = self.clock.random.randrange(self.groups)
        self.spawn(group)
        newcomer = list(self.peers.values())[-1]
        self.clock.after(self.clock.random.uniform(0, 120), self.crash, newcomer, self.clock.random.random() < 0.3)

    def _fault_mistake(self) -> None:
        """The programs make them by themselves."""

    def _fault_interrupt(self) -> None:
        peer = self._pick()
        if peer is not None:
            peer.deliver(SimPeer.interrupt, peer)

    def _fault_impatience(self) -> None:
        """Peers are impatient from their birth."""

    # ------------------------------------------------------------------------------------------ healing

    def _heal(self) -> None:
        """No more faults; what is held is released, what is stopped goes on. Everybody alive must now get somewhere."""
        self.trace("heal")
        self._healed = True
        self.master.crash_in = None
        self.master.resume()
        for peer in self.peers.values():
            peer.be_patient()
            peer.program.mistake = 0.0
            peer.slowness = min(peer.slowness, 2.0)
            peer.resume()
            if peer.control is not None:
                peer.control.up.release()
                peer.control.down.release()
        for wire in self._wires.values():
            wire.release()
        if self.clock.random.random() < 0.5:
            self._unreachable.clear()
        for group in range(self.groups):
            self.spawn(group)
        self._goal = {peer.id: peer.program.steps + STEPS_AFTER_HEAL for peer in self.peers.values()}

    def _behind(self) -> list[SimPeer]:
        return [peer for peer in self.peers.values() if peer.alive and peer.program.steps < self._goal.get(peer.id, 0)]

    def _satisfied(self) -> bool:
        return bool(self.checkers.violations) or not self._behind()

    def _unsatisfied(self) -> str:
        waiting = [
            f"{peer.id.hex()[:8]} ({peer.program.doing}, epoch {peer.core.epoch}: {peer.core.explain()!r})"
            for peer in self._behind()
        ]
        master = self.master.core.explain() if self.master.core is not None else "is down"
        return f"no progress after healing: {'; '.join(waiting)}; master: {master!r}"


def peer_receives(item: tuple[SimPeer, PeerId, tuple[Any, ...]]) -> None:
    peer, source, frame = item
    peer.engine.receive(source, frame)


__all__ = ["Content", "SimMaster", "SimPeer", "World"]
