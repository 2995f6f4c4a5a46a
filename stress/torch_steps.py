# SPDX-License-Identifier: MIT
"""What the ranks of `torch_kills.py` do alike, whoever makes their steps: a model of 4 MiB, and commands on a line.

All times are monotonic nanoseconds, which all processes of a machine share.
"""

from __future__ import annotations

import abc
import hashlib
import os
import signal
import time
from typing import Any, NamedTuple

import torch
from torch import nn

from pccl.fleet import Line, Message

WIDTH = 512
LAYERS = 4
ROWS = 8


class Members(NamedTuple):
    """Of a step that was good: how many, and whether somebody has come since the one before."""

    size: int
    grown: bool


class Trainer(abc.ABC):
    """The model, and what the supervisor may ask for."""

    def __init__(self, line: Line, serial: int) -> None:
        self.line, self.serial = line, serial
        torch.manual_seed(serial)  # all get the parameters of one of them
        layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(LAYERS)]
        self.net = nn.Sequential(*layers)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-2, momentum=0.9)
        self.model = self.wrapped()

    def wrapped(self) -> nn.Module:
        """What is called in a step. Called once."""
        return self.net

    @property
    @abc.abstractmethod
    def step(self) -> int:
        """Good steps so far."""

    @property
    @abc.abstractmethod
    def rank(self) -> int:
        """Says which rows are this one's."""

    @abc.abstractmethod
    def try_step(self, dies_at: int | None) -> Members | None:
        """One try of a step, of which the supervisor is told: `tell_step`, or `tell_loss` and None. Its backward
        pass is that of what `prepare` gives."""

    def serve(self) -> None:
        """Does what the supervisor says until it says stop."""
        while (command := self.line.receive()) is not None and command["do"] != "stop":
            getattr(self, "do_" + command["do"])(command)

    def do_train(self, command: Message) -> None:
        """So many `steps`, of which the last is told. With `size`: until there are so many ranks, then so many steps.
        With `dies_at`: in the last but one, SIGKILL when the gradient of that parameter is there; where that is
        negative, says that the backward pass begins, and somebody else does it."""
        size = command.get("size")
        last = None if size else self.step + command["steps"]
        while last is None or self.step < last:
            doomed = "dies_at" in command and self.step + 2 == last
            members = self.try_step(command["dies_at"] if doomed else None)
            if members is not None and members.grown and members.size == size and last is None:
                last = self.step + command["steps"] - 1
        self.line.send(trained=self.step)

    def do_compute(self, command: Message) -> None:
        """The same work without the others: how long it takes."""
        times = []
        for _ in range(command["times"]):
            began_ns = time.monotonic_ns()
            self.alone()
            times.append(time.monotonic_ns() - began_ns)
        self.optimizer.zero_grad()
        self.line.send(computed=times)

    def alone(self) -> None:
        """What a step computes."""
        self.loss().backward()

    def prepare(self, dies_at: int | None) -> torch.Tensor:
        """The loss of which the backward pass is to be made, in which this process may die."""
        loss = self.loss()
        if dies_at is not None and dies_at >= 0:
            list(self.net.parameters())[dies_at].register_hook(self._die)
        elif dies_at is not None:
            self.line.send(backward=True)
        return loss

    def loss(self) -> torch.Tensor:
        """Of this step's rows."""
        chance = torch.Generator().manual_seed(1000 * self.step + self.rank)
        rows = torch.randn(ROWS, WIDTH, generator=chance)
        loss: torch.Tensor = (self.model(rows) - rows).square().mean()
        return loss

    def tell_step(self, size: int, **more: Any) -> None:
        """That one was good."""
        self.line.send(step=self.step, size=size, digest=self._digest(), **more)

    def tell_loss(self) -> None:
        """That one is to be repeated."""
        self.line.send(lost=self.step, at_ns=time.monotonic_ns())

    def _die(self, _: torch.Tensor) -> None:
        self.line.send(dies_ns=time.monotonic_ns())
        os.kill(os.getpid(), signal.SIGKILL)

    def _digest(self) -> str:
        found = hashlib.sha256()
        for parameter in self.net.parameters():
            found.update(parameter.detach().numpy())
        return found.hexdigest()[:16]
