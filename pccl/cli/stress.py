# SPDX-License-Identifier: MIT
"""`pccl stress`: a training loop under faults, on this machine, in namespaces, or on several machines."""

from __future__ import annotations

import importlib.util
import json as json_module
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from pccl.stress.hosts import Wanted
    from pccl.stress.scenario import Scenario
    from pccl.stress.supervisor import Outcome

VIOLATIONS_SHOWN = 20


def stress(
    scenario: Annotated[str, typer.Argument(help="A scenario's name, a file of your own (*.toml), or `list`.")],
    minutes: Annotated[float | None, typer.Option(min=0.05, max=60 * 24 * 31, help="How long faults go on.")] = None,
    peers: Annotated[int | None, typer.Option(min=2, max=128, help="Peers at a time.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Decides all faults; drawn if missing.")] = None,
    hosts: Annotated[
        str, typer.Option(help="local, netns:N (root), or ssh://[USER@]A[:PORT][=ADDRESS],B,...")
    ] = "local",
    tensors: Annotated[str | None, typer.Option(help='Sizes instead of the scenario\'s: "4 MiB,64 KiB".')] = None,
    collectives: Annotated[
        str | None, typer.Option(help='What is done with all tensors but the first: "all_gather,scan".')
    ] = None,
    patience: Annotated[
        float, typer.Option(min=0.1, max=1000, help="Factor for all limits of time; more on busy machines.")
    ] = 1.0,
    json: Annotated[Path | None, typer.Option(help="Write all results there.", dir_okay=False)] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the timeline there (PNG).", dir_okay=False)] = None,
    output: Annotated[Path | None, typer.Option(help="Folder for logs; kept. Else kept only after failures.")] = None,
    python: Annotated[str, typer.Option(help="ssh: how to call the Python there that has pccl.")] = "python3",
) -> None:
    """Try to break a run of pccl, and prove that every value, verdict and state was right all the same.

    Exit status: 0 no violation, 1 violations, 2 the test could not be run.
    """
    from rich.console import Console

    from pccl.board import print_line
    from pccl.stress import picture, report, screen, supervisor
    from pccl.stress import scenario as scenarios
    from pccl.stress.hosts import HostsError

    if scenario == "list":
        for name in scenarios.names():
            typer.echo(f"{name:<14} {scenarios.load(name).title}")
        return
    if plot is not None and importlib.util.find_spec("matplotlib") is None:
        raise _refused(picture.NEEDS)
    try:
        chosen, wanted = _chosen(scenario, minutes, peers, tensors, collectives, hosts)
        folder = _prepared(output, json, plot)
    except (ValueError, OSError) as wrong:
        raise _refused(str(wrong)) from wrong
    seed = supervisor.draw_seed() if seed is None else seed
    options = {"seed": seed, "minutes": minutes, "peers": peers, "tensors": tensors, "collectives": collectives}
    options |= {"hosts": None if hosts == "local" else hosts, "patience": None if patience == 1.0 else patience}
    options |= {"python": None if python == "python3" else python}
    repeat = report.command(scenario, options)
    console = Console()
    print_line(console, f"{chosen.title}\n{repeat}")
    shown = screen.choose(console)
    settings = supervisor.Settings(seed, wanted, folder, patience, python)
    try:
        outcome = supervisor.Supervisor(chosen, settings, shown).run()
    except (HostsError, RuntimeError) as failure:
        raise _refused(f"{failure}; logs: {folder}") from failure
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    finally:
        shown.close()
    if json is not None:
        json.write_text(json_module.dumps(report.as_json(outcome, repeat), indent=1) + "\n")
    if plot is not None:
        picture.write(outcome.timeline, f"{repeat}: {report.verdict(outcome)}", plot)
    _tell(console, outcome)
    if outcome.checkers.violations:
        print_line(console, f"again: {repeat}\nlogs: {folder}")
        raise typer.Exit(1)
    if output is None:
        shutil.rmtree(folder, ignore_errors=True)


def _chosen(
    name: str, minutes: float | None, peers: int | None, tensors: str | None, collectives: str | None, hosts: str
) -> tuple[Scenario, Wanted]:
    """The scenario with what the options change, and the hosts. Raises ValueError with a text for the user."""
    from pccl.stress import hosts as stress_hosts
    from pccl.stress import scenario as scenarios

    chosen = scenarios.load(name)
    chosen = replace(chosen, minutes=minutes or chosen.minutes, peers=peers or chosen.peers)
    changes: dict[str, Any] = {}
    lists = (("tensors", tensors, scenarios.sizes), ("collectives", collectives, scenarios.collectives))
    for option, text, read in lists:
        if text is not None:
            try:
                changes[option] = read([part.strip() for part in text.split(",")])
            except ValueError as wrong:
                raise ValueError(f"each of --{option} {wrong}, not {text!r}") from None
    chosen = replace(chosen, work=replace(chosen.work, **changes))
    return chosen, stress_hosts.parse(hosts)


def _prepared(output: Path | None, *results: Path | None) -> Path:
    """The folder for logs; that the results can be written shall not be found out hours later. Raises OSError."""
    for path in results:
        if path is not None:
            path.open("ab").close()
    if output is None:
        return Path(tempfile.mkdtemp(prefix="pccl-stress-"))
    output.mkdir(parents=True, exist_ok=True)
    return output


def _tell(console: Console, outcome: Outcome) -> None:
    """The table of recovery times, all violations, the verdict."""
    from pccl.board import print_line
    from pccl.stress import report

    if outcome.director.trials:
        console.print(report.recovery_table(outcome))
    for kind in outcome.unable:
        print_line(console, f"left out, these hosts cannot do it: {kind}")
    violations = outcome.checkers.violations
    for violation in violations[:VIOLATIONS_SHOWN]:
        print_line(console, f"VIOLATION {violation}")
    if len(violations) > VIOLATIONS_SHOWN:
        print_line(console, f"and {len(violations) - VIOLATIONS_SHOWN} more violations: --json has all")
    print_line(console, report.verdict(outcome))


def _refused(text: str) -> typer.Exit:
    typer.echo(f"pccl stress: {text}", err=True)
    return typer.Exit(2)
