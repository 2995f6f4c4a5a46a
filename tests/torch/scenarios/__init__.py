# SPDX-License-Identifier: MIT
"""What torch's own distributed parts do on a backend: each scenario is a function of (rank, world) in a module here.

It runs in every rank of a default group that was made for it, and returns tensors by name, which are compared with what
another backend gave. It must not know which backend it runs on.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

Results = Mapping[str, Any]

MODULES = ("data_parallel", "sharded", "tensors", "checkpoints", "optimizers", "pipelines", "compression")


@dataclass(frozen=True)
class Scenario:
    """`tolerance` is relative to a tensor's largest element, where more than two ranks add in an order of their own;
    two give the same bits. `native`: the Python form of the backend cannot do it."""

    name: str
    call: Callable[[int, int], Results]
    tolerance: float = 1e-6
    alike: bool = True
    native: bool = False


def scenario(
    tolerance: float = 1e-6, *, alike: bool = True, native: bool = False
) -> Callable[[Callable[[int, int], Results]], Callable[[int, int], Results]]:
    """Marks a function. `alike`: all ranks must return the same bits."""

    def mark(call: Callable[[int, int], Results]) -> Callable[[int, int], Results]:
        module: ModuleType = importlib.import_module(call.__module__)
        known: list[Scenario] = module.__dict__.setdefault("SCENARIOS", [])
        known.append(Scenario(f"{call.__module__.rpartition('.')[2]}.{call.__name__}", call, tolerance, alike, native))
        return call

    return mark


def all_of_them() -> list[Scenario]:
    """In the order of `MODULES`, and as they stand in each."""
    modules = [importlib.import_module(f"{__name__}.{name}") for name in MODULES]
    return [it for module in modules for it in module.SCENARIOS]
