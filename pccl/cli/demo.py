# SPDX-License-Identifier: MIT
"""`pccl demo`: training that goes on while a peer and the master are killed."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

NEEDED = {"sklearn": "scikit-learn", "matplotlib": "matplotlib"}


def demo(
    output: Annotated[Path, typer.Option(help="Folder for picture, logs and journal.")] = Path("demo-output"),
    steps: Annotated[int, typer.Option(min=1, help="Local steps of a round.")] = 100,
    rounds: Annotated[int, typer.Option(min=2, help="Rounds that all peers train together at the end.")] = 25,
) -> None:
    """Train on handwritten digits with DiLoCo while a peer, then the master, is killed and two newcomers join."""
    missing = [package for module, package in NEEDED.items() if importlib.util.find_spec(module) is None]
    if missing:
        typer.echo(f"the demo needs {' and '.join(missing)}: pip install 'pccl[demo]'", err=True)
        raise typer.Exit(2)
    from rich.console import Console

    from pccl.demo.story import Script
    from pccl.demo.supervisor import Demo, Settings

    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as failure:
        typer.echo(f"pccl demo: {failure}", err=True)
        raise typer.Exit(2) from None
    settings = Settings(output, Script(rounds_together=rounds), steps)
    raise typer.Exit(Demo(settings, Console()).run())
