# SPDX-License-Identifier: MIT
"""`pccl bench`: how fast, and beside what."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from pccl.bench.report import Row
    from pccl.bench.settings import Settings

Op = Literal[
    "all_reduce",
    "reduce",
    "reduce_scatter",
    "all_gather",
    "all_to_all",
    "broadcast",
    "gather",
    "scatter",
    "scan",
    "exscan",
    "send_recv",
    "barrier",
]
Timed = Literal[Op, "ddp"]
DType = Literal[
    "float32", "float64", "float16", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"
]
Transport = Literal["auto", "tcp", "shm"]
COMMITS = {"api": "each", "torch": "deferred"}


def bench(
    op: Annotated[
        Timed, typer.Argument(help="The collective; send_recv: pairs, there and back; ddp: a training step.")
    ],
    peers: Annotated[int, typer.Option(min=2, help="Processes per contender.")] = 2,
    sizes: Annotated[
        str, typer.Option(help="Bytes of the larger buffer: 4, 64K, 1M; lists with commas; ranges as 4..64M.")
    ] = "4..64M",
    model: Annotated[str, typer.Option(help="ddp: parameters, instead of --sizes.")] = "25M",
    via: Annotated[Literal["api", "torch"], typer.Option(help="pccl: its own calls, or torch.distributed's.")] = "api",
    vs: Annotated[
        str, typer.Option(help="Also run, alternating: gloo, mpi, socket; pccl beside --via torch (commas).")
    ] = "",
    json: Annotated[bool, typer.Option("--json", help="One JSON object per contender and size.")] = False,
    fit: Annotated[bool, typer.Option("--fit", help="At the end: latency + size / bandwidth; sizes 3x off.")] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Draw time and bandwidth over size there (PNG).", dir_okay=False)
    ] = None,
    commit: Annotated[
        Literal["auto", "each", "deferred"],
        typer.Option(help="pccl: when an operation is settled; auto: each, with --via torch deferred."),
    ] = "auto",
    in_place: Annotated[bool, typer.Option("--in-place/--out-of-place", help="One buffer or two.")] = True,
    rounds: Annotated[int, typer.Option(min=1, help="Batches per size and contender.")] = 5,
    dtype: Annotated[DType, typer.Option(help="Element type.")] = "float32",
    connections: Annotated[int, typer.Option(min=0, help="pccl: TCP connections per link; 0 chooses.")] = 0,
    transport: Annotated[
        Transport, typer.Option(help="pccl and MPI: sockets only, or shared memory only. Gloo always uses sockets.")
    ] = "auto",
    algorithm: Annotated[str, typer.Option(help="pccl: force one, as ring; auto chooses by size.")] = "auto",
    inflight: Annotated[int, typer.Option(min=1, help="Operations at a time, which share the bytes of a size.")] = 1,
    coalesced: Annotated[bool, typer.Option("--coalesced", help="pccl: these are arrays of one all_reduce.")] = False,
    priority: Annotated[int, typer.Option(min=-3, max=3, help="pccl: of what is timed; others have 0.")] = 0,
    quantize: Annotated[
        str, typer.Option(help="pccl: the format of what is sent, as int8_block; then also errors, CPU, bytes sent.")
    ] = "",
    link: Annotated[
        str, typer.Option(help="pccl: each peer in a network namespace (root), with so many bits a second, as 1G.")
    ] = "",
    beside: Annotated[str, typer.Option(help="pccl: keep an all_reduce of so many bytes under way meanwhile.")] = "",
) -> None:
    """Time a collective between processes of this machine; check every result.

    Exit status: 0 all results exact (quantized: sound, and the same on all ranks), 1 not, 2 it cannot be done here.
    """
    from pccl.bench import chart
    from pccl.bench import fit as bench_fit
    from pccl.bench import settings as bench_settings

    versus = tuple(dict.fromkeys(name.strip() for name in vs.split(",") if name.strip()))
    wanted, other = _parsed(model if op == "ddp" else sizes, beside)
    via, wanted = ("torch", tuple(4 * count for count in wanted)) if op == "ddp" else (via, wanted)
    settled = COMMITS[via] if commit == "auto" else commit
    ours = (settled, rounds, connections, transport, algorithm, inflight, priority, other, coalesced, via, quantize)
    settings = bench_settings.Settings(op, peers, wanted, versus, dtype, in_place, *ours, _rate(link))
    problems = bench_settings.problems(settings) + (bench_fit.problems(settings) if fit else [])
    _refuse(problems + ([] if plot is None else _cannot_plot(op, plot, chart.NEEDS)))
    rows = _measured(settings, as_json=json)
    for text in bench_fit.lines(rows, as_json=json) if fit else ():
        typer.echo(text)
    if plot is not None:
        chart.write(rows, f"{settings.title}, {peers} peers, {dtype}, transport {transport}, commit {commit}", plot)
    raise typer.Exit(0 if all(row.exact for row in rows) else 1)


def _measured(settings: Settings, *, as_json: bool) -> list[Row]:
    """Shows rows as they come."""
    from pccl.bench import run
    from pccl.bench.report import JsonReport, TableReport
    from pccl.bench.team import TeamFailed
    from pccl.stress.hosts import HostsError

    try:
        return run.run(settings, JsonReport(typer.echo) if as_json else TableReport(typer.echo))
    except (TeamFailed, HostsError) as failure:
        typer.echo(f"pccl bench: {failure}", err=True)
        raise typer.Exit(1) from failure


def _parsed(sizes: str, beside: str) -> tuple[tuple[int, ...], int]:
    from pccl.bench import sizes as bench_sizes

    try:
        return tuple(bench_sizes.parse(sizes)), bench_sizes.parse(beside)[0] if beside else 0
    except ValueError as wrong:
        raise typer.BadParameter(str(wrong), param_hint="--sizes, --model, --beside") from wrong


def _rate(link: str) -> int:
    """Bits a second: 1G is 10^9. 0 without a link."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmMgG]?)", link or "0")
    if found is None:
        raise typer.BadParameter(f"bits a second, as 100M or 1G, not {link!r}", param_hint="--link")
    return round(float(found.group(1)) * {"": 1, "k": 1e3, "m": 1e6, "g": 1e9}[found.group(2).lower()])


def _refuse(problems: list[str]) -> None:
    for line in problems:
        typer.echo(f"pccl bench: {line}", err=True)
    if problems:
        raise typer.Exit(2)


def _cannot_plot(op: str, path: Path, needs: str) -> list[str]:
    """That the chart can be written shall not be found out minutes later."""
    if op == "barrier":
        return ["--plot: a barrier has no sizes to draw over"]
    if importlib.util.find_spec("matplotlib") is None:
        return [needs]
    try:
        path.open("ab").close()
    except OSError as failure:
        return [f"--plot: {failure}"]
    return []
