# SPDX-License-Identifier: MIT
"""`pccl bench`: how fast, and beside what."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

Op = Literal["all_reduce", "reduce_scatter", "all_gather", "broadcast", "barrier"]
DType = Literal[
    "float32", "float64", "float16", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"
]


def bench(
    op: Annotated[Op, typer.Argument(help="The collective.")],
    peers: Annotated[int, typer.Option(min=2, help="Processes per contender.")] = 2,
    sizes: Annotated[str, typer.Option(help="Bytes: 4, 64K, 1M; lists with commas; ranges as 4..64M.")] = "4..64M",
    vs: Annotated[str, typer.Option(help="Also run, alternating: gloo, mpi, socket (commas).")] = "",
    json: Annotated[bool, typer.Option("--json", help="One JSON object per contender and size.")] = False,
    commit: Annotated[Literal["each", "deferred"], typer.Option(help="pccl: when an operation is settled.")] = "each",
    in_place: Annotated[bool, typer.Option("--in-place/--out-of-place", help="One buffer or two.")] = True,
    rounds: Annotated[int, typer.Option(min=1, help="Batches per size and contender.")] = 5,
    dtype: Annotated[DType, typer.Option(help="Element type.")] = "float32",
    connections: Annotated[int, typer.Option(min=0, help="pccl: TCP connections per link; 0 chooses.")] = 0,
    transport: Annotated[Literal["auto", "tcp"], typer.Option(help="pccl: tcp does without shared memory.")] = "auto",
) -> None:
    """Time a collective between processes of this machine; check every result."""
    from pccl.bench import run as bench_run
    from pccl.bench import sizes as bench_sizes
    from pccl.bench.report import JsonReport, TableReport
    from pccl.bench.team import TeamFailed

    versus = tuple(dict.fromkeys(name.strip() for name in vs.split(",") if name.strip()))
    try:
        wanted = tuple(bench_sizes.parse(sizes))
    except ValueError as wrong:
        raise typer.BadParameter(str(wrong), param_hint="--sizes") from wrong
    for line in (problems := bench_run.missing(versus)):
        typer.echo(line, err=True)
    if problems:
        raise typer.Exit(2)
    settings = bench_run.Settings(op, peers, wanted, versus, dtype, in_place, commit, rounds, connections, transport)
    report = JsonReport(typer.echo) if json else TableReport(typer.echo)
    try:
        exact = bench_run.run(settings, report)
    except TeamFailed as failure:
        typer.echo(f"pccl bench: {failure}", err=True)
        raise typer.Exit(1) from failure
    raise typer.Exit(0 if exact else 1)
