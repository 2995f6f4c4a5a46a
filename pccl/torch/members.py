# SPDX-License-Identifier: MIT
"""A runtime whose members come and go: it gives the torch groups over it the members that there are now.

What for: `elastic.py` is what users call; this keeps the books. Must not know: models, states, steps.

The one idea: a group is remembered by the peers that are in it, not by ranks. So in any later view it is found again:
those of them that are left, in the order of that view; the default group is everybody.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch.distributed.distributed_c10d as c10d

from pccl.communicator import Communicator
from pccl.errors import InvalidArgument
from pccl.master import MasterNode
from pccl.torch.group import Group, tag_of
from pccl.torch.options import Options
from pccl.torch.runtime import Rebind, Runtime, communicator

_EVERYBODY = "the default group of an elastic run"
"""What tags of the default group are made of: newcomers have had another history of groups."""


@dataclass(slots=True)
class _Bound:
    """`peers` None: everybody."""

    group: Group
    peers: tuple[str, ...] | None
    rebind: Rebind


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
        self._fresh = True
        self._bound: dict[str, _Bound] = {}
        self._guests: list[Callable[[int], bool]] = []
        self._epoch = comm.epoch
        self.known = self._peers()
        """The members, by rank, as of the last `renew`."""

    def spans(self, ranks: tuple[int, ...]) -> bool:
        """Also with other members than at first: ranks are renumbered."""
        return not self._ended and set(ranks) <= set(self.world)

    def described(self, group: Group) -> Group:
        """The first group is the default one, of everybody."""
        group = super().described(group)
        return group if self._bound else replace(group, tag=tag_of(_EVERYBODY))

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

    def meet(self) -> tuple[bool, frozenset[str]]:
        """Returns when all members have called it and newcomers are admitted. First, whether this process has never
        been among them: a newcomer, or one of those that the run begins with. Then the peers that were there before."""
        fresh, self._fresh = self._fresh, False
        before = frozenset(self.known)
        if fresh and self._options.enters is not None:
            self._enter(self._options.enters)
            before = frozenset(self.known) - {self.comm.peer_id}
        elif not fresh:
            self._engine().release_tags(self.comm.epoch)
            self.comm.update_topology()
        return fresh, before

    def renew(self) -> bool:
        """Gives all groups the members of the present view. False if it is the one that they have. Raises
        InvalidArgument when a group was left without its own rank, which cannot be."""
        while self.comm.epoch != self._epoch:
            epoch, peers = self.comm.epoch, self._peers()
            if epoch != self.comm.epoch:
                continue
            own = self.comm.rank
            for bound in self._bound.values():
                left = [peer for peer in bound.peers if peer in peers] if bound.peers is not None else peers
                ranks = tuple(sorted(peers.index(peer) for peer in left))
                scope = self.comm._scope_of(epoch, ranks)
                group = replace(bound.group, ranks=ranks, index=ranks.index(own), epoch=epoch, scope=scope)
                bound.rebind(self.engine_address, group)
                bound.group = group
                bound.peers = None if bound.peers is None else tuple(left)
                _renumber(group)
            self.world, self.known, self._epoch = tuple(range(len(peers))), peers, epoch
            return True
        return False

    def _enter(self, master: str) -> None:
        """Leaves the run of its own for that of the others. Groups keep their backends, which get the new engine."""
        comm = communicator(master, self._timeout_s, self._options)
        comm.connect()
        old, node = self.comm, self._node
        self.comm, self._node, self._epoch = comm, None, 0
        for guest in self._guests:
            super().at_close(guest)
        self.renew()

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
