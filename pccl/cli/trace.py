# SPDX-License-Identifier: MIT
"""`pccl trace`: reads flight records of one peer or of several, and says who is to blame."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated

import typer

from pccl.errors import PCCLError

WIDE = 200


def trace(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Flight records; best of all peers.")],
    chrome: Annotated[Path | None, typer.Option(help="Write Chrome trace events there, for ui.perfetto.dev.")] = None,
    last: Annotated[int, typer.Option(min=0, help="Operations to show; 0 for all.")] = 30,
    json: Annotated[bool, typer.Option("--json", help="All records and findings as one JSON object.")] = False,
) -> None:
    """Show what peers remember: operations side by side, events, who never came and who came last.

    Ends with 1 when a file is no trace or cannot be read.
    """
    from pccl.trace import file

    traces = []
    for path in files:
        try:
            traces.append(file.decode(path.read_bytes()))
        except (OSError, PCCLError) as failure:
            reason = failure.strerror if isinstance(failure, OSError) else failure
            typer.echo(f"pccl trace: {path}: {reason}", err=True)
            raise typer.Exit(1) from None
    if chrome is not None:
        from pccl.trace.chrome import events

        try:
            chrome.write_text(json_module.dumps(events(traces)))
        except OSError as failure:
            typer.echo(f"pccl trace: {chrome}: {failure.strerror}", err=True)
            raise typer.Exit(1) from None
        typer.echo(f"wrote {chrome}: open it at https://ui.perfetto.dev", err=True)
        return
    from rich.console import Console

    from pccl.trace.table import plain, render

    if json:
        typer.echo(json_module.dumps(plain(traces)))
        return
    console = Console()
    (console if console.is_terminal else Console(width=WIDE)).print(render(traces, last))
