# SPDX-License-Identifier: MIT
"""What goes wrong in a simulated world, and when.

What for: one method per kind of fault. Must not know: what the cores do about it, what is right.

The one idea: a seed switches some kinds wholly off (swarm testing). What is on strikes at random times, or aims: it
waits for a moment at which the cores are in the middle of something (a freeze, a vote, a fetch), and strikes just then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from pccl import messages
from pccl.messages import PROTOCOL_VERSION, Heartbeat, Hello, Leave
from pccl.protocol.topology import components
from pccl.protocol.types import Event
from tests.sim.links import PeerId
from tests.sim.master import AFTER, BEFORE, LIMITS, TORN

if TYPE_CHECKING:
    from tests.sim.peer import SimPeer
    from tests.sim.world import World

FAULTS = (
    "crash",
    "silent_crash",
    "burst",
    "leave",
    "pause",
    "slow",
    "slow_link",
    "control_break",
    "control_cut",
    "overflow",
    "data_break",
    "data_cut",
    "data_dead",
    "isolation",
    "split",
    "master_crash",
    "journal_crash",
    "master_pause",
    "newcomer_death",
    "join_storm",
    "clone",
    "donor_death",
    "drift",
    "mistake",
    "interrupt",
    "impatience",
    "aim",
)

PACE_MS = {
    "crash": (150.0, 900.0),
    "silent_crash": (150.0, 900.0),
    "burst": (300.0, 1_500.0),
    "leave": (150.0, 900.0),
    "interrupt": (0.0, 80.0),
    "join_storm": (100.0, 1_000.0),
}
"""From one strike of a fault to the next: at least, and what comes to it on average."""

PASSIVE = ("slow", "drift", "mistake", "impatience", "aim", "donor_death", "journal_crash")
"""They do not strike by themselves: they are a property of peers, or wait for what peers do."""

HARMLESS = ("master_crash", "master_pause", "journal_crash", "newcomer_death", "join_storm", "clone", "aim")
"""Faults under which no operation may fail (G7, G12). A fifth of all seeds has no others."""

HINDRANCES = (
    *("silent_crash", "burst", "donor_death", "pause", "slow", "slow_link", "control_cut", "overflow", "data_cut"),
    *("isolation", "split", "master_crash", "journal_crash", "master_pause", "clone"),
)
"""Faults under which a fetch may last longer than its patience, whatever the master does."""

MOMENTS = (
    Event.SUSPECTED.value,
    Event.FROZEN.value,
    Event.VIEW.value,
    Event.VOTE.value,
    Event.REGISTERED.value,
    "froze",
    "fetch",
)
"""What an aimed fault waits for."""

FOR_A_WHILE = (50.0, 400.0, 1_500.0)
AIM_MS = 500.0
BACK_MS = 300.0
"""Ample time to notice that the control connection broke, and to be back."""

GRACE_MS = 2.0 * LIMITS.heartbeat_limit_ms
"""After its own trouble a peer may still be removed for so long: the master may have begun to doubt it before."""


class Faults:
    """The faults of one world; `kinds` are those that are on."""

    def __init__(self, world: World, kinds: Sequence[str]) -> None:
        self.kinds = dict.fromkeys(kinds, True)
        self._world, self._clock = world, world.clock
        self._armed: dict[str, list[Callable[[], None]]] = {}
        self._excused: dict[PeerId, float] = {}
        self._suspected: dict[PeerId, float] = {}
        self._cut_off: dict[PeerId, bool] = {}
        self._over = False

    def any_of(self, *kinds: str) -> bool:
        return any(kind in self.kinds for kind in kinds)

    def begin(self) -> None:
        if "journal_crash" in self.kinds:
            share = self._clock.random.choice([0.02, 0.1])
            self._world.master.crash_at_write = lambda number: self._fate(share)
        for kind in self.kinds:
            if kind not in PASSIVE:
                self._schedule(kind)

    def _fate(self, share: float) -> str | None:
        """Whether the master dies in its next append."""
        random = self._clock.random
        return random.choice([BEFORE, TORN, AFTER]) if random.random() < share else None

    # ------------------------------------------------------------------------------------------ when

    def _schedule(self, kind: str) -> None:
        begin, mean = PACE_MS.get(kind, (150.0, 500.0))
        self._clock.after(begin + self._clock.random.expovariate(1 / mean), self._strike, kind)

    def _strike(self, kind: str) -> None:
        if self._over:
            return
        strike: Callable[[], None] = getattr(self, "_" + kind)
        if "aim" in self.kinds and self._clock.random.random() < 0.5:
            self._aim(strike)
        else:
            strike()
        self._schedule(kind)

    def _aim(self, strike: Callable[[], None]) -> None:
        """Waits for a moment, but not for ever."""
        armed = self._armed.setdefault(self._clock.random.choice(MOMENTS), [])
        armed.append(strike)
        self._clock.after(AIM_MS, self._release, armed, strike)

    def _release(self, armed: list[Callable[[], None]], strike: Callable[[], None]) -> None:
        if strike in armed:
            armed.remove(strike)
            self._unless_over(strike)

    def moment(self, name: str) -> None:
        """Something of that name happens right now."""
        armed = self._armed.get(name)
        if armed:
            self._clock.after(self._clock.random.choice([0.0, 0.5, 3.0, 10.0]), self._unless_over, armed.pop())
        if name == "fetch" and "donor_death" in self.kinds and self._clock.random.random() < 0.4:
            self._clock.after(self._clock.random.uniform(0, 25), self._unless_over, self._donor_death)

    def _unless_over(self, strike: Callable[[], None]) -> None:
        if not self._over:
            strike()

    def born(self, peer: SimPeer) -> None:
        """A new peer, perhaps with a property."""
        if "slow" in self.kinds and not self._over and self._clock.random.random() < 0.3:
            peer.slowness = self._clock.random.choice([5.0, 20.0])
            self._excused[peer.id] = float("inf")
            self._world.checkers.disturbed(peer.group)

    # ------------------------------------------------------------------------------------------ whom

    def _pick(self) -> SimPeer | None:
        """A live accepted peer. Its group counts as disturbed from now on."""
        live = [peer for peer in self._world.peers.values() if peer.alive and peer.accepted]
        if not live:
            return None
        peer = self._clock.random.choice(live)
        self._world.checkers.disturbed(peer.group)
        return peer

    def _pair(self) -> tuple[SimPeer, SimPeer] | None:
        one = self._pick()
        if one is None:
            return None
        peers = self._world.peers
        others = [peers[it] for it in one.engine.members if it != one.id and peers[it].alive]
        return (one, self._clock.random.choice(others)) if others else None

    def _a_while(self) -> float:
        return self._clock.random.choice(FOR_A_WHILE)

    def excuse(self, peer: SimPeer, duration: float = 0.0, grace: float = GRACE_MS) -> None:
        """`peer` is in trouble for so long: it may be removed."""
        until = self._clock.now + duration + grace * peer.slowness
        self._excused[peer.id] = max(self._excused.get(peer.id, 0.0), until)

    def excuses(self, peer: SimPeer, event: Event) -> bool:
        """Whether a removal of `peer` is in order now. Who lost a link for good may be suspected, and taken for lost if
        the master does not reach it just then; but it is no reason to expel it, unless it is cut off."""
        until = self._excused.get(peer.id, 0.0)
        if event is Event.LOST:
            until = max(until, self._suspected.get(peer.id, 0.0))
        return self._clock.now < until or self.is_cut_off(peer)

    def is_cut_off(self, peer: SimPeer) -> bool:
        """Whether dead links have left it, and perhaps others, without a way to those who stay."""
        core, links = self._world.master.core, self._world.links
        group = core._roster.groups.get(peer.group) if core is not None else None
        members = [it for it in (group.members if group is not None else []) if it != peer.id] + [peer.id]
        pairs = [(a, b) for a in range(len(members)) for b in range(a) if links.is_dead(members[a], members[b])]
        return len(components(len(members), pairs)) > 1

    # ------------------------------------------------------------------------------------------ processes

    def _crash(self, silent: bool = False) -> None:
        peer = self._pick()
        if peer is not None:
            self._world.crash(peer, silent)
            self._perhaps_return(peer.group)

    def _perhaps_return(self, group: int) -> None:
        if self._clock.random.random() < 0.7:
            self._clock.after(self._clock.random.uniform(1, 400), self._world.spawn, group)

    def _silent_crash(self) -> None:
        self._crash(silent=True)

    def _burst(self) -> None:
        """Several at once, up to all of them."""
        for _ in range(self._clock.random.choice([2, 2, 3, 9])):
            delay = self._clock.random.choice([0.0, 1.0, 15.0])
            self._clock.after(delay, self._unless_over, self._silent_crash if delay else self._crash)

    def _donor_death(self) -> None:
        self._crash(silent=self._clock.random.random() < 0.3)

    def _leave(self) -> None:
        peer = self._pick()
        if peer is not None:
            peer.deliver(peer.leave)
            self._clock.after(self._clock.random.uniform(1, 400), self._world.spawn, peer.group)

    def _pause(self) -> None:
        peer = self._pick()
        if peer is not None:
            duration = self._a_while()
            self.excuse(peer, duration)
            peer.stop()
            self._clock.after(duration, peer.resume)

    def _newcomer_death(self) -> None:
        """A newcomer that dies somewhere between its first word and its acceptance."""
        newcomer = self._world.spawn(self._clock.random.randrange(self._world.groups))
        silent = self._clock.random.random() < 0.3
        self._clock.after(self._clock.random.uniform(0, 120), self._world.crash, newcomer, silent)

    def _join_storm(self) -> None:
        """Some at once, up to a total that does not stifle the run."""
        alive = sum(peer.alive for peer in self._world.peers.values())
        for _ in range(min(self._clock.random.randint(2, 5), 10 - alive)):
            self._world.spawn(self._clock.random.randrange(self._world.groups))

    def _interrupt(self) -> None:
        peer = self._pick()
        if peer is not None:
            peer.deliver(peer.interrupt)

    # ------------------------------------------------------------------------------------------ the control plane

    def _control_break(self) -> None:
        peer = self._pick()
        if peer is not None:
            self.excuse(peer, grace=BACK_MS)
            self._world.break_control(peer)

    def _control_cut(self) -> None:
        """Packets of one direction, or of both, get lost between a peer and the master."""
        peer = self._pick()
        if peer is None:
            return
        duration = self._a_while()
        up, down = self._clock.random.choice([(True, False), (False, True), (True, True)])
        self.cut_control(peer, up, down)
        self._clock.after(duration, self.mend_control, peer)
        self.excuse(peer, duration)

    def cut_control(self, peer: SimPeer, up: bool = True, down: bool = True) -> None:
        """The control plane alone. A connection that is made anew is cut as well."""
        self._cut_off[peer.id] = True
        if peer.control is not None:
            if up:
                peer.control.up.hold()
            if down:
                peer.control.down.hold()

    def mend_control(self, peer: SimPeer) -> None:
        self._cut_off.pop(peer.id, None)
        if peer.control is not None:
            peer.control.up.release()
            peer.control.down.release()

    def cut_off(self, peer: SimPeer) -> bool:
        return peer.id in self._cut_off

    def _overflow(self) -> None:
        """The router's queue for one peer is full for a moment: what is sent to it is refused."""
        peer = self._pick()
        if peer is not None:
            duration = self._clock.random.choice([1.0, 20.0, 200.0])
            self.excuse(peer, duration)
            self._world.master.full[peer.id] = True
            self._clock.after(duration, self._world.master.full.pop, peer.id, None)

    def _clone(self) -> None:
        """Another process comes under the id of a living peer: a copied machine, or an impostor. The router hands the
        connection over to it, so the first one has to dial afresh."""
        live = [peer for peer in self._world.peers.values() if peer.alive and peer.control is not None]
        if not live or not self._world.master.alive or self._world.master.stopped:
            return
        peer = self._clock.random.choice(live)
        assert peer.control is not None
        if not peer.control.stands or peer.id in self._cut_off:
            return
        peer.control.usurped = True
        self.excuse(peer)
        hello = Hello(PROTOCOL_VERSION, self._clock.random.randbytes(16), peer.group, peer.core.epoch)
        words = (hello, self._clock.random.choice([Leave(""), Heartbeat(peer.core.epoch)]))
        for word in words:
            self._world.master.deliver(self._world.master.heard, (peer.id, messages.encode(word)))
        self._world.break_control(peer)

    # ------------------------------------------------------------------------------------------ the data plane

    def _data_break(self) -> None:
        pair = self._pair()
        if pair is not None:
            self._reset(*pair)

    def _reset(self, one: SimPeer, other: SimPeer) -> None:
        self._world.links.reset(one.id, other.id)

    def _data_cut(self) -> None:
        """Packets get lost between two peers for a while, in one direction or in both."""
        pair = self._pair()
        if pair is not None:
            both = self._clock.random.random() < 0.5
            duration = self._clock.random.choice([*FOR_A_WHILE, 3_000.0])
            self._cut_for(pair[0].id, pair[1].id, duration)
            if both:
                self._cut_for(pair[1].id, pair[0].id, duration)

    def _cut_for(self, source: PeerId, target: PeerId, duration: float) -> None:
        self._world.links.cut(source, target)
        self._clock.after(duration, self._world.links.mend, source, target)

    def _slow_link(self) -> None:
        pair = self._pair()
        if pair is not None:
            factor = self._clock.random.choice([5.0, 50.0])
            self._world.links.slow(pair[0].id, pair[1].id, factor)

    def _data_dead(self) -> None:
        """One member can never dial another again, or neither of them the other: the group must do without."""
        pair = self._pair()
        if pair is None:
            return
        one, other = pair
        for peer in pair:
            self._suspected[peer.id] = self._clock.now + 2 * GRACE_MS * peer.slowness
        self._world.links.forbid(one.id, other.id)
        if self._clock.random.random() < 0.7:
            self._world.links.forbid(other.id, one.id)

    # ------------------------------------------------------------------------------------------ both planes

    def _isolation(self) -> None:
        """Somebody pulls a cable."""
        peer = self._pick()
        if peer is not None:
            duration = self._a_while()
            self.excuse(peer, duration)
            self.cut_control(peer)
            self._clock.after(duration, self.mend_control, peer)
            for other in peer.engine.members:
                if other != peer.id:
                    self._cut_for(peer.id, other, duration)
                    self._cut_for(other, peer.id, duration)

    def _split(self) -> None:
        """The network falls into two parts; the master is in one of them."""
        live = [peer for peer in self._world.peers.values() if peer.alive and peer.accepted]
        duration = self._a_while()
        away = [peer for peer in live if self._clock.random.random() < 0.5]
        for peer in live:
            self._world.checkers.disturbed(peer.group)
        for peer in away:
            self.excuse(peer, duration)
            self.cut_control(peer)
            self._clock.after(duration, self.mend_control, peer)
            for other in live:
                if other not in away:
                    self._cut_for(peer.id, other.id, duration)
                    self._cut_for(other.id, peer.id, duration)

    # ------------------------------------------------------------------------------------------ the master

    def _master_crash(self) -> None:
        """Now, or within the next few outputs."""
        master = self._world.master
        if not master.alive:
            return
        if self._clock.random.random() < 0.3:
            master.crash()
            self._world.restart_master()
        else:
            master.crash_in = self._clock.random.randint(1, 12)

    def _master_pause(self) -> None:
        self._world.master.stop()
        self._clock.after(self._a_while(), self._world.master.resume)

    # ------------------------------------------------------------------------------------------ the end

    def end(self) -> None:
        """Heals the core. Who is not of it dies, or stays stopped and cut off for good."""
        self._over = True
        world, random = self._world, self._clock.random
        world.master.crash_in = None
        world.master.crash_at_write = lambda number: None
        world.master.full.clear()
        world.master.resume()
        world.links.mend_all()
        if random.random() < 0.5:
            for peer in [it for it in world.peers.values() if self.is_cut_off(it)]:
                self.excuse(peer)  # the master knows by now how dead the link was
            world.links.revive_all()
        loses_some = random.random() < 0.5
        for peer in world.peers.values():
            peer.slowness = min(peer.slowness, 2.0)
            if loses_some and peer.alive and random.random() < 0.4:
                self._bury(peer)
            else:
                peer.resume()
                self.mend_control(peer)

    def _bury(self, peer: SimPeer) -> None:
        self._world.checkers.disturbed(peer.group)
        self._excused[peer.id] = float("inf")
        if self._clock.random.random() < 0.5:
            self._world.crash(peer, silent=self._clock.random.random() < 0.5)
            return
        peer.stop()
        self.cut_control(peer)
