#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The same rank as `torch_trainer.py`, made by torchft over Gloo as its examples make it: what `torch_kills.py --vs
torchft` compares with. Each rank is a replica of one process. Gradients are averaged after the backward pass, as its
wrapper of DDP ends the process when a rank is lost. `--least` gives it time limits as short as the job
bears, where its own are seconds to a minute."""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import logging
import sys
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch_steps import Members, Trainer
from torchft import Manager, ProcessGroupGloo

from pccl.fleet import Line

LEAST = {"timeout": timedelta(milliseconds=500), "heartbeat_interval": timedelta(milliseconds=20)}


class TorchftTrainer(Trainer):
    """Steps that a Manager commits. It is there from the first step on, not before: from then on others wait for it."""

    def __init__(self, line: Line, serial: int, lighthouse: str, least: bool) -> None:
        self._lighthouse, self._least = lighthouse, least
        self._manager: Any = None
        self._size = 0
        super().__init__(line, serial)
        self.alone()

    @property
    def step(self) -> int:
        return int(self._manager.current_step()) if self._manager is not None else 0

    @property
    def rank(self) -> int:
        return self.serial

    def manager(self) -> Any:
        """Made when first wanted."""
        if self._manager is None:
            self._store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
            self._manager = Manager(
                pg=ProcessGroupGloo(**({"timeout": LEAST["timeout"]} if self._least else {})),
                load_state_dict=self._load,
                state_dict=lambda: {"net": self.net.state_dict(), "optimizer": self.optimizer.state_dict()},
                min_replica_size=1,
                rank=0,
                world_size=1,
                store_addr="127.0.0.1",
                store_port=self._store.port,
                lighthouse_addr=self._lighthouse,
                replica_id=f"rank_{self.serial}_",
                hostname="127.0.0.1",
                **(LEAST if self._least else {}),
            )
        return self._manager

    def try_step(self, dies_at: int | None) -> Members | None:
        manager = self.manager()
        manager.start_quorum()
        self.prepare(dies_at).backward()
        for work in [manager.allreduce(it.grad) for it in self.net.parameters()]:
            work.wait()
        if not manager.should_commit():
            self.optimizer.zero_grad()
            self.tell_loss()
            return None
        done_ns = time.monotonic_ns()
        self.optimizer.step()
        self.optimizer.zero_grad()
        before, self._size = self._size, int(manager.num_participants())
        self.tell_step(self._size, done_ns=done_ns)
        return Members(self._size, self._size > before)

    def _load(self, state: dict[str, Any]) -> None:
        self.net.load_state_dict(state["net"])
        self.optimizer.load_state_dict(state["optimizer"])


def main() -> int:
    """One rank on the line of stdin and stdout."""
    faulthandler.enable()
    parser = argparse.ArgumentParser()
    parser.add_argument("lighthouse")
    parser.add_argument("serial", type=int)
    parser.add_argument("--founders", type=int, help="taken for the other trainer's sake")
    parser.add_argument("--least", action="store_true")
    options = parser.parse_args()
    line = Line.to_supervisor()
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    trainer = TorchftTrainer(line, options.serial, options.lighthouse, options.least)
    line.send(ready=True)
    with contextlib.suppress(EOFError):
        trainer.serve()
    return 0


if __name__ == "__main__":
    sys.exit(main())
