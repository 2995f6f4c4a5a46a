# SPDX-License-Identifier: MIT
"""A stress test as a small file: how many peers, what they do, what goes wrong. Read, checked, and then plain values.

Whatever is wrong with a file is one `ScenarioError` that names file, line and key, and says what would be right.

Must not know: how any of it is done.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pccl.stress.kinds import KINDS
from pccl.stress.values import PARTS, PEERS_MAX, SLOTS
from pccl.stress.workload import COLLECTIVES

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = Path(__file__).with_name("scenarios")

_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_RATES = {"kbit": 1_000, "mbit": 1_000_000, "gbit": 1_000_000_000}
_SMALLEST = 8 * (SLOTS + 1)

Span = tuple[float, float]


class ScenarioError(ValueError):
    """What is wrong with a scenario, and where."""

    def __init__(self, path: Path, line: int | None, key: str, text: str) -> None:
        where = str(path) if line is None else f"{path}:{line}"
        super().__init__(f"{where}: {key}: {text}" if key else f"{where}: {text}")
        self.path, self.line, self.key = path, line, key


@dataclass(frozen=True)
class Source:
    """How often a kind of fault is drawn, beside the others, and for how long it is held."""

    kind: str
    weight: float = 1.0
    hold_s: Span = (0.0, 0.0)


@dataclass(frozen=True)
class Work:
    """What the peers do in a step: one concurrent operation per tensor and one all_reduce of the state's gradient. The
    first tensor is always all-reduced, the others take part in one of `collectives` each. `connections` is how many TCP
    connections a link has; 0 lets pccl choose, and the number of descriptors varies."""

    tensors: tuple[int, ...] = (4 << 20, 1 << 20, 64 << 10, 8 << 10)
    collectives: tuple[str, ...] = tuple(COLLECTIVES)
    state: int = 1 << 20
    in_flight: int = 4
    steps_per_sync: int = 5
    pause_ms: float = 0.0
    connections: int = 4

    @property
    def bytes(self) -> int:
        """Of all tensors and the state together."""
        return sum(self.tensors) + self.state


@dataclass(frozen=True)
class Scenario:
    """Sizes in bytes, rates in bits a second. `double` is the share of faults that another one joins at once,
    `margin_s` what recovery may take beyond the heartbeat limit, `slow_rate` what a slow link has left."""

    name: str
    title: str
    minutes: float = 5.0
    peers: int = 4
    gap_s: Span = (1.0, 4.0)
    double: float = 0.0
    margin_s: float = 15.0
    heartbeat_s: float = 5.0
    link_rate: int = 0
    slow_rate: int = 20_000_000
    work: Work = Work()
    faults: tuple[Source, ...] = ()


def names() -> list[str]:
    """Of the scenarios that come with pccl."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load(name: str) -> Scenario:
    """A scenario by its name, or from a file by its path. Raises ScenarioError."""
    path = Path(name) if name.endswith(".toml") else FOLDER / f"{name}.toml"
    if not path.exists():
        known = ", ".join(names())
        raise ScenarioError(Path(name), None, "", f"no such scenario; there are {known}, and files of yours (*.toml)")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as failure:
        raise ScenarioError(path, None, "", getattr(failure, "strerror", None) or "is no text in UTF-8") from None
    return parse(text, path)


def parse(text: str, path: Path) -> Scenario:
    """Reads and checks the text of a file. Raises ScenarioError."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as failure:
        found = re.search(r"line (\d+)", str(failure))
        raise ScenarioError(path, int(found.group(1)) if found else None, "", str(failure)) from None
    return _Reader(text, path).scenario(document)


class _Reader:
    """Takes a document apart, key by key; a key that nobody takes is an error."""

    def __init__(self, text: str, path: Path) -> None:
        self._text = text
        self._path = path

    def scenario(self, document: dict[str, Any]) -> Scenario:
        document = dict(document)
        work = self._table(document.pop("work", {}), "work", _WORK)
        faults = document.pop("faults", {})
        if not isinstance(faults, dict):
            raise self._error("faults", "is a table of tables, as in [faults.kill]")
        top = self._table(document, "", _TOP)
        if "title" not in top:
            raise self._error("title", "is missing: one line about what the scenario tries")
        sources = tuple(self._source(kind, table) for kind, table in faults.items())
        return Scenario(name=self._path.stem, work=Work(**work), faults=sources, **top)

    def _source(self, kind: str, table: Any) -> Source:
        if kind not in KINDS:
            raise self._error(f"faults.{kind}", f"is no kind of fault; there are {', '.join(KINDS)}")
        if not isinstance(table, dict):
            raise self._error(f"faults.{kind}", f"is a table, as in [faults.{kind}]")
        return Source(kind, **self._table(table, f"faults.{kind}", _SOURCE))

    def _table(self, table: Any, prefix: str, checks: dict[str, Callable[[Any], Any]]) -> dict[str, Any]:
        if not isinstance(table, dict):
            raise self._error(prefix, f"is a table, as in [{prefix}]")
        read = {}
        for key, value in table.items():
            full = f"{prefix}.{key}" if prefix else key
            if key not in checks:
                raise self._error(full, f"is not known; there are {', '.join(checks)}")
            try:
                read[key] = checks[key](value)
            except ValueError as wrong:
                raise self._error(full, f"{wrong}, not {value!r}") from None
        return read

    def _error(self, key: str, text: str) -> ScenarioError:
        return ScenarioError(self._path, self._line(key), key, text)

    def _line(self, key: str) -> int | None:
        """Where the key stands, or else its table."""
        *tables, last = key.split(".")
        table, found = "", None
        for number, line in enumerate(self._text.splitlines(), 1):
            head = re.match(r"\s*\[([^\[\]]+)\]", line)
            if head:
                table = head.group(1).strip()
                if table == key:
                    return number
                if table == ".".join(tables):
                    found = number
            elif table == ".".join(tables) and re.match(rf"\s*{re.escape(last)}\s*=", line):
                return number
        return found


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("is a text")
    return value


def _number(least: float, most: float) -> Callable[[Any], float]:
    def check(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise ValueError(f"is a number from {least:g} to {most:g}")
        return float(value)

    return check


def _whole(least: int, most: int) -> Callable[[Any], int]:
    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError(f"is a whole number from {least} to {most}")
        return value

    return check


def _span(value: Any) -> Span:
    check = _number(0, 3600)
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError("is two numbers of seconds, the least and the most, as in [1, 4]")
    least, most = check(value[0]), check(value[1])
    if least > most:
        raise ValueError("begins with the smaller number")
    return least, most


def _size(value: Any) -> int:
    """Bytes of a text like "4 MiB"."""
    found = re.fullmatch(r"(\d+)\s*(B|KiB|MiB|GiB)", value) if isinstance(value, str) else None
    if found is None:
        raise ValueError('is a size like "64 KiB" or "4 MiB"')
    count = int(found.group(1)) * _UNITS[found.group(2)]
    if not _SMALLEST <= count <= 4 << 30:
        raise ValueError(f"is a size of at least {_SMALLEST} bytes and at most 4 GiB")
    return count


def sizes(value: Any) -> tuple[int, ...]:
    """Bytes of a list of texts like "4 MiB"."""
    if not isinstance(value, list) or not 1 <= len(value) < PARTS:
        raise ValueError(f"is a list of 1 to {PARTS - 1} sizes")
    return tuple(_size(one) for one in value)


def collectives(value: Any) -> tuple[str, ...]:
    """Collectives by their names, each at most once."""
    if not isinstance(value, list) or not value or any(not isinstance(one, str) for one in value):
        raise ValueError('is a list of collectives, as in ["all_reduce", "all_gather"]')
    if any(one not in COLLECTIVES for one in value):
        raise ValueError(f"is one of {', '.join(COLLECTIVES)}")
    return tuple(dict.fromkeys(value))


def rate(value: Any) -> int:
    """Bits a second of a text like "100 mbit"."""
    found = re.fullmatch(r"(\d+)\s*(kbit|mbit|gbit)", value) if isinstance(value, str) else None
    if found is None:
        raise ValueError('is a rate like "100 mbit" or "1 gbit"')
    return int(found.group(1)) * _RATES[found.group(2)]


_TOP: dict[str, Callable[[Any], Any]] = {
    "title": _text,
    "minutes": _number(0.1, 60 * 24 * 31),
    "peers": _whole(2, PEERS_MAX),
    "gap_s": _span,
    "double": _number(0, 1),
    "margin_s": _number(1, 600),
    "heartbeat_s": _number(0.2, 60),
    "link_rate": rate,
    "slow_rate": rate,
}
_WORK: dict[str, Callable[[Any], Any]] = {
    "tensors": sizes,
    "collectives": collectives,
    "state": _size,
    "in_flight": _whole(1, 64),
    "steps_per_sync": _whole(1, 10_000),
    "pause_ms": _number(0, 60_000),
    "connections": _whole(0, 64),
}
_SOURCE: dict[str, Callable[[Any], Any]] = {"weight": _number(0.001, 1000), "hold_s": _span}

assert set(_WORK) == {field.name for field in fields(Work)}
