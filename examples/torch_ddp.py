# SPDX-License-Identifier: MIT
"""DistributedDataParallel on any backend: only the name has to change. Exit status 1 if the ranks' models differ.

torchrun --nproc-per-node 4 examples/torch_ddp.py --backend pccl
torchrun --nproc-per-node 4 examples/torch_ddp.py --backend gloo

For slow links there are shorter gradients, with error feedback: --gradients int4
"""

import argparse
import hashlib
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import pccl.torch  # makes the name known to torch

STEPS, ROWS, FEATURES = 50, 32, 64


def digest(model: nn.Module) -> str:
    """Of all parameters' bytes."""
    found = hashlib.sha256()
    for parameter in model.parameters():
        found.update(parameter.detach().numpy().tobytes())
    return found.hexdigest()[:16]


def main(backend: str, gradients: str | None) -> int:
    torch.set_num_threads(1)
    dist.init_process_group(backend)
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)  # the same function to be learned on all ranks, and each rank's own data
    truth = nn.Sequential(nn.Linear(FEATURES, 32), nn.Tanh(), nn.Linear(32, 1))
    model = DistributedDataParallel(nn.Sequential(nn.Linear(FEATURES, 256), nn.ReLU(), nn.Linear(256, 1)))
    if gradients:
        model.register_comm_hook(pccl.torch.hooks.Compression(gradients), pccl.torch.hooks.all_reduce)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    data = torch.Generator().manual_seed(rank)
    losses = []
    for _ in range(STEPS):
        inputs = torch.randn(ROWS, FEATURES, generator=data)
        loss = nn.functional.mse_loss(model(inputs), truth(inputs).detach())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    told = [("", "")] * world
    dist.all_gather_object(told, (f"loss {losses[0]:.4f} -> {losses[-1]:.4f}", digest(model)))
    if rank == 0:
        for other, (loss_of_it, digest_of_it) in enumerate(told):
            print(f"rank {other} of {world}: {loss_of_it}, parameters {digest_of_it}")
    dist.destroy_process_group()
    return 0 if len({it for _, it in told}) == 1 and losses[-1] < losses[0] else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="pccl")
    parser.add_argument("--gradients")
    arguments = parser.parse_args()
    sys.exit(main(arguments.backend, arguments.gradients))
