# SPDX-License-Identifier: MIT
"""The data links of the simulated world: one connection per pair of peers, dialled afresh after it broke.

What for: frames between engines, and everything that a network does to them: a reset, a cut in one direction or in
both, a slow link, an address that cannot be dialled. Must not know: epochs, what a frame says, which faults strike.

The one idea: a broken connection is noticed by each end on its own, or when the other end's next connection arrives.
Until then what an end sends goes nowhere. Whoever needs a connection that does not stand dials; who cannot waits for
the other end to dial, and doubts.
"""

from __future__ import annotations

from typing import Any, Protocol

from tests.sim.network import Clock, Node, Wire

PeerId = bytes
Frame = tuple[Any, ...]
Pair = tuple[PeerId, PeerId]
"""(source, target), or (dialler, dialled)."""

REFUSED_MS = 3.0
GIVEN_UP_MS = 60.0
"""What the data plane takes to doubt, and to give up, a member that refuses its connections."""
RESET_MS = 20.0
"""How long it takes at most until an end notices that its connection was reset by the end of the other process."""
CERTAIN_MS = 7.0
"""Who notices it so soon is on the same host, and has it from the kernel."""


class End(Protocol):
    """One peer's data plane."""

    def receive(self, source: PeerId, frame: Frame) -> None: ...
    def link_broke(self, peer: PeerId, text: str, died: bool = False) -> None: ...
    def link_doubted(self, peer: PeerId, text: str) -> None: ...
    def link_stands(self, peer: PeerId, epoch: int) -> None: ...


class Links:
    """All of them. `attach` makes a peer's end known; `silent` says that its machine is gone and resets nothing."""

    def __init__(self, clock: Clock, delay: float) -> None:
        self._clock, self._delay = clock, delay
        self._nodes: dict[PeerId, tuple[Node, End]] = {}
        self._wires: dict[Pair, Wire] = {}
        self._cuts: dict[Pair, bool] = {}
        self._forbidden: dict[Pair, bool] = {}
        self._slow: dict[Pair, float] = {}
        self._connection: dict[Pair, int] = {}  # by unordered pair: the number of the newest one
        self._seen: dict[Pair, int] = {}  # (who, other): the number of the one that this end uses
        self._standing: dict[Pair, bool] = {}  # by unordered pair
        self._held: dict[Pair, list[tuple[int, Frame]]] = {}  # (who, other): what waits for the other end to dial

    def attach(self, peer: PeerId, node: Node, end: End) -> None:
        self._nodes[peer] = (node, end)

    def transmit(self, source: PeerId, target: PeerId, frame: Frame) -> None:
        if self.is_refused(source, target):
            return
        number = self._number(source, target)
        if self._seen.get((source, target), 0) != number:
            return
        if self._make(source, target):
            self._wire(source, target).send(self._arrive, (source, target, number, frame))
        else:
            self._held.setdefault((source, target), []).append((number, frame))

    def dial(self, source: PeerId, target: PeerId, epoch: int) -> None:
        """`source` was asked to make the link, whatever the other end does."""
        if not self.is_refused(source, target) and self._make(source, target):
            self._after(source, REFUSED_MS, self._nodes[source][1].link_stands, target, epoch)

    def _make(self, source: PeerId, target: PeerId) -> bool:
        """Whether a connection stands, or `source` can make one."""
        pair = _unordered(source, target)
        if pair not in self._standing and (source, target) in self._forbidden:
            self._refuse(source, target)
            return False
        self._standing[pair] = True
        for one, other in (pair, pair[::-1]):
            for number, frame in self._held.pop((one, other), ()):
                if number == self._number(one, other) and self._nodes[one][0].alive:
                    self._wire(one, other).send(self._arrive, (one, other, number, frame))
        return True

    def is_refused(self, source: PeerId, target: PeerId) -> bool:
        """`source` needs the link for something else than frames: whether nobody takes its connection."""
        refused = self.is_dead(source, target) or not self._nodes[target][0].alive
        if refused:
            self._refuse(source, target)
        return refused

    def _arrive(self, item: tuple[PeerId, PeerId, int, Frame]) -> None:
        source, target, number, frame = item
        self._notice(target, source, number, "the peer dialled afresh")
        self._nodes[target][1].receive(source, frame)

    # ------------------------------------------------------------------------------------------ what happens to them

    def reset(self, one: PeerId, other: PeerId) -> None:
        """The connection between two peers is gone, with a tail of what was under way; both ends notice it some time.
        It is dialled afresh by whoever needs it."""
        number = self._connection[_unordered(one, other)] = self._number(one, other) + 1
        self._standing.pop(_unordered(one, other), None)
        for source, target in ((one, other), (other, one)):
            if (source, target) in self._wires:
                self._wires[source, target].cut()
                self._hold_if_cut(source, target)
            self._after(source, self._clock.random.uniform(0, 30), self._notice, source, target, number, "reset")

    def cut(self, source: PeerId, target: PeerId) -> None:
        """Nothing that `source` sends reaches `target`; no end is told. TCP delivers it when the cut is `mended`, if
        the connection is still the same."""
        self._cuts[source, target] = True
        self._hold_if_cut(source, target)

    def mend(self, source: PeerId, target: PeerId) -> None:
        if self._cuts.pop((source, target), False) and (source, target) in self._wires:
            self._wires[source, target].release()

    def forbid(self, dialler: PeerId, target: PeerId) -> None:
        """`dialler` cannot dial `target` from now on, and what stood is gone. A pair that is forbidden both ways is
        dead: no connection comes to stand."""
        self._forbidden[dialler, target] = True
        self.reset(dialler, target)

    def is_dead(self, one: PeerId, other: PeerId) -> bool:
        return (one, other) in self._forbidden and (other, one) in self._forbidden

    def is_cut(self, source: PeerId, target: PeerId) -> bool:
        """Whether nothing gets from `source` to `target` and back now."""
        return (source, target) in self._cuts or (target, source) in self._cuts

    def slow(self, source: PeerId, target: PeerId, factor: float) -> None:
        self._slow[source, target] = factor
        if (source, target) in self._wires:
            self._wires[source, target].slowness = factor

    def crashed(self, peer: PeerId) -> None:
        """The process is gone and its machine resets its connections. Who had none finds out by dialling."""
        for source, target in list(self._wires):
            if peer in (source, target):
                self._wires[source, target].cut()
                other = target if source == peer else source
                if self._nodes[other][0].alive and self._clock.random.random() < 0.9:
                    number, delay = self._number(peer, other) + 1, self._clock.random.uniform(0, RESET_MS)
                    self._after(other, delay, self._notice, other, peer, number, "reset", delay < CERTAIN_MS)

    def mend_all(self) -> None:
        """Every cut ends, no link is slow any more. Dead pairs stay dead."""
        for source, target in list(self._cuts):
            self.mend(source, target)
        for source, target in list(self._slow):
            self.slow(source, target, 1.0)
        self._slow.clear()

    def revive_all(self) -> None:
        """Everybody can dial everybody again."""
        self._forbidden.clear()

    # ------------------------------------------------------------------------------------------ inside

    def _wire(self, source: PeerId, target: PeerId) -> Wire:
        wire = self._wires.get((source, target))
        if wire is None:
            wire = Wire(self._clock, self._nodes[source][0], self._nodes[target][0], self._delay)
            wire.slowness = self._slow.get((source, target), 1.0)
            self._wires[source, target] = wire
            self._hold_if_cut(source, target)
        return wire

    def _hold_if_cut(self, source: PeerId, target: PeerId) -> None:
        if (source, target) in self._cuts and (source, target) in self._wires:
            self._wires[source, target].hold()

    def _number(self, one: PeerId, other: PeerId) -> int:
        return self._connection.get(_unordered(one, other), 0)

    def _notice(self, peer: PeerId, other: PeerId, number: int, text: str, died: bool = False) -> None:
        """This end learns that connections before `number` are gone, perhaps with the other end's process; once."""
        if self._seen.get((peer, other), 0) < number:
            self._seen[peer, other] = number
            self._nodes[peer][1].link_broke(other, text, died)

    def _refuse(self, source: PeerId, target: PeerId) -> None:
        """Nobody listens there: doubted at once, given up after a while."""
        if not self._nodes[target][0].alive and self._clock.random.random() < 0.5:
            return  # the machine is gone too: not even a refusal comes back
        end = self._nodes[source][1]
        self._after(source, REFUSED_MS, end.link_doubted, target, "connection refused")
        self._after(source, GIVEN_UP_MS, self._give_up, source, target)

    def _give_up(self, source: PeerId, target: PeerId) -> None:
        if _unordered(source, target) not in self._standing or not self._nodes[target][0].alive:
            self._held.pop((source, target), None)
            self._nodes[source][1].link_broke(target, "no connection")

    def _after(self, peer: PeerId, delay: float, action: Any, *arguments: Any) -> None:
        self._nodes[peer][0].later(delay, action, *arguments)


def _unordered(one: PeerId, other: PeerId) -> Pair:
    return (one, other) if one < other else (other, one)
