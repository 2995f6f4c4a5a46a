# SPDX-License-Identifier: MIT
"""What a benchmark is asked for, and what cannot be asked for together: found out before anything is started."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass

import pccl
from pccl.bench import mpiexec
from pccl.bench.contenders import CONTENDERS
from pccl.bench.sizes import show


@dataclass(frozen=True)
class Settings:
    """What the command line may choose. `connections` per link, 0 lets pccl choose; `transport` "auto", "tcp" or "shm"
    is for all that have the choice; `commit`, `algorithm` and `priority` are pccl's; `inflight` operations run at a
    time, and share the bytes of a size among them (`coalesced`: they are arrays of one); all the while an all_reduce of
    `beside` bytes is under way."""

    op: str
    peers: int
    sizes: tuple[int, ...]
    versus: tuple[str, ...]
    dtype: str
    in_place: bool
    commit: str
    rounds: int
    connections: int
    transport: str
    algorithm: str
    inflight: int
    priority: int = 0
    beside: int = 0
    coalesced: bool = False

    @property
    def title(self) -> str:
        """The collective, how many run at a time if more than one, and in one call or not, beside what: "all_reduce x16
        by 64M", "all_reduce of 16"."""
        count = "" if self.inflight == 1 else f" {'of ' if self.coalesced else 'x'}{self.inflight}"
        return self.op + count + (f" by {show(self.beside)}" if self.beside else "")


def problems(settings: Settings) -> list[str]:
    """One line for each thing that cannot be done here; none if all can."""
    lines = [line for name in settings.versus for line in _of_contender(name, settings)]
    known = [algorithm.name.lower() for algorithm in pccl.Algorithm]
    if settings.algorithm not in known:
        lines.append(f"--algorithm {settings.algorithm}: choose from {', '.join(known)}")
    elif settings.op in ("barrier", "send_recv") and settings.algorithm != "auto":
        lines.append(f"{settings.op} takes no --algorithm")
    if settings.coalesced and settings.op != "all_reduce":
        lines.append(f"{settings.op} cannot be --coalesced: only all_reduce takes many arrays")
    if settings.coalesced and settings.versus:
        lines.append("--coalesced and --vs: only pccl's call with many arrays is timed")
    if settings.beside and settings.versus:
        lines.append("--beside and --vs: only pccl runs beside itself")
    return lines


def _of_contender(name: str, settings: Settings) -> Iterator[str]:
    if name == "pccl" or name not in CONTENDERS:
        yield f"--vs {name}: choose from {', '.join(known for known in CONTENDERS if known != 'pccl')}"
        return
    library = CONTENDERS[name]
    if importlib.util.find_spec(library.needs) is None:
        yield f"--vs {name} needs {library.needs}: {library.how}"
        return
    if name == "mpi":
        yield from mpiexec.problems(settings.transport)
    for setting, values in library.lacks.items():
        value = getattr(settings, setting)
        if value in values:
            yield f"--vs {name} has no {value}" if setting == "op" else f"--vs {name} cannot do --{setting} {value}"
    if settings.inflight > 1 and not library.concurrent:
        yield f"--vs {name} cannot do --inflight {settings.inflight}"
