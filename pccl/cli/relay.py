# SPDX-License-Identifier: MIT
"""`pccl relay`: a bad network in between, without privileges."""

from __future__ import annotations

import signal
from typing import Annotated, Literal

import typer

from pccl.errors import PCCLError


def relay(
    to: Annotated[str, typer.Option(help="HOST:PORT that connections are forwarded to.")],
    listen: Annotated[str, typer.Option(help="HOST:PORT to listen on; port 0 chooses one.")] = "127.0.0.1:0",
    direction: Annotated[
        Literal["up", "down", "both"], typer.Option(help="Whom the faults below hit: what the dialler says, or hears.")
    ] = "both",
    delay_ms: Annotated[float, typer.Option(min=0, help="Added to every byte, in each direction.")] = 0.0,
    rate: Annotated[int, typer.Option(min=0, help="Bytes a second of each connection; 0 is no limit.")] = 0,
    total_rate: Annotated[int, typer.Option(min=0, help="Bytes a second of all connections; 0 is no limit.")] = 0,
    corrupt_every: Annotated[int, typer.Option(min=0, help="Damage one byte in so many; 0 is none.")] = 0,
    seed: Annotated[int, typer.Option(help="Decides which bytes are damaged.")] = 0,
    control: Annotated[
        bool, typer.Option("--control", help="Commands on stdin and answers on stdout, one JSON object a line.")
    ] = False,
) -> None:
    """Forward TCP connections, with faults that --control switches while it runs.

    Ends with 130 after SIGINT, 143 after SIGTERM, and with --control when stdin ends. For what can be commanded, see
    the module pccl.stress.relay_commands.
    """
    from pccl.fleet import Line
    from pccl.stress.relay import Relay
    from pccl.stress.relay_commands import answer

    def end(number: int, _frame: object) -> None:
        raise typer.Exit(128 + number)

    signal.signal(signal.SIGINT, end)
    signal.signal(signal.SIGTERM, end)
    try:
        with Relay(seed) as relaying:
            link = relaying.link(to, listen)
            link.set(direction, delay_ms=delay_ms, rate=rate, total_rate=total_rate, corrupt_every=corrupt_every)
            if not control:
                typer.echo(f"pccl relay listening on {link.address}")
                while True:
                    signal.pause()
            line = Line.over_stdio()
            line.send(listening=link.address)
            while True:
                try:
                    command = line.receive()
                except (ValueError, RecursionError) as wrong:
                    line.send(error=f"a command is a line of JSON: {wrong}")
                else:
                    line.send(**answer(link, command))
    except (EOFError, BrokenPipeError):
        raise typer.Exit(0) from None
    except PCCLError as failure:
        typer.echo(f"pccl relay: {failure}", err=True)
        raise typer.Exit(1) from None
