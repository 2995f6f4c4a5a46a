# SPDX-License-Identifier: MIT
"""The libraries that are timed, one file each. A new one is a file here and a line in `CONTENDERS`."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pccl.bench.contenders.contender import Contender


@dataclass(frozen=True)
class Library:
    """What must be known of a contender before it is imported: its module here, a module that must be installed, how to
    get that, and by setting (`op`, `dtype`, `transport`) the values that it cannot do. `concurrent`: it can have
    several operations in flight."""

    module: str
    needs: str
    how: str = ""
    lacks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    concurrent: bool = True


OWN = {"api": "pccl", "torch": "pccl-torch"}
"""Ourselves, by what calls go through."""
EXACT = "pccl-exact"
"""The same without quantization."""
CONTENDERS = {
    "pccl": Library("own", "pccl", lacks={"op": ("ddp",)}),
    EXACT: Library("own_exact", "pccl"),
    "pccl-torch": Library("own_torch", "torch", "pip install torch", {"op": ("scan", "exscan")}),
    "gloo": Library(
        "gloo",
        "torch",
        "pip install torch",
        {
            "op": ("scan", "exscan"),
            "dtype": ("int16", "uint16", "uint32", "uint64"),
            "transport": ("shm",),
        },
    ),
    "mpi": Library(
        "mpi",
        "mpi4py",
        "pip install mpi4py, and an MPI library with mpiexec",
        {"op": ("ddp",), "dtype": ("float16",)},
    ),
    "socket": Library("sockets", "socket", lacks={"op": ("send_recv", "ddp"), "transport": ("shm",)}, concurrent=False),
}


def load(name: str) -> type[Contender]:
    """The class of a contender; imports the library it needs."""
    module: Any = importlib.import_module(f"pccl.bench.contenders.{CONTENDERS[name].module}")
    found: type[Contender] = module.contender
    return found
