#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A rank of `torch_kills.py`: trains a model of 4 MiB as documented, step by step as told, and says what it saw when.

All times are monotonic nanoseconds, which all processes of a machine share.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import hashlib
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import pccl.torch
from pccl.fleet import Line, Message

WIDTH = 512
LAYERS = 4
ROWS = 8
BUCKET_MB = 1.0


class Trainer:
    """The model, and what the supervisor may ask for."""

    def __init__(self, line: Line, serial: int) -> None:
        self._line = line
        torch.manual_seed(serial)  # all get the parameters of one of them
        layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(LAYERS)]
        self._net = nn.Sequential(*layers)
        self._model = DistributedDataParallel(self._net, init_sync=False, bucket_cap_mb=BUCKET_MB)
        self._optimizer = torch.optim.SGD(self._net.parameters(), lr=1e-2, momentum=0.9)
        self._state = pccl.torch.State(net=self._net, optimizer=self._optimizer, step=0)
        with self._model.no_sync():
            self._loss().backward()

    def serve(self) -> None:
        """Does what the supervisor says until it says stop."""
        while (command := self._line.receive()) is not None and command["do"] != "stop":
            getattr(self, "do_" + command["do"])(command)

    def do_train(self, command: Message) -> None:
        """So many `steps`, of which the last is told. With `size`: until there are so many ranks, then so many steps.
        With `dies_at`: in the last but one, SIGKILL when the gradient of that parameter is there; where that is
        negative, says that the backward pass begins, and somebody else does it."""
        size = command.get("size")
        last = None if size else self._state.step + command["steps"]
        while last is None or self._state.step < last:
            doomed = "dies_at" in command and self._state.step + 2 == last
            change = self._step(command["dies_at"] if doomed else None)
            if size and change is not None and change.world_size == size and last is None and change.joined:
                last = self._state.step + command["steps"] - 1
        self._line.send(trained=self._state.step)

    def do_compute(self, command: Message) -> None:
        """The same work without the others: how long it takes."""
        times = []
        for _ in range(command["times"]):
            began_ns = time.monotonic_ns()
            with self._model.no_sync():
                self._loss().backward()
            times.append(time.monotonic_ns() - began_ns)
        self._optimizer.zero_grad()
        self._line.send(computed=times)

    def _step(self, dies_at: int | None) -> pccl.torch.elastic.Change | None:
        """One try of a step. Its change of members if it was good."""
        began_ns, handles = time.monotonic_ns(), []
        try:
            with pccl.torch.step(self._state, self._model) as change:
                entered_ns = time.monotonic_ns()
                loss = self._loss()
                if dies_at is not None and dies_at >= 0:
                    handles.append(list(self._net.parameters())[dies_at].register_hook(self._die))
                elif dies_at is not None:
                    self._line.send(backward=True)
                loss.backward()
        except pccl.torch.RankLost:
            self._line.send(lost=self._state.step, at_ns=time.monotonic_ns())
            return None
        done_ns = time.monotonic_ns()
        self._optimizer.step()
        self._optimizer.zero_grad()
        self._state.step += 1
        self._line.send(
            step=self._state.step,
            size=change.world_size,
            joined=list(change.joined),
            digest=self._digest(),
            began_ns=began_ns,
            entered_ns=entered_ns,
            done_ns=done_ns,
        )
        return change

    def _die(self, _: torch.Tensor) -> None:
        self._line.send(dies_ns=time.monotonic_ns())
        os.kill(os.getpid(), signal.SIGKILL)

    def _loss(self) -> torch.Tensor:
        chance = torch.Generator().manual_seed(1000 * self._state.step + dist.get_rank())
        rows = torch.randn(ROWS, WIDTH, generator=chance)
        loss: torch.Tensor = (self._model(rows) - rows).square().mean()
        return loss

    def _digest(self) -> str:
        found = hashlib.sha256()
        for parameter in self._net.parameters():
            found.update(parameter.detach().numpy())
        return found.hexdigest()[:16]


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
    trainer = Trainer(line, options.serial)
    line.send(ready=True)
    with contextlib.suppress(EOFError):
        trainer.serve()
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
