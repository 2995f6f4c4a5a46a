# SPDX-License-Identifier: MIT
"""Hooks whose formats only pccl's collectives know: nothing is lost over the steps, training comes as far as in full,
and a step that a rank's death has broken begins again from the residuals that it began with. In both forms."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import pccl
import pccl.torch
from pccl import QuantizationAlgorithm, QuantizationOptions
from pccl.fleet import Master
from pccl.torch import hooks
from tests.torch.ranks import Rank, Ranks
from tests.torch.scenarios import models

pytestmark = pytest.mark.process

FORMATS: dict[str, str | QuantizationOptions] = {
    "bfloat16": "bfloat16",
    "uint8": "uint8",
    "int8": QuantizationOptions("int8", QuantizationAlgorithm.BLOCK, nan="propagate"),
    "int4": "int4",
    "int2": "int2",
    "float8_e4m3fn": "float8_e4m3fn",
    "int4, stochastic": QuantizationOptions("int4", rounding="stochastic", seed=0),
}


def all_sent(rank: Rank) -> None:
    """Over all steps and ranks, what DDP got and what is kept back make up all gradients. The parameters do not move,
    so that those are known."""
    with rank.group():
        for format in FORMATS.values():
            compression, network = hooks.Compression(format), models.network()
            parallel = DistributedDataParallel(models.network(), bucket_cap_mb=0.0005)
            parallel.register_comm_hook(compression, hooks.all_reduce)
            missing = [torch.zeros_like(it) for it in network.parameters()]
            own = list(parallel.module.parameters())
            for number in range(6):
                if not isinstance(format, str) and format.seed is not None:
                    compression.reseed(number)
                inputs, targets = models.batch(rank.rank, number)
                for either in (network, parallel):
                    either.zero_grad()
                    nn.functional.mse_loss(either(inputs), targets).backward()
                for left, given, got in zip(missing, network.parameters(), own, strict=True):
                    left.add_(given.grad - got.grad)
            for left, parameter in zip(missing, own, strict=True):
                kept = compression.residual(parameter)
                assert kept is not None
                assert kept.any(), format
                left.sub_(kept.view_as(left))
                dist.all_reduce(left)
                assert left.abs().max() < 1e-5, format


def test_over_all_steps_nothing_is_lost(ranks: Ranks, form: str) -> None:
    ranks.run(all_sent, 3, form)


STEPS = 150
WRAPS = {"ddp": ("uint8", "int4", "int2"), "shard": ("float8_e5m2", "int4"), "replicate": ("int4",)}
MARGIN = 0.02
"""Of the loss in full: so far off may a loss be."""


def loss_after_training(rank: Rank, wrap: str, format: str | None) -> float:
    """Of all batches, which never change, by parameters that must be alike on all ranks."""
    model: Any = models.network()
    world, compression = rank.world, None if format is None else hooks.Compression(format)
    if wrap == "ddp":
        model = DistributedDataParallel(model)
        if compression is not None:
            model.register_comm_hook(compression, hooks.all_reduce)
    else:
        replicas = 2 if wrap == "replicate" else 1
        mesh = init_device_mesh("cpu", (replicas, world // replicas), mesh_dim_names=("replica", "shard"))
        for layer in (model[0], model[2], model):
            fully_shard(layer, mesh=mesh["shard"])
        if wrap == "replicate":
            hooks.Compression(format or "bf16").replicate(model, mesh.get_group("replica"))
        elif compression is not None:
            compression.shard(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(STEPS):
        models.step(model, optimizer, *models.batch(rank.rank, 0))
    whole = [it.full_tensor() if hasattr(it, "full_tensor") else it for it in model.parameters()]
    flat = torch.cat([it.detach().flatten() for it in whole])
    alike = [torch.empty_like(flat) for _ in range(world)]
    dist.all_gather(alike, flat)
    assert all(torch.equal(it, flat) for it in alike)
    final = models.network()
    nn.utils.vector_to_parameters(flat, final.parameters())
    with torch.no_grad():
        losses = [nn.functional.mse_loss(final(inputs), targets) for inputs, targets in map(_batch, range(world))]
    return float(sum(losses) / world)


def _batch(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    return models.batch(rank, 0)


def trains(rank: Rank) -> dict[str, float]:
    losses = {}
    with rank.group():
        losses["in full"] = loss_after_training(rank, "ddp", None)
        for wrap, formats in WRAPS.items():
            for format in formats:
                losses[f"{wrap} {format}"] = loss_after_training(rank, wrap, format)
    return losses


def test_training_comes_as_far_as_in_full(ranks: Ranks, form: str) -> None:
    losses = ranks.run(trains, 4, form)[0]
    full = losses.pop("in full")
    assert full < 0.5, "it has learnt something"
    far = {name: loss for name, loss in losses.items() if not abs(loss - full) <= MARGIN * full}
    assert not far, (full, losses)


# ---------------------------------------------------------------------------------------------- a rank dies


def dies(rank: Rank, master: str) -> list[float]:
    """The last rank dies in the middle of a backward pass, when the others may have some of its buckets."""
    options = pccl.torch.Options(elastic=True, master=master)
    store = dist.FileStore(str(rank.folder / "store"), rank.world)
    dist.init_process_group("pccl", store=store, rank=rank.rank, world_size=rank.world, pg_options=options)
    network, compression = models.network(), hooks.Compression("int4")
    model = DistributedDataParallel(network, init_sync=False, bucket_cap_mb=0.0005)
    model.register_comm_hook(compression, hooks.all_reduce)
    optimizer = torch.optim.SGD(network.parameters(), 0.1)
    state = pccl.torch.State(net=network, optimizer=optimizer, step=0)
    begun: dict[int, list[list[torch.Tensor | None]]] = {}
    if rank.rank == rank.world - 1:
        network[2].weight.register_hook(lambda _: os.kill(os.getpid(), signal.SIGKILL) if state.step == 3 else None)
    while state.step < 6:
        try:
            with pccl.torch.step(state, model, feedback=[compression]):
                begun.setdefault(state.step, []).append([compression.residual(it) for it in network.parameters()])
                inputs, targets = models.batch(rank.rank, state.step)
                optimizer.zero_grad()
                nn.functional.mse_loss(model(inputs), targets).backward()
        except pccl.torch.RankLost:
            continue
        optimizer.step()
        state.step += 1
    tries = begun.pop(3)
    assert len(tries) == 2, "the step was made again"
    assert all(len(it) == 1 for it in begun.values())
    for before, again in zip(*tries, strict=True):
        assert before is not None
        assert again is not None
        assert before.any()
        assert torch.equal(before, again)
    return [float(it.detach().double().sum()) for it in network.parameters()]


def test_a_step_that_is_repeated_begins_with_the_same_residuals(ranks: Ranks, form: str) -> None:
    with Master(options=["--founders", "3"]) as master:
        statuses, folder = ranks.end_of(dies, 3, form, master.address)
    survivors = ranks.outcomes(statuses, folder, killed=[2])
    assert survivors[0] == survivors[1]


# ---------------------------------------------------------------------------------------------- wrong use


def wrong(rank: Rank, backend: str) -> None:
    with rank.group(backend):
        model = DistributedDataParallel(models.network())
        model.register_comm_hook(hooks.Compression("int4"), hooks.all_reduce)
        inputs, targets = models.batch(rank.rank, 0)
        if backend == "pccl":
            inputs[0, 0] = float("nan")
        nn.functional.mse_loss(model(inputs), targets).backward()
        assert model.module[0].weight.grad.isnan().any(), "a scaler of losses sees it"


def test_what_is_not_finite_is_seen(ranks: Ranks, form: str) -> None:
    ranks.run(wrong, 2, form, "pccl")


def test_another_backend_cannot(ranks: Ranks) -> None:
    statuses, folder = ranks.end_of(wrong, 2, "auto", "gloo", GLOO_SOCKET_IFNAME="lo")
    with pytest.raises(AssertionError, match="backend for cpu is gloo, and only pccl's quantizes"):
        ranks.outcomes(statuses, folder)


def test_other_hooks_take_types_of_torch_alone() -> None:
    with pytest.raises(ValueError, match="other hooks cannot send int4: choose from bf16, fp16"):
        hooks.Compression("int4").around(hooks.all_reduce)
    with pytest.raises(ValueError, match="bf16 does not draw at random"):
        hooks.Compression("bf16").reseed(1)
