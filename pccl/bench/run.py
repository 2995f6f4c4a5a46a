# SPDX-License-Identifier: MIT
"""One benchmark: all teams alive at once, one of them active at a time, alternating round by round.

Alternation spreads whatever else the machine does over all contenders. Every size is checked before and after it is
timed.
"""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from pccl.bench import metrics
from pccl.bench.contenders import CONTENDERS
from pccl.bench.report import Report, Row
from pccl.bench.team import Team
from pccl.bench.work import Shape
from pccl.fleet import Master

WARM_UP = 5


@dataclass(frozen=True)
class Settings:
    """What the command line may choose; `connections` per link, 0 lets pccl choose; `transport` "auto" or "tcp"."""

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


def missing(versus: Sequence[str]) -> list[str]:
    """One line for each contender that is unknown or cannot run here."""
    lines = []
    for name in versus:
        if name == "pccl" or name not in CONTENDERS:
            lines.append(f"--vs {name}: choose from {', '.join(known for known in CONTENDERS if known != 'pccl')}")
        elif importlib.util.find_spec(CONTENDERS[name][1]) is None:
            lines.append(f"--vs {name} needs {CONTENDERS[name][1]}: {CONTENDERS[name][2]}")
    return lines


def run(settings: Settings, report: Report) -> bool:
    """Blocks until all is measured. True when every result was exact. Raises TeamFailed."""
    names = ["pccl", *settings.versus]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        master = stack.enter_context(Master()).address
        teams = [stack.enter_context(_team(name, settings, master, folder)) for name in names]
        report.begin(settings.op, names)
        exact = True
        for shape in _shapes(settings):
            rows = _measure(settings, shape, teams)
            report.rows(rows)
            exact = exact and all(row.exact for row in rows)
    return exact


def _team(name: str, settings: Settings, master: str, folder: Path) -> Team:
    return Team(name, 2 if name == "socket" else settings.peers, master, asdict(settings), folder)


def _shapes(settings: Settings) -> Iterator[Shape]:
    for size in (0,) if settings.op == "barrier" else settings.sizes:
        yield Shape(settings.op, size, settings.dtype, settings.in_place, settings.peers)


def _measure(settings: Settings, shape: Shape, teams: list[Team]) -> list[Row]:
    request = {key: value for key, value in asdict(shape).items() if key != "peers"}
    for team in teams:
        team.ask(do="prepare", shape=request)
    exact = {team.name: _check(team, shape) for team in teams}
    warm_up = [max(_batch(team, WARM_UP)) for team in teams]
    iterations = metrics.iterations_for(warm_up)
    times: dict[str, list[int]] = {team.name: [] for team in teams}
    for _ in range(settings.rounds):
        for team in teams:
            times[team.name] += _batch(team, iterations)
    return [
        Row(
            op=shape.op,
            contender=team.name,
            peers=shape.peers,
            bytes=shape.actual_size,
            dtype=shape.dtype,
            in_place=shape.in_place,
            commit=settings.commit,
            exact=exact[team.name] and _check(team, shape),
            transport=team.ask(do="transport")[0]["transport"],
            figures=metrics.figures(shape.op, shape.peers, shape.actual_size, times[team.name]),
        )
        for team in teams
    ]


def _check(team: Team, shape: Shape) -> bool:
    """A pair of plain sockets and a barrier compute nothing that could be wrong."""
    if shape.op == "barrier" or team.name == "socket":
        return True
    return all(answer["right"] for answer in team.ask(do="check"))


def _batch(team: Team, iterations: int) -> list[int]:
    return metrics.slowest([answer["times_ns"] for answer in team.ask(do="measure", iterations=iterations)])
