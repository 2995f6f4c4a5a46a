# SPDX-License-Identifier: MIT
"""One benchmark: all teams alive at once, one of them active at a time, alternating round by round.

Alternation spreads whatever else the machine does over all contenders. Every size is checked before and after it is
timed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

from pccl.bench import metrics
from pccl.bench.contenders import EXACT, OWN
from pccl.bench.report import Quantized, Report, Row
from pccl.bench.settings import Settings
from pccl.bench.team import Team, TeamFailed
from pccl.bench.work import Shape
from pccl.fleet import Master
from pccl.stress.hosts import Site, local
from pccl.stress.namespaces import Namespaces

WARM_UP = 5


def run(settings: Settings, report: Report) -> list[Row]:
    """Blocks until all is measured. Raises TeamFailed, HostsError. The settings must have no `problems`."""
    names = list(settings.contenders)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        site = _site(settings, stack)
        masters = {"": stack.enter_context(Master(host=site.master)).address}
        if EXACT in names:  # a group of its own
            masters[EXACT] = stack.enter_context(Master(host=site.master)).address
        address = {name: masters.get(name, masters[""]) for name in names}
        teams = [stack.enter_context(_team(name, settings, address[name], folder, site)) for name in names]
        report.begin(settings.title, names, quantized=settings.quantize != "")
        measured = []
        for shape in _shapes(settings):
            rows = _measure(settings, shape, teams)
            report.rows(rows)
            measured += rows
    return measured


def _site(settings: Settings, stack: ExitStack) -> Site:
    """Where the processes run: here, or each peer in a network namespace with a link of its own."""
    if not settings.link:
        return local()
    made = stack.enter_context(Namespaces(settings.peers, settings.link))
    return Site(made.master, made.hosts)


def _team(name: str, settings: Settings, master: str, folder: Path, site: Site) -> Team:
    peers = 2 if name == "socket" else settings.peers
    return Team(name, peers, master, asdict(settings), folder, site.hosts)


def _shapes(settings: Settings) -> Iterator[Shape]:
    for size in (0,) if settings.op == "barrier" else settings.sizes:
        many = settings.inflight, settings.coalesced, settings.quantize != ""
        yield Shape(settings.op, size, settings.dtype, settings.in_place, settings.peers, *many)


def _measure(settings: Settings, shape: Shape, teams: list[Team]) -> list[Row]:
    request = {key: value for key, value in asdict(shape).items() if key != "peers"}
    for team in teams:
        team.ask(do="prepare", shape=request)
    exact = {team.name: _check(team, shape) for team in teams}
    shares: dict[str, list[float]] = {team.name: [] for team in teams}
    said = {team.name: _describe(team, settings) for team in teams}
    warm_up = [max(_batch(team, WARM_UP)[0]) for team in teams]
    iterations = metrics.iterations_for(warm_up)
    times: dict[str, list[int]] = {team.name: [] for team in teams}
    for _ in range(settings.rounds):
        for team in teams:
            slowest, share = _batch(team, iterations)
            times[team.name] += slowest
            shares[team.name].append(share)
    return [
        Row(
            op=shape.op,
            contender=team.name,
            peers=shape.peers,
            bytes=shape.actual_size,
            dtype=shape.dtype,
            in_place=shape.in_place,
            inflight=shape.inflight,
            coalesced=shape.coalesced,
            priority=settings.priority,
            beside=settings.beside,
            commit=settings.commit,
            exact=exact[team.name] and _check(team, shape),
            **said[team.name],
            figures=metrics.figures(shape.op, shape.peers, shape.actual_size, times[team.name]),
            quantized=_quantized(team, settings, shares[team.name]) if shape.quantized else None,
        )
        for team in teams
    ]


def _describe(team: Team, settings: Settings) -> dict[str, str]:
    """What bytes go through, of all processes together, and the algorithm. Raises TeamFailed where pccl's processes
    cannot share memory, but must."""
    answers = team.ask(do="describe")
    transport = "+".join(sorted({name for answer in answers for name in answer["transport"].split("+")} - {""}))
    if team.name in (*OWN.values(), EXACT) and settings.transport == "shm" and transport != "shm":
        raise TeamFailed(f"--transport shm: this system lets pccl's processes share no memory; they use {transport}")
    return {"transport": transport, "algorithm": next(filter(None, (one["algorithm"] for one in answers)), "")}


def _check(team: Team, shape: Shape) -> bool:
    """A pair of plain sockets and a barrier compute nothing that could be wrong."""
    answers = team.ask(do="check")
    right = [answer["right"] and answer.get("digest") == answers[0].get("digest") for answer in answers]
    return all(right) or shape.op == "barrier" or team.name == "socket"


def _quantized(team: Team, settings: Settings, shares: list[float]) -> Quantized:
    """Of the worst rank, and of all batches."""
    answers = team.ask(do="check")
    largest, rms = (max(answer["errors"][which] for answer in answers) for which in (0, 1))
    wire_bytes = max(answer["wire_bytes"] for answer in answers)
    name = settings.quantize if team.name in OWN.values() else ""
    return Quantized(name, wire_bytes, largest, rms, sum(shares) / len(shares))


def _batch(team: Team, iterations: int) -> tuple[list[int], float]:
    """How long each took the slowest rank, and the share of a core that a process took."""
    answers = team.ask(do="measure", iterations=iterations)
    return metrics.slowest([it["times_ns"] for it in answers]), sum(it["cpu"] for it in answers) / len(answers)
