# SPDX-License-Identifier: MIT
"""A small transformer learns Python's own documentation on three ranks; one is killed, another comes, training goes on.

    python examples/torch_ddp_elastic.py

This process carries the master and plays fate. The ranks need nothing but the loop in `train`. In the end all of them
hold the same bits, and the loss has gone on falling.
"""

import subprocess
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch_transformer import Transformer, digest, loss_of

import pccl.torch

RANKS, KILLED_AT, GO_ON = 3, 20, 30


def train(network: nn.Module) -> None:
    model = DistributedDataParallel(network, init_sync=False)
    optimizer = torch.optim.AdamW(network.parameters(), 3e-3)
    state = pccl.torch.State(network=network, optimizer=optimizer, step=0, last=10**9)
    while state.step < state.last:
        try:
            with pccl.torch.step(state, model) as change:
                loss = loss_of(model, state.step, dist.get_rank())
                loss.backward()
        except pccl.torch.RankLost:
            continue  # so say all ranks: once more, with those that are left
        optimizer.step()
        optimizer.zero_grad()
        state.step += 1
        if change.joined:
            state.last = state.step + GO_ON
        if dist.get_rank() == 0 and (change or state.step % 10 == 0):
            print(f"step {state.step}: {dist.get_world_size()} ranks, loss {loss.item():.3f}", flush=True)


def rank(master: str, number: int) -> None:
    """One of those that begin, or with number -1 one that comes later."""
    torch.set_num_threads(1)
    torch.manual_seed(number)  # another network on each, until the first step
    if number < 0:
        pccl.torch.join(master)
    else:
        options = pccl.torch.Options(elastic=True, master=master)
        dist.init_process_group("pccl", store=dist.HashStore(), rank=number, world_size=RANKS, pg_options=options)
    train(network := Transformer())
    print(f"end {digest(network)}", flush=True)
    dist.destroy_process_group()


def main() -> int:
    with pccl.MasterNode("127.0.0.1:0", founders=RANKS) as master:
        master.run()

        def start(number: int) -> subprocess.Popen[str]:
            command = [sys.executable, __file__, master.address, str(number)]
            return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

        ranks, ends = [start(number) for number in range(RANKS)], []
        for line in ranks[0].stdout:
            print(line, end="", flush=True)
            ends += [line] if line.startswith("end") else []
            if line.startswith(f"step {KILLED_AT}:"):
                print("rank 1 is killed, and another process started")
                ranks.pop(1).kill()
                ranks.append(start(-1))
        ends += [line for it in ranks[1:] for line in it.stdout if line.startswith("end")]
        print("".join(ends[1:]), end="")
        return 0 if [it.wait() for it in ranks] == [0] * RANKS and ends == ends[:1] * RANKS else 1


if __name__ == "__main__":
    sys.exit(main() if len(sys.argv) == 1 else rank(sys.argv[1], int(sys.argv[2])))
