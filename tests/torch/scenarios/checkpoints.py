# SPDX-License-Identifier: MIT
"""Distributed checkpoints: written by all ranks, read by all, also while training goes on."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import checkpoint
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from tests.torch.scenarios import Results, models, scenario


def _kept(rank: int, world: int, save: Callable[..., Any]) -> Results:
    """What a model has that was saved and loaded by another one; the first one has been changed in between."""
    mesh = init_device_mesh("cpu", (world,))
    first: Any = fully_shard(models.network(), mesh=mesh)
    models.train(first, torch.optim.SGD(first.parameters(), 0.05), rank, 2)
    names = [tempfile.mkdtemp() if rank == 0 else ""]
    dist.broadcast_object_list(names)
    try:
        before = models.copies((name, value.full_tensor()) for name, value in first.named_parameters())
        done = save(get_model_state_dict(first), checkpoint_id=names[0])
        with torch.no_grad():
            for value in first.parameters():
                value.mul_(2)
        if isinstance(done, Future):
            done.result()
        second: Any = fully_shard(models.network(), mesh=mesh)
        wanted = get_model_state_dict(second)
        checkpoint.load(wanted, checkpoint_id=names[0])
        after = models.copies((name, value.full_tensor()) for name, value in wanted.items())
        assert all(torch.equal(before[name], after[name]) for name in before)
        return after
    finally:
        dist.barrier()
        if rank == 0:
            shutil.rmtree(Path(names[0]))


@scenario()
def save(rank: int, world: int) -> Results:
    return _kept(rank, world, checkpoint.save)


@scenario()
def async_save(rank: int, world: int) -> Results:
    return _kept(rank, world, checkpoint.async_save)
