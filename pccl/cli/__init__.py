# SPDX-License-Identifier: MIT
"""The command `pccl`. One module per subcommand; what a subcommand needs is imported when it runs."""

from __future__ import annotations

import signal
import sys

import typer

from pccl.cli.bench import bench
from pccl.cli.demo import demo
from pccl.cli.master import master
from pccl.cli.relay import relay
from pccl.cli.status import status
from pccl.cli.stress import stress
from pccl.cli.trace import trace

app = typer.Typer(
    help="Fault-tolerant collective communication for distributed machine learning.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(master)
app.command()(status)
app.command()(trace)
app.command()(bench)
app.command()(demo)
app.command()(relay)
app.command()(stress)


def main() -> None:
    """Entry point of the console script. SIGTERM unwinds as Ctrl-C does, so that what was started is ended too."""
    signal.signal(signal.SIGTERM, _terminated)
    app()


def _terminated(number: int, _frame: object) -> None:
    sys.exit(128 + number)
