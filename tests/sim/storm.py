# SPDX-License-Identifier: MIT
"""A run of very many peers, all real cores, without faults but one: `python -m tests.sim.storm --peers 10000`.

What for: what the master's core costs at the size that the design aims at. Must not know: wires, time.

The one idea: what is common costs once. A message that goes to many peers is encoded and decoded once, so the time of
each act is the master's own, and that of the peers' cores, which in life is spread over the peers.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from pccl import messages
from pccl.errors import Status
from pccl.messages import Message, OperationName, ReportLine
from pccl.protocol.master import MasterProtocol
from pccl.protocol.peer import PeerProtocol
from pccl.protocol.state_master import MasterSync
from pccl.protocol.state_peer import PeerStateSync
from pccl.protocol.types import Freeze, MasterOutput, OpenDataPlane, PeerId, PeerOutput, Resolve, Send, Tell, VoteKind
from pccl.protocol.verdict import DATA_DONE
from tests.sim.content import FRESH

LINES = (ReportLine(7, 3, 3, DATA_DONE),)


@dataclass(frozen=True, slots=True)
class Act:
    """One thing that all peers did: seconds in the master's core, and how many messages it got and sent."""

    name: str
    master_s: float
    received: int
    sent: int


class Storm:
    """Everybody on one bench; messages are delivered at once, in order."""

    def __init__(self, count: int) -> None:
        draws = itertools.count(1)
        self.now = 0
        self.acts: list[Act] = []
        self.resolved = 0
        self.peers = {bytes([1]) + rank.to_bytes(15, "big"): rank for rank in range(count)}
        self.cores: dict[PeerId, PeerProtocol] = {}
        self.dead: dict[PeerId, bool] = {}
        self._queue: deque[tuple[PeerId, Message]] = deque()
        self._seconds = 0.0
        self._received = self._sent = 0
        self._decoded: tuple[object, Message | None] = (None, None)
        self._master = MasterProtocol(draw=lambda: next(draws), sync=MasterSync)
        self._do(lambda: self._master.start(0))

    def act(self, name: str, *steps: Callable[[PeerId], Sequence[PeerOutput]]) -> None:
        """Each live peer does each step, then everything settles."""
        self._seconds, self._received, self._sent = 0.0, 0, 0
        for step in steps:
            for peer in [it for it in self.peers if it not in self.dead]:
                self._perform(peer, step(peer))
            self._settle()
        self.acts.append(Act(name, self._seconds, self._received, self._sent))

    def begin(self, peer: PeerId) -> Sequence[PeerOutput]:
        """A newcomer's first word."""
        self.cores[peer] = PeerProtocol(peer, peer, 0, sync=PeerStateSync())
        return self.cores[peer].connect(self.now)

    def beat(self, peer: PeerId) -> Sequence[PeerOutput]:
        return self.cores[peer].timed_out(self.now)

    def vote(self, kind: VoteKind, call: int) -> Callable[[PeerId], Sequence[PeerOutput]]:
        offer = messages.StateOffer(0, 0, FRESH.entries())
        body = messages.encode(offer) if kind is VoteKind.SYNC_SHARED_STATE else b""
        return lambda peer: self.cores[peer].vote(kind, call, body, 0, self.now) if self.cores[peer].epoch else ()

    def lose(self, *lost: PeerId) -> Callable[[PeerId], Sequence[PeerOutput]]:
        """They die, and each engine finds out about one of them."""
        self.dead.update(dict.fromkeys(lost, True))
        places = {peer: place for place, peer in enumerate(it for it in self.peers if it not in self.dead)}
        return lambda peer: self.cores[peer].engine_frozen(
            self.cores[peer].epoch,
            lost[places[peer] % len(lost)],
            int(Status.PEER_LOST),
            "reset",
            LINES,
            self.now,
        )

    def stalled(self, peer: PeerId) -> Sequence[PeerOutput]:
        return self.cores[peer].engine_stalled(self.cores[peer].epoch, OperationName(7, 4), 100, (0,), self.now)

    def members(self) -> list[int]:
        """How many each survivor sees, without repetition."""
        views = [core.view for peer, core in self.cores.items() if peer not in self.dead]
        return list({len(view.members) if view else 0: True for view in views})

    def _settle(self) -> None:
        while self._queue:
            peer, message = self._queue.popleft()
            self._received += 1
            self._do(partial(self._master.received, peer, message, self.now))

    def _do(self, event: Callable[[], list[MasterOutput]]) -> None:
        begun = time.perf_counter()
        outputs = event()
        self._seconds += time.perf_counter() - begun
        for output in outputs:
            if isinstance(output, Send):
                self._send(output)

    def _send(self, output: Send) -> None:
        self._sent += 1
        if output.peer in self.dead:
            self._do(lambda: self._master.disconnected(output.peer, self.now))
            return
        if self._decoded[0] is not output.message:
            self._decoded = (output.message, messages.decode(messages.encode(output.message)))
        message = self._decoded[1]
        assert message is not None
        self._perform(output.peer, self.cores[output.peer].received(message, self.now))

    def _perform(self, peer: PeerId, outputs: Sequence[PeerOutput]) -> None:
        core = self.cores[peer]
        for output in outputs:
            if isinstance(output, Tell):
                self._queue.append((peer, output.message))
            elif isinstance(output, OpenDataPlane):
                self._perform(peer, core.opened("10.0.0.1", 1, 1 + self.peers[peer] // 8, 4, self.now))
            elif isinstance(output, Freeze):
                self._perform(peer, core.engine_frozen(output.epoch, b"", 0, "", LINES, self.now))
            elif isinstance(output, Resolve):
                self.resolved += 1


def storm(count: int) -> Storm:
    """All of `count` peers join, beat, vote, wait, synchronise, and lose one of them, then half of the others."""
    it = Storm(count)
    it.act("join", it.begin)
    it.act("admit", it.vote(VoteKind.UPDATE_TOPOLOGY, 1))
    it.now += 1_000
    it.act("heartbeat", it.beat)
    it.act("are_peers_pending", it.vote(VoteKind.ARE_PEERS_PENDING, 2))
    it.act("sync_shared_state", it.vote(VoteKind.SYNC_SHARED_STATE, 3))
    it.act("stall", it.stalled)
    first, *others = it.peers
    it.act("loss of one", it.lose(first))
    it.act("loss of half", it.lose(*others[1::2]))
    return it


def main() -> int:
    parser = argparse.ArgumentParser(description="what very many peers cost the master's core")
    parser.add_argument("--peers", type=int, default=10_000)
    arguments = parser.parse_args()
    it = storm(arguments.peers)
    print(f"{'':20}{'master':>10}{'received':>10}{'sent':>10}")
    for act in it.acts:
        print(f"{act.name:20}{act.master_s:8.2f} s{act.received:10}{act.sent:10}")
    print(f"members in the last view: {it.members()}")
    return 0 if it.members() == [arguments.peers - len(it.dead)] else 1


if __name__ == "__main__":
    sys.exit(main())
