# SPDX-License-Identifier: MIT
"""`pccl master`: runs the master of a run until a signal ends it."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from pccl.errors import PCCLError


def master(
    listen: Annotated[str, typer.Option(help="HOST:PORT or [IPv6]:PORT to bind; port 0 chooses one.")] = (
        "127.0.0.1:48148"
    ),
    journal: Annotated[
        Path | None, typer.Option(help="File that lets a restarted master carry the run on.", dir_okay=False)
    ] = None,
    heartbeat_timeout: Annotated[
        float, typer.Option(help="Seconds of silence after which a peer is taken for lost.")
    ] = 5.0,
    founders: Annotated[
        int, typer.Option(help="A group begins when so many peers wait for it, with all of them at once.")
    ] = 1,
    until_eof: Annotated[bool, typer.Option(help="End when stdin does: with the process that started it.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log joins, losses and votes to stderr.")] = False,
) -> None:
    """Run the master: it owns membership and is needed only when that changes.

    Ends with 130 after SIGINT and 143 after SIGTERM, with 0 at the end of stdin if that was asked for.
    """
    from pccl.master import MasterNode

    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    received: list[int] = []
    try:
        with MasterNode(listen, journal=journal, heartbeat_timeout=heartbeat_timeout, founders=founders) as node:

            def end(number: int, _frame: object) -> None:
                received.append(number)
                node.interrupt()

            signal.signal(signal.SIGINT, end)
            signal.signal(signal.SIGTERM, end)
            node.run()
            if until_eof:
                threading.Thread(target=_read_until_eof, args=(node.interrupt,), daemon=True).start()
            typer.echo(f"pccl master listening on {node.address}")
            node.wait()
    except (PCCLError, OSError) as failure:
        typer.echo(f"pccl master: {failure}", err=True)
        raise typer.Exit(1) from None
    raise typer.Exit(128 + received[0] if received else 0 if until_eof else 1)


def _read_until_eof(then: Callable[[], None]) -> None:
    while os.read(0, 4096):
        pass
    then()
