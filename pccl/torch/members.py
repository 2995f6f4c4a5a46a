# SPDX-License-Identifier: MIT
"""A runtime whose members come and go: it gives the torch groups over it the members that there are now.

What for: `elastic.py` is what users call; this keeps the books. Must not know: models, states, steps.

The one idea: a group is remembered by the peers that are in it, not by ranks. So in any later view it is found again:
those of them that are left, in the order of that view; the default group is everybody.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch.distributed.distributed_c10d as c10d

from pccl.communicator import Communicator
from pccl.errors import CallMismatch, InvalidArgument, PeerLost
from pccl.master import MasterNode
from pccl.protocol.types import VoteKind
from pccl.torch.group import Group
from pccl.torch.options import Options
from pccl.torch.runtime import Rebind, Runtime, communicator

_EVERYBODY = "the default group of an elastic run"
"""The key of the default group: newcomers have had another history of groups."""


@dataclass(slots=True)
class _Bound:
    """`peers` None: everybody."""

    group: Group
    peers: tuple[str, ...] | None
    rebind: Rebind


class Meeting(NamedTuple):
    """`epoch` is the one that all members go on in, `before` the peers that were there before. `fresh`: this process
    has never been among them; it is a newcomer, or one of those that the run begins with."""

    epoch: int
    before: frozenset[str]
    fresh: bool


class ElasticRuntime(Runtime):
    """See the module. A newcomer's is one of its own, with a master of its own, until `meet` takes it to the others."""

    def __init__(
        self,
        world: tuple[int, ...],
        comm: Communicator,
        node: MasterNode | None,
        *,
        options: Options,
        timeout_s: float,
    ) -> None:
        super().__init__(world, comm, node)
        self._options, self._timeout_s = options, timeout_s
        self._fresh, self._outside = True, options.enters is not None
        self._bound: dict[str, _Bound] = {}
        self._guests: list[Callable[[int], bool]] = []
        self._epoch = comm.epoch
        self.known = self._peers()
        """The members, by rank, as of the last `renew`."""

    @property
    def epoch(self) -> int:
        """The one whose members the groups have."""
        return self._epoch

    def spans(self, ranks: tuple[int, ...]) -> bool:
        """Also with other members than at first: ranks are renumbered."""
        return not self._ended and set(ranks) <= set(self.world)

    def described(self, group: Group) -> Group:
        """The first group is the default one, of everybody."""
        group = super().described(group)
        return group if self._bound else replace(group, key=_EVERYBODY)

    def attach(self, group: Group, rebind: Rebind) -> None:
        peers = tuple(self.known[rank] for rank in group.ranks) if self._bound else None
        self._bound[group.name] = _Bound(group, peers, rebind)

    def release(self, name: str, *, abort: bool = False) -> None:
        self._bound.pop(name, None)
        super().release(name, abort=abort)

    def at_close(self, guest: Callable[[int], bool]) -> None:
        if guest not in self._guests:
            self._guests.append(guest)
        super().at_close(guest)

    def meet(self) -> Meeting:
        """Returns when all members have called it and newcomers are admitted."""
        before = frozenset(self.known)
        if not self._outside:
            fresh, self._fresh = self._fresh, False
            return Meeting(self.vote(), before, fresh)
        self._enter()
        return Meeting(self.comm._admitted, frozenset(self._peers()) - {self.comm.peer_id}, True)

    def vote(self) -> int:
        """Meets the others, however the last step ended: the epoch that all go on in. What was called since then, as
        wrappers and users do between steps, is settled first. Who comes late from a step that was lost finds others
        that have met already, and lost each other again: all of these try once more."""
        known = self._epoch
        while True:
            self._engine().release_tags(self.comm.epoch)
            try:
                if self._engine().pending():
                    with contextlib.suppress(PeerLost):
                        self.comm.commit()
                return self.comm._vote(VoteKind.UPDATE_TOPOLOGY).epoch
            except CallMismatch:
                if self.comm.epoch == known:
                    raise
                known = self.comm.epoch

    def renew(self, epoch: int) -> bool:
        """Gives all groups the members of that epoch, in which all have met. False: it has others by now, so all must
        meet again."""
        peers, own = self._peers(), self.comm.peer_id
        try:
            for bound in self._bound.values():
                left = peers if bound.peers is None else tuple(it for it in peers if it in bound.peers)
                ranks = tuple(peers.index(peer) for peer in left)
                scope = self.comm._scope_of(epoch, ranks)
                group = replace(bound.group, ranks=ranks, index=left.index(own), epoch=epoch, scope=scope)
                bound.rebind(self.engine_address, group)
                bound.group, bound.peers = group, None if bound.peers is None else left
                _renumber(group)
        except PeerLost:
            return False
        self.world, self.known, self._epoch = tuple(range(len(peers))), peers, epoch
        return True

    def _enter(self) -> None:
        """Leaves the run of its own for that of the others. Groups keep their backends, which get the new engine."""
        assert self._options.enters is not None
        comm = communicator(self._options.enters, self._timeout_s, self._options)
        comm.connect()
        old, node = self.comm, self._node
        self.comm, self._node, self._outside, self._fresh = comm, None, False, False
        for guest in self._guests:
            super().at_close(guest)

        def leave() -> None:
            old.close()
            if node is not None:
                node.destroy()

        threading.Thread(target=leave, name="pccl-leave", daemon=True).start()

    def _peers(self) -> tuple[str, ...]:
        return tuple(member.id.hex() for member in self.comm._view().members)


def _renumber(group: Group) -> None:
    """What torch's own tables say of it."""
    for made, name in list(c10d._world.pg_names.items()):
        if name == group.name:
            c10d._world.pg_group_ranks[made] = {rank: place for place, rank in enumerate(group.ranks)}


def elastic(runtime: Runtime | None) -> ElasticRuntime:
    """It, if it is one. Raises InvalidArgument."""
    if not isinstance(runtime, ElasticRuntime):
        raise InvalidArgument("the default group is not elastic: pass pg_options=pccl.torch.Options(elastic=True)")
    return runtime
