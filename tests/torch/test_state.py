# SPDX-License-Identifier: MIT
"""What members share of a training loop: all of it, where it lies, and back where it came from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import Optimizer

import pccl
from pccl.shared_state import SharedState
from pccl.torch.state import State

OPTIMIZERS: dict[str, Callable[[Any], Optimizer]] = {
    "adam": lambda parameters: torch.optim.Adam(parameters, 1e-2, weight_decay=0.1),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, 1e-2, amsgrad=True),
    "sgd": lambda parameters: torch.optim.SGD(parameters, 0.1, momentum=0.9, weight_decay=0.1),
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, 1e-2, momentum=0.5, centered=True),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, 1e-2),
    "plain": lambda parameters: torch.optim.SGD(parameters, torch.tensor(0.1)),
}


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))


def trained(model: nn.Module, optimizer: Optimizer, steps: int) -> list[torch.Tensor]:
    for step in range(steps):
        source = torch.Generator().manual_seed(step)
        optimizer.zero_grad()
        model(torch.randn(5, 3, generator=source)).square().sum().backward()
        optimizer.step()
    return [parameter.detach().clone() for parameter in model.parameters()]


def copied(shared: SharedState, source: SharedState) -> None:
    """What a synchronisation does to whom it makes equal."""
    assert [it.name for it in shared.tensors] == [it.name for it in source.tensors]
    for ours, theirs in zip(shared.tensors, source.tensors, strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        ours.content[...] = theirs.content


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_making_an_optimizers_state_changes_no_training(name: str) -> None:
    plain, prepared = network(), network()
    want = trained(plain, OPTIMIZERS[name](plain.parameters()), 4)
    optimizer = OPTIMIZERS[name](prepared.parameters())
    State(model=prepared, optimizer=optimizer)
    assert all(parameter.grad is None for parameter in prepared.parameters())
    for found, wanted in zip(trained(prepared, optimizer, 4), want, strict=True):
        assert torch.equal(found, wanted)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_newcomer_goes_on_like_the_others(name: str) -> None:
    states = []
    for steps in (3, 0):
        model = network()
        optimizer = OPTIMIZERS[name](model.parameters())
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        state = State(model=model, optimizer=optimizer, scheduler=scheduler, step=0, best=torch.zeros(2), last=1.5)
        trained(model, optimizer, steps)
        for _ in range(steps):
            scheduler.step()
        state.step += steps
        state.best += steps
        states.append(state)
    old, new = states
    shared, bring_back = new.shared()
    copied(shared, old.shared()[0])
    bring_back()
    assert new.step == 3
    assert new.last == 1.5
    assert torch.equal(new.best, old.best)
    assert new.scheduler.state_dict() == old.scheduler.state_dict()
    one, other = (trained(state.model, state.optimizer, 3) for state in states)
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    assert torch.equal(old.model[1].running_mean, new.model[1].running_mean)


def test_numbers_keep_their_kinds() -> None:
    state = State(step=2, rate=0.25, done=True)
    other = State(step=7, rate=0.5, done=False)
    shared, bring_back = state.shared()
    copied(shared, other.shared()[0])
    bring_back()
    assert (state.step, state.rate, state.done) == (7, 0.5, False)
    assert type(state.done) is bool
    assert type(state.step) is int


def test_what_cannot_be_shared_is_named() -> None:
    with pytest.raises(pccl.InvalidArgument, match="words is a str, which has no state"):
        State(words="no")
    state = State(step=0)
    with pytest.raises(AttributeError, match="no part 'steps'"):
        state.steps = 1
    with pytest.raises(AttributeError, match="no part 'steps'"):
        _ = state.steps
    with pytest.raises(pccl.InvalidArgument, match="contiguous"):
        State(x=torch.zeros(4, 4).t()[1:]).shared()
