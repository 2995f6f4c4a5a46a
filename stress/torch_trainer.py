#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A rank of `torch_kills.py`: trains as documented, step by step as told, and says what it saw when."""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch_steps import Members, Trainer

import pccl.torch
from pccl.fleet import Line

BUCKET_MB = 1.0


class PcclTrainer(Trainer):
    """Steps of an elastic run."""

    def __init__(self, line: Line, serial: int) -> None:
        super().__init__(line, serial)
        self._state = pccl.torch.State(net=self.net, optimizer=self.optimizer, step=0)
        self.alone()

    def wrapped(self) -> nn.Module:
        return DistributedDataParallel(self.net, init_sync=False, bucket_cap_mb=BUCKET_MB)

    def alone(self) -> None:
        with self.model.no_sync():
            super().alone()

    @property
    def step(self) -> int:
        return int(self._state.step)

    @property
    def rank(self) -> int:
        return dist.get_rank()

    def try_step(self, dies_at: int | None) -> Members | None:
        began_ns = time.monotonic_ns()
        try:
            with pccl.torch.step(self._state, self.model) as change:
                entered_ns = time.monotonic_ns()
                self.prepare(dies_at).backward()
        except pccl.torch.RankLost:
            self.tell_loss()
            return None
        done_ns = time.monotonic_ns()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self._state.step += 1
        joined = list(change.joined)
        self.tell_step(change.world_size, joined=joined, began_ns=began_ns, entered_ns=entered_ns, done_ns=done_ns)
        return Members(change.world_size, bool(joined))


def main() -> int:
    """One rank on the line of stdin and stdout."""
    faulthandler.enable()
    parser = argparse.ArgumentParser()
    parser.add_argument("master")
    parser.add_argument("serial", type=int)
    parser.add_argument("--founders", type=int, help="of these is one, with that serial number for its rank")
    options = parser.parse_args()
    line = Line.to_supervisor()
    torch.set_num_threads(1)
    if options.founders is None:
        pccl.torch.join(options.master)
    else:
        store, chosen = dist.HashStore(), pccl.torch.Options(elastic=True, master=options.master)
        dist.init_process_group(
            "pccl", store=store, rank=options.serial, world_size=options.founders, pg_options=chosen
        )
    trainer = PcclTrainer(line, options.serial)
    line.send(ready=True)
    with contextlib.suppress(EOFError):
        trainer.serve()
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
