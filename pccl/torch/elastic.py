# SPDX-License-Identifier: MIT
"""Torch groups that outlive the loss of ranks, and take in new ones.

    dist.init_process_group("pccl", pg_options=pccl.torch.Options(elastic=True))      # newcomers: pccl.torch.join(...)
    model = DistributedDataParallel(net, init_sync=False)
    state = pccl.torch.State(net=net, optimizer=optimizer, step=0)
    while state.step < steps:
        try:
            with pccl.torch.step(state, model):
                loss(model(inputs), targets).backward()
        except pccl.torch.RankLost:
            continue                                    # the others see the same: repeat the step
        optimizer.step()
        optimizer.zero_grad()
        state.step += 1

The one idea: between two steps all ranks meet (`reconfigure`). There newcomers are admitted, the groups that exist are
given the members of now, and who came new fetches the state. Within a step nothing changes: an operation of other
members than those that the group has fails, on all ranks, and the commit at the step's end tells all of them the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
from torch import nn
from torch.distributed import HashStore  # type: ignore[attr-defined]

from pccl.errors import CallMismatch, InvalidArgument, PCCLError, PeerLost, Status
from pccl.torch import errors, wrappers
from pccl.torch.members import ElasticRuntime, Meeting, elastic
from pccl.torch.options import Options
from pccl.torch.runtime import runtime_of
from pccl.torch.state import State

if TYPE_CHECKING:  # it needs groups, which need this
    from pccl.torch.hooks import Compression

_LOST = (Status.PEER_LOST, Status.TIMEOUT)
"""Ends of an epoch after which the same step can be made again by those who are left."""


class RankLost(PeerLost):
    """The step was lost on all ranks, as one of them was: call `reconfigure` and repeat it."""


class Change(NamedTuple):
    """What `reconfigure` found. It is true if anything is not as it was: then `rebuild` what wraps a model."""

    changed: bool
    rank: int
    world_size: int
    joined: tuple[int, ...]
    """Ranks of those who came new; a newcomer knows of itself only."""
    synchronised: bool

    def __bool__(self) -> bool:
        return self.changed


def join(master: str, options: Options | None = None) -> None:
    """Makes torch's default group of this process alone, which becomes one of a run's at its first `reconfigure`.

    `master` is the HOST:PORT of the run. So models and their wrappers can be made before the others wait for this
    process: DistributedDataParallel with `init_sync=False`, as the state comes later. Raises what
    `init_process_group` raises.
    """
    chosen = options or Options()
    dist.init_process_group("pccl", store=HashStore(), rank=0, world_size=1, pg_options=chosen.newcomer(master))


def reconfigure(state: State | None = None) -> Change:
    """Meets all ranks of the elastic run; call it between steps, on all of them.

    Admits who waits to join, gives every pccl group of this process the members that there are now, and brings `state`
    to those who came new (or, at the first call, to all: the state of the lowest rank, if none is more frequent).
    Afterwards `dist.get_rank` and `get_world_size` tell the new numbers: who stays keeps its order, who came new stands
    behind. The default group has all members; another one those of its own that are left.

    A newcomer joins the run here, which takes as long as the others need to come here. Blocks until all have called.
    Operations that no `commit` settled are settled here. Raises what `Communicator.update_topology` and
    `sync_shared_state` raise.
    """
    runtime = _runtime()
    before = runtime.epoch
    meeting = runtime.meet()
    epoch, synchronised = meeting.epoch, False
    while not runtime.renew(epoch):
        epoch = runtime.vote()
    newcomers = _ranks(runtime, meeting)
    while state is not None and (meeting.fresh or newcomers) and not synchronised:
        try:
            agreed = _synchronise(runtime, state, fresh=meeting.fresh)
            synchronised = agreed == epoch or runtime.renew(agreed)
        except (PeerLost, CallMismatch):
            if runtime.comm.epoch == epoch:
                raise
        while not synchronised and not runtime.renew(epoch := runtime.vote()):
            pass
        newcomers = _ranks(runtime, meeting)
    changed = meeting.fresh or runtime.epoch != before
    return Change(changed, dist.get_rank(), dist.get_world_size(), newcomers, synchronised)


def meet(members: int, place: int) -> None:
    """What `torch.distributed._reconfigure` (from torch 2.14 on) asks for: so many members, of which we are to be that
    one, or (-1) any. Who they are is the membership's answer, so what does not fit it is refused, once all have met."""
    change = reconfigure()
    if change.world_size != members:
        raise InvalidArgument(f"{members} handles were given, but there are {change.world_size} members")
    if place not in (-1, change.rank):
        raise InvalidArgument(
            f"this is rank {change.rank}, but its handle was given as that of rank {place}: the membership numbers "
            "ranks, so pass a set"
        )


def _ranks(runtime: ElasticRuntime, meeting: Meeting) -> tuple[int, ...]:
    """Those of newcomers."""
    return tuple(rank for rank, peer in enumerate(runtime.known) if peer not in meeting.before)


def commit() -> None:
    """Ends a step: returns when all operations since the last commit have succeeded on every rank, else raises RankLost
    on every rank. Then `reconfigure`, and repeat the step."""
    comm = _runtime().comm
    try:
        comm.commit()
    except PCCLError as failure:
        raise _typed(failure) from failure


@contextlib.contextmanager
def step(state: State | None = None, *models: nn.Module, feedback: Sequence[Compression] = ()) -> Iterator[Change]:
    """One step: `reconfigure`s, rebuilds `models` if that changed anything, runs the block, and commits. What a lost
    rank brought, in whatever form it came out of torch, is raised as RankLost. What the hooks in `feedback` have kept
    of the step for later ones is taken back if it does not end well."""
    change = reconfigure(state)
    for model in models if change else ():
        rebuild(model)
    try:
        yield change
        commit()
    except BaseException as failure:
        for hook in feedback:
            hook.undo()
        found = errors.cause(failure)
        if found is None or found.status not in _LOST or isinstance(failure, RankLost):
            raise
        raise _typed(found) from failure
    for hook in feedback:
        hook.settle()


def rebuild(model: nn.Module) -> None:
    """Makes a wrapped model fit the members of now, after a `reconfigure` that changed something: forgets gradients,
    and what an interrupted backward pass has left. Call it on all ranks, newcomers too, so that all begin alike.

    For DistributedDataParallel, and for FSDP2 whose shards are all there: HSDP that lost another replica. Raises
    Unsupported where a shard is gone, which no other rank has."""
    wrappers.rebuild(model)


def _typed(failure: PCCLError) -> PCCLError:
    if failure.status not in _LOST:
        return failure
    lost = RankLost(str(failure))
    lost.epoch = failure.epoch
    return lost


def _synchronise(runtime: ElasticRuntime, state: State, *, fresh: bool) -> int:
    """The epoch of those that hold it now."""
    if not fresh:
        state.revision += 1  # it has changed since, on all that were there
    shared, bring_back = state.shared()
    info = runtime.comm.sync_shared_state(shared)
    bring_back()
    state.revision = shared.revision
    return info.epoch


def _runtime() -> ElasticRuntime:
    """The elastic one of torch's default group. Raises InvalidArgument."""
    if not dist.is_initialized():
        raise InvalidArgument('call torch.distributed.init_process_group("pccl", ...) or pccl.torch.join first')
    return elastic(runtime_of(c10d._world.pg_names[c10d._get_default_group()]))


__all__ = ["Change", "RankLost", "commit", "join", "rebuild", "reconfigure", "step"]
