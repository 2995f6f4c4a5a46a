# SPDX-License-Identifier: MIT
"""Two dimensions: FSDP2 shards a model within each replica, over Gloo; between replicas, pccl averages each shard with
DiLoCo. A replica that is lost costs the others one retry. (Over several machines: one torchrun for each.)

    pccl master &
    for replica in 1 2; do torchrun --nproc-per-node 2 examples/torch_hsdp_diloco.py 127.0.0.1:48148 $replica & done
"""

import hashlib
import sys
import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import pccl

REPLICAS, ROUNDS, LOCAL_STEPS, FEATURES = 2, 30, 10, 32
INNER_RATE, OUTER_RATE, MOMENTUM = 2e-3, 0.7, 0.9


def average(comm: pccl.Communicator, values: np.ndarray) -> int:
    """Over all replicas that are left; how many those are."""
    while True:
        try:
            return comm.all_reduce(values, op=pccl.ReduceOp.AVG).world_size
        except pccl.TooFewPeers:
            return 1
        except pccl.PeerLost:
            continue


def local_steps(model: nn.Module, optimizer: torch.optim.Optimizer, truth: nn.Module, data: torch.Generator) -> float:
    for _ in range(LOCAL_STEPS):
        inputs = torch.randn(32, FEATURES, generator=data)
        loss = nn.functional.mse_loss(model(inputs), truth(inputs).detach())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main(master: str, replica: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    shard = dist.get_rank()
    torch.manual_seed(0)
    truth = nn.Sequential(nn.Linear(FEATURES, 16), nn.Tanh(), nn.Linear(16, 1))
    model = nn.Sequential(nn.Linear(FEATURES, 99), nn.ReLU(), nn.Linear(99, 1))
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer = torch.optim.AdamW(model.parameters(), INNER_RATE)
    data = torch.Generator().manual_seed(100 * replica + shard)
    own = [parameter.to_local() for parameter in model.parameters()]
    weights = nn.utils.parameters_to_vector(own).detach().numpy().copy()
    momentum = np.zeros_like(weights)
    with pccl.Communicator(master, shard) as comm:  # a group for each shard
        comm.connect()
        while comm.global_world_size < REPLICAS * dist.get_world_size():
            time.sleep(0.05)
            comm.update_topology()
        for number in range(ROUNDS):
            loss = local_steps(model, optimizer, truth, data)
            pseudo_gradient = weights - nn.utils.parameters_to_vector(own).detach().numpy()
            replicas = average(comm, pseudo_gradient)
            momentum = MOMENTUM * momentum + pseudo_gradient
            weights = weights - OUTER_RATE * (pseudo_gradient + MOMENTUM * momentum)
            with torch.no_grad():
                nn.utils.vector_to_parameters(torch.from_numpy(weights), own)
            if shard == 0:
                print(f"replica {replica}, round {number}: {replicas} replicas, loss {loss:.4f}", flush=True)
    print(f"replica {replica}, shard {shard}: weights {hashlib.sha256(weights).hexdigest()[:16]}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
