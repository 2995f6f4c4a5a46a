# SPDX-License-Identifier: MIT
"""The libraries that are timed, one file each. A new one is a file here and a line in `CONTENDERS`."""

from __future__ import annotations

import importlib
from typing import Any

from pccl.bench.contenders.contender import Contender

# name: (module, a module that must be installed, how to get it)
CONTENDERS = {
    "pccl": ("own", "pccl", ""),
    "gloo": ("gloo", "torch", "pip install torch"),
    "mpi": ("mpi", "mpi4py", "pip install mpi4py, and an MPI library with mpiexec"),
    "socket": ("sockets", "socket", ""),
}


def load(name: str) -> type[Contender]:
    """The class of a contender; imports the library it needs."""
    module: Any = importlib.import_module(f"pccl.bench.contenders.{CONTENDERS[name][0]}")
    found: type[Contender] = module.contender
    return found
