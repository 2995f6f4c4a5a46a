# SPDX-License-Identifier: MIT
"""What a benchmark is asked for, and what cannot be asked for together: found out before anything is started."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass

import pccl
from pccl.bench import formats, mpiexec
from pccl.bench.contenders import CONTENDERS, EXACT, OWN
from pccl.bench.sizes import show
from pccl.bench.work import STEP


@dataclass(frozen=True)
class Settings:
    """What the command line may choose. pccl's calls go `via` its own "api" or "torch"; `connections` per link, 0 lets
    pccl choose; `transport` "auto", "tcp" or "shm" is for all that have the choice; `commit`, `algorithm`, `priority`
    are pccl's; `inflight` operations run at a time, and share the bytes of a size among them (`coalesced`: they are
    arrays of one); all the while an all_reduce of `beside` bytes is under way. What pccl sends is quantized to the
    format `quantize`, if one is named. With a `link` of so many bits a second each peer has a host of its own."""

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
    via: str = "api"
    quantize: str = ""
    link: int = 0

    @property
    def contenders(self) -> tuple[str, ...]:
        """All, ourselves first."""
        return OWN[self.via], *self.versus

    @property
    def title(self) -> str:
        """The collective, how many run at a time if more than one, and in one call or not, beside what: "all_reduce x16
        by 64M", "all_reduce of 16", "all_reduce int8_block"."""
        count = "" if self.inflight == 1 else f" {'of ' if self.coalesced else 'x'}{self.inflight}"
        count += f" {self.quantize}" if self.quantize else ""
        return self.op + count + (f" by {show(self.beside)}" if self.beside else "")


def problems(settings: Settings) -> list[str]:
    """One line for each thing that cannot be done here; none if all can."""
    lines = list(_of_library(f"--via {settings.via}", OWN[settings.via], settings))
    lines += [line for name in settings.versus for line in _of_contender(name, settings)]
    lines += _of_algorithm(settings)
    lines += formats.problems(settings.quantize, settings.op, settings.dtype) if settings.quantize else []
    if settings.quantize and settings.coalesced:
        lines.append("--quantize and --coalesced: only calls with one array can be quantized")
    if settings.link:
        lines += [f"--link and --vs {name}: only pccl runs in hosts of its own" for name in _not_ours(settings)]
    if settings.coalesced and settings.op != "all_reduce":
        lines.append(f"{settings.op} cannot be --coalesced: only all_reduce takes many arrays")
    if settings.coalesced and settings.versus:
        lines.append("--coalesced and --vs: only pccl's call with many arrays is timed")
    if settings.beside and settings.versus:
        lines.append("--beside and --vs: only pccl runs beside itself")
    if settings.op == STEP and (settings.inflight > 1 or settings.dtype != "float32"):
        lines.append(f"{STEP} is one step at a time, in float32")
    if settings.via != "api":
        chosen = {"algorithm": settings.algorithm != "auto", "priority": settings.priority != 0}
        chosen |= {"beside": settings.beside > 0, "coalesced": settings.coalesced, "quantize": settings.quantize != ""}
        lines += [f"--via {settings.via} has no --{name}" for name, is_chosen in chosen.items() if is_chosen]
    return lines


def _not_ours(settings: Settings) -> Iterator[str]:
    yield from (name for name in settings.versus if name not in (*OWN.values(), EXACT))


def _of_algorithm(settings: Settings) -> Iterator[str]:
    known = [algorithm.name.lower() for algorithm in pccl.Algorithm]
    if settings.algorithm not in known:
        yield f"--algorithm {settings.algorithm}: choose from {', '.join(known)}"
    elif settings.op in ("barrier", "send_recv", STEP) and settings.algorithm != "auto":
        yield f"{settings.op} takes no --algorithm"


def _of_contender(name: str, settings: Settings) -> Iterator[str]:
    others = [known for known in CONTENDERS if known not in (*OWN.values(), EXACT)]
    allowed = others if settings.via == "api" else [OWN["api"], *others]
    if settings.quantize:
        allowed = [EXACT]
    if name not in allowed:
        yield f"--vs {name}: choose from {', '.join(allowed)}"
        return
    yield from _of_library(f"--vs {name}", name, settings)
    if name == "mpi" and importlib.util.find_spec(CONTENDERS[name].needs) is not None:
        yield from mpiexec.problems(settings.transport)


def _of_library(asked: str, name: str, settings: Settings) -> Iterator[str]:
    library = CONTENDERS[name]
    if library.how and importlib.util.find_spec(library.needs) is None:
        yield f"{asked} needs {library.needs}: {library.how}"
        return
    for setting, values in library.lacks.items():
        value = getattr(settings, setting)
        if value in values:
            yield f"{asked} has no {value}" if setting == "op" else f"{asked} cannot do --{setting} {value}"
    if settings.inflight > 1 and not library.concurrent:
        yield f"{asked} cannot do --inflight {settings.inflight}"
