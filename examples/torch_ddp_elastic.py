# SPDX-License-Identifier: MIT
"""A small transformer learns Python's own documentation on three ranks; one is killed, another comes, training goes on.

    python examples/torch_ddp_elastic.py

This process carries the master and plays fate. The ranks need nothing but the loop in `train`. In the end all of them
hold the same bits, and the loss has gone on falling.
"""

import hashlib
import pydoc_data.topics
import signal
import subprocess
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import pccl.torch

RANKS, KILLED_AT, GO_ON = 3, 20, 30
LENGTH, WIDTH, ROWS = 64, 64, 16
TEXT = torch.frombuffer(bytearray("".join(pydoc_data.topics.topics.values()), "ascii", "replace"), dtype=torch.uint8)


class Transformer(nn.Module):
    """Predicts the next character of each place from those before it."""

    def __init__(self) -> None:
        super().__init__()
        self.characters, self.places = nn.Embedding(128, WIDTH), nn.Embedding(LENGTH, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, 0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.next = nn.Linear(WIDTH, 128)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        return self.next(self.layers(self.characters(text) + self.places.weight, mask=self.mask, is_causal=True))


def loss_of(model: nn.Module, step: int) -> torch.Tensor:
    """On rows of the text that only this step and rank take."""
    source = torch.Generator().manual_seed(1000 * step + dist.get_rank())
    starts = torch.randint(len(TEXT) - LENGTH - 1, (ROWS, 1), generator=source)
    rows = TEXT[starts + torch.arange(LENGTH + 1)].long()
    return nn.functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())


def train(network: nn.Module) -> None:
    model = DistributedDataParallel(network, init_sync=False)
    optimizer = torch.optim.AdamW(network.parameters(), 3e-3)
    state = pccl.torch.State(network=network, optimizer=optimizer, step=0, last=10**9)
    while state.step < state.last:
        try:
            with pccl.torch.step(state, model) as change:
                loss = loss_of(model, state.step)
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
    options = pccl.torch.Options(elastic=True, master=master)
    if number < 0:
        pccl.torch.join(master)
    else:
        dist.init_process_group("pccl", store=dist.HashStore(), rank=number, world_size=RANKS, pg_options=options)
    network = Transformer()
    train(network)
    digest = hashlib.sha256(b"".join(it.detach().numpy().tobytes() for it in network.parameters())).hexdigest()
    print(f"end {digest[:16]}", flush=True)
    dist.destroy_process_group()


def main() -> int:
    with pccl.MasterNode("127.0.0.1:0", founders=RANKS) as master:
        master.run()

        def start(number: int) -> subprocess.Popen[str]:
            command = [sys.executable, __file__, master.address, str(number)]
            return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

        ranks = [start(number) for number in range(RANKS)]
        digests = []
        for line in ranks[0].stdout:
            print(line, end="", flush=True)
            digests += line.split()[1:] if line.startswith("end") else []
            if line.startswith(f"step {KILLED_AT}:"):
                print("rank 1 is killed, and another process started")
                ranks[1].send_signal(signal.SIGKILL)
                ranks.append(start(-1))
        survivors = [ranks[0], *ranks[2:]]
        digests += [line.split()[1] for it in survivors[1:] for line in it.stdout if line.startswith("end")]
        good = [it.wait() for it in survivors] == [0] * len(survivors) and len(digests) == RANKS
    print(f"digests of all ranks at the end: {digests}")
    return 0 if good and len(set(digests)) == 1 else 1


if __name__ == "__main__":
    if len(sys.argv) > 1:
        rank(sys.argv[1], int(sys.argv[2]))
    else:
        sys.exit(main())
