# SPDX-License-Identifier: MIT
"""`pccl status`: who is there, and who waits for whom."""

from __future__ import annotations

import json as json_module
import time
from typing import TYPE_CHECKING, Annotated

import typer

from pccl.errors import MasterLost, PCCLError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from pccl.addresses import HostPort

INTERRUPTED = 130
WIDE = 200


def status(
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="The master's address.")],
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Show it anew until Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option(min=0.25, help="Seconds between two looks of --watch.")] = 1.0,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for an answer.")] = 5.0,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per look.")] = False,
) -> None:
    """Show a run as its master sees it: members, epochs, joint calls, and who keeps whom waiting.

    Ends with 1 when no master answers, and with 130 after Ctrl-C. Asking disturbs nothing.
    """
    from pccl import addresses

    try:
        master = addresses.parse(address)
        if watch:
            _watch(master, interval, timeout, json)
        else:
            _once(master, timeout, json)
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except PCCLError as failure:
        typer.echo(f"pccl status: {failure}", err=True)
        raise typer.Exit(1) from None


def _console() -> Console:
    """As wide as the terminal; for a file or a pipe, wide enough for a line per row."""
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=WIDE)


def _once(master: HostPort, timeout: float, json: bool) -> None:
    from pccl.status import StatusClient
    from pccl.status_view import plain, render

    with StatusClient(master, timeout) as client:
        answer = client.ask(timeout)
    if json:
        typer.echo(json_module.dumps(plain(answer)))
    else:
        _console().print(render(str(master), answer))


def _watch(master: HostPort, interval: float, timeout: float, json: bool) -> None:
    """A master that goes away is waited for; one that was never there is an error."""
    from rich.live import Live
    from rich.text import Text

    from pccl.status import StatusClient
    from pccl.status_view import plain, render

    def look(client: StatusClient) -> RenderableType:
        try:
            answer = client.ask(timeout)
        except MasterLost as away:
            return Text(str(away), style="red")
        if json:
            typer.echo(json_module.dumps(plain(answer)))
        return render(str(master), answer)

    with StatusClient(master, timeout) as client:
        if json:
            while True:
                look(client)
                time.sleep(interval)
        with Live(Text(""), console=_console(), auto_refresh=False, vertical_overflow="visible") as live:
            while True:
                live.update(look(client), refresh=True)
                time.sleep(interval)
