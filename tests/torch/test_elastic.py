# SPDX-License-Identifier: MIT
"""Ranks die at every point of a training step, and others come: who is left goes on alike, in both forms.

Each rank returns its history: a digest of the parameters after each step, and what happened to it on the way.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import pccl
import pccl.torch
from pccl.fleet import Master
from tests.torch.ranks import Rank, Ranks

pytestmark = pytest.mark.process

LOSS_AT = 3
"""The step in which somebody dies."""
MORE_STEPS = 3
"""After the last change of members."""
Event = Callable[[], None]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class Trainer:
    """A model, and its training in the elastic run: everything that a rank does."""

    notes: dist.Store
    founders: int
    digests: dict[int, str] = field(default_factory=dict)
    sizes: dict[int, int] = field(default_factory=dict)
    lost: list[int] = field(default_factory=list)
    joined: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        torch.manual_seed(os.getpid())  # another one on each rank: all get the parameters of one of them
        self.net = nn.Sequential(nn.Linear(32, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 1))
        self.model = DistributedDataParallel(self.net, init_sync=False, bucket_cap_mb=0.1)
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-3)
        self.state = pccl.torch.State(net=self.net, optimizer=self.optimizer, step=0)

    def train(self, events: dict[int, dict[str, Event]] | None = None) -> dict[str, Any]:
        """Until there are as many ranks as at first, and have been for some steps. `events` of a step by the place in
        it: "begin", "backward" (a gradient in the middle is ready), "commit", "end"."""
        steps = LOSS_AT + MORE_STEPS
        while self.state.step < steps or dist.get_world_size() != self.founders:
            step = self.state.step
            happens = (events or {}).get(step, {})
            happens.get("begin", _nothing)()
            try:
                with pccl.torch.step(self.state, self.model) as change:
                    step = self.state.step
                    if change:
                        self.joined += change.joined
                        steps = max(steps, step + MORE_STEPS)
                    self.forward_and_back(happens.get("backward"))
                    happens.get("commit", _nothing)()
            except pccl.torch.RankLost:
                self.lost.append(step)
                continue
            self.optimizer.step()
            self.state.step += 1
            self.note()
            happens.get("end", _nothing)()
        return {"digests": self.digests, "sizes": self.sizes, "lost": self.lost, "joined": self.joined}

    def forward_and_back(self, event: Event | None) -> None:
        """A loss of inputs that depend on rank and step."""
        chance = torch.Generator().manual_seed(1000 * self.state.step + dist.get_rank())
        inputs = torch.randn(8, 32, generator=chance)
        self.optimizer.zero_grad()
        if event is not None:
            self.net[2].weight.register_hook(lambda _: event())
        (self.model(inputs) - inputs.sum(1, keepdim=True)).square().mean().backward()

    def note(self) -> None:
        """What the step has led to."""
        digest = hashlib.sha256()
        for tensor in [*self.net.parameters(), *self.net.buffers()]:
            digest.update(tensor.detach().numpy().tobytes())
        self.digests[self.state.step] = digest.hexdigest()[:16]
        self.sizes[self.state.step] = dist.get_world_size()
        if self.sizes[self.state.step] < self.founders:
            self.notes.set("some are left", "yes")


def _nothing() -> None:
    pass


def founder(rank: Rank, master: str, founders: int) -> Trainer:
    """One of those that the run begins with."""
    options = pccl.torch.Options(elastic=True, master=master)
    store = dist.FileStore(str(rank.folder / "store"), rank.world)
    dist.init_process_group("pccl", store=store, rank=rank.rank, world_size=founders, pg_options=options)
    return Trainer(dist.FileStore(str(rank.folder / "notes"), rank.world), founders)


def newcomer(rank: Rank, master: str, founders: int) -> Trainer:
    """Ready, and comes when those that are left have made a step."""
    notes = dist.FileStore(str(rank.folder / "notes"), rank.world)
    pccl.torch.join(master)
    trainer = Trainer(notes, founders)
    notes.wait(["some are left"])
    return trainer


def judge(histories: list[dict[str, Any]], sizes: set[int]) -> None:
    """All have the same parameters after the same steps."""
    for step in set().union(*(it["digests"] for it in histories)):
        assert len({it["digests"][step] for it in histories if step in it["digests"]}) == 1, (step, histories)
        assert len({it["sizes"][step] for it in histories if step in it["sizes"]}) == 1, (step, histories)
    assert set().union(*(it["sizes"].values() for it in histories)) == sizes, histories
    assert len({max(it["digests"]) for it in histories}) == 1, histories


# ---------------------------------------------------------------------------------------------- losses and newcomers


def loses_and_gains(rank: Rank, master: str, place: str, founders: int) -> dict[str, Any]:
    """The last of the founders dies at that place of a step; then somebody else comes."""
    if rank.rank == founders:
        return newcomer(rank, master, founders).train()
    trainer = founder(rank, master, founders)
    notes, doomed = trainer.notes, rank.rank == founders - 1

    def in_commit() -> None:
        """Whoever gets here is about to commit, which takes all; so it cannot be over when the last one is here."""
        if doomed:
            notes.wait([f"{other} commits" for other in range(founders - 1)])
            die()
        notes.set(f"{rank.rank} commits", "yes")

    happens = in_commit if place == "commit" else die
    return trainer.train({LOSS_AT: {place: happens}} if doomed or place == "commit" else None)


@pytest.mark.parametrize("place", ["begin", "backward", "commit", "end"])
def test_survivors_repeat_the_step_and_a_newcomer_catches_up(ranks: Ranks, form: str, place: str) -> None:
    with Master(options=["--founders", "3"]) as master:
        statuses, folder = ranks.end_of(loses_and_gains, 4, form, master.address, place, 3)
    histories = ranks.outcomes(statuses, folder, killed=[2])
    judge(histories, {2, 3})
    survivors, late = histories[:2], histories[2]
    if place == "backward":  # elsewhere the step may be good all the same, or not have begun
        assert [it["lost"] for it in survivors] == [[LOSS_AT], [LOSS_AT]]
    assert [it["joined"] for it in survivors] == [[2], [2]]
    assert late["joined"] == [2]
    assert min(late["digests"]) > LOSS_AT


def test_a_rank_goes_on_alone_until_another_one_comes(ranks: Ranks, form: str) -> None:
    with Master(options=["--founders", "2"]) as master:
        statuses, folder = ranks.end_of(loses_and_gains, 3, form, master.address, "backward", 2)
    histories = ranks.outcomes(statuses, folder, killed=[1])
    judge(histories, {1, 2})
    assert histories[0]["lost"] == [LOSS_AT]


# ---------------------------------------------------------------------------------------------- groups


def groups_lose_members(rank: Rank, master: str) -> list[int]:
    trainer = founder(rank, master, 3)
    pccl.torch.reconfigure(trainer.state)
    pairs = {pair: dist.new_group(pair) for pair in ((0, 1), (1, 2))}
    own = [group for pair, group in pairs.items() if rank.rank in pair]
    for group in own:
        x = torch.ones(4)
        dist.all_reduce(x, group=group)
        assert x[0] == 2
    pccl.torch.commit()
    if rank.rank == 2:
        die()
    while True:
        with contextlib.suppress(pccl.torch.RankLost), pccl.torch.step(trainer.state):
            found = []
            for group in own:
                x = torch.ones(4)
                dist.all_reduce(x, group=group)
                assert x[0] == dist.get_world_size(group) == group.size()
                found.append(int(x[0]))
        if dist.get_world_size() == 2:
            break
    dist.destroy_process_group()
    return found


def test_groups_keep_the_members_that_are_left(ranks: Ranks, form: str) -> None:
    with Master(options=["--founders", "3"]) as master:
        statuses, folder = ranks.end_of(groups_lose_members, 3, form, master.address)
    assert ranks.outcomes(statuses, folder, killed=[2]) == [[2], [2, 1]]


# ---------------------------------------------------------------------------------------------- wrong use


def wrong_use(rank: Rank) -> None:
    for call in (pccl.torch.reconfigure, pccl.torch.commit):
        with pytest.raises(pccl.InvalidArgument, match="init_process_group"):
            call()
    with rank.group():
        for call in (pccl.torch.reconfigure, pccl.torch.commit):
            with pytest.raises(pccl.InvalidArgument, match="elastic=True"):
                call()
    with pytest.raises(pccl.InvalidArgument, match="state"):
        pccl.torch.State(name="a text")
    state = pccl.torch.State(step=0)
    with pytest.raises(AttributeError, match="name all of them"):
        state.steps = 1
    with rank.group(name="elastic", pg_options=pccl.torch.Options(elastic=True)):
        pccl.torch.reconfigure(state)
        dist.all_reduce(torch.ones(1))  # between two steps: the next one's meeting settles it
        assert not pccl.torch.reconfigure(state)
        with pytest.raises(ZeroDivisionError), pccl.torch.step(state):
            raise ZeroDivisionError
        with pytest.raises(pccl.InvalidArgument), pccl.torch.step(state):
            raise pccl.InvalidArgument("of the user's own")
        assert not pccl.torch.reconfigure(state)


def test_wrong_use_is_refused(ranks: Ranks, form: str) -> None:
    ranks.run(wrong_use, 2, form)


# ---------------------------------------------------------------------------------------------- torch's own door


def asked_by_torch(rank: Rank, master: str) -> None:
    """Two founders, of whom one dies, and a newcomer. Torch before 2.14 has no such function: then what it calls."""
    options, notes = pccl.torch.Options(master=master), dist.FileStore(str(rank.folder / "notes"), rank.world)
    has_door = hasattr(dist, "_reconfigure")
    if rank.rank == 2:
        pccl.torch.join(master)
    else:
        door = {"enable_reconfigure": True} if has_door else {}
        options = dataclasses.replace(options, elastic=not has_door)
        store = dist.FileStore(str(rank.folder / "store"), rank.world)
        dist.init_process_group("pccl", store=store, rank=rank.rank, world_size=2, pg_options=options, **door)
    handle = dist._get_reconfigure_handle() if has_door else f"rank {rank.rank}"
    assert not has_door or dist._supports_reconfigure()
    notes.set(f"handle {rank.rank}", handle)
    handles = [notes.get(f"handle {it}").decode() for it in range(3)]
    assert len(set(handles)) == 3

    def reconfigure(given: list[str] | set[str]) -> None:
        if has_door:
            dist._reconfigure(uuid=1, handles=given).wait()
        else:
            pccl.torch.elastic.meet(len(given), given.index(handle) if isinstance(given, list) else -1)

    def total() -> float:
        x = torch.ones(1)
        dist.all_reduce(x)
        return x.item()

    if rank.rank < 2:
        with pytest.raises(ValueError, match="there are 2 members"):
            reconfigure({handle})
        with pytest.raises(ValueError, match="so pass a set"):
            reconfigure([handles[1], handles[0]])
        reconfigure([handles[0], handles[1]])
        assert total() == 2
    if rank.rank == 1:
        die()
    if rank.rank == 0:
        with pytest.raises(dist.DistBackendError, match="peer lost"):
            total()
        reconfigure({handle})
        assert total() == 1
        notes.set("alone", "")
    notes.wait(["alone"])
    while dist.get_world_size() == 1:  # it waits at the door before it is let in
        with contextlib.suppress(ValueError):
            reconfigure({handles[0], handles[2]})
    assert total() == 2
    dist.destroy_process_group()


def test_torch_itself_may_reconfigure(ranks: Ranks, form: str) -> None:
    with Master(options=["--founders", "2"]) as master:
        statuses, folder = ranks.end_of(asked_by_torch, 3, form, master.address)
    ranks.outcomes(statuses, folder, killed=[1])
