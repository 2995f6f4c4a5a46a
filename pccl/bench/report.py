# SPDX-License-Identifier: MIT
"""How results are shown: a table for people, or one JSON object a line for programs. Rows come out as they are
measured.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass

from pccl.bench import sizes
from pccl.bench.metrics import Figures


@dataclass(frozen=True)
class Quantized:
    """Of values that are not exact: in which format they went (empty: in their own), the bytes that the busiest rank
    sent, the largest error and the root of the mean squares relative to the range of all values given, and the share of
    a core that a process took, on average. Bandwidths beside it are those of the values, not of what was sent."""

    format: str
    wire_bytes: int
    error_max: float
    error_rms: float
    cpu: float


@dataclass(frozen=True)
class Row:
    """One contender at one size; `bytes` are those of all operations in flight together. `exact`: every rank's result
    was right to the last bit; with `quantized`, the same on all ranks that get the same, and no nonsense. `transport`
    and `algorithm` are empty where the contender does not tell."""

    op: str
    contender: str
    peers: int
    bytes: int
    dtype: str
    in_place: bool
    inflight: int
    coalesced: bool
    priority: int
    beside: int
    commit: str
    exact: bool
    transport: str
    algorithm: str
    figures: Figures
    quantized: Quantized | None = None


class JsonReport:
    """One object per contender and size."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write

    def begin(self, title: str, contenders: list[str], *, quantized: bool = False) -> None:
        """JSON needs no heading."""

    def rows(self, rows: list[Row]) -> None:
        """`speedup` on other contenders' lines: their median time over pccl's."""
        own = rows[0].figures.median_us
        for row in rows:
            fields = asdict(row)
            fields.update({name: round(value, 4) for name, value in fields.pop("figures").items()})
            fields.update(fields.pop("quantized") or {})
            if row is not rows[0]:
                fields["speedup"] = round(row.figures.median_us / own, 3)
            self._write(json.dumps(fields))


class TableReport:
    """A line per size: pccl's figures, then each other contender's median and how many times as long that is."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._width = 16

    def begin(self, title: str, contenders: list[str], *, quantized: bool = False) -> None:
        """The heading."""
        self._width = max(16, len(title))
        heading = f"{title:>{self._width}} {'median us':>11} {'min us':>11} {'p99 us':>11}"
        heading += f" {'algbw GB/s':>11} {'busbw GB/s':>11} {'via':>7} {'algorithm':>13}"
        if quantized:
            heading += f" {'sent':>11} {'max error':>10} {'rms error':>10} {'cpu':>5}"
        for name in contenders[1:]:
            heading += f" {name + ' us':>12} {'ratio':>7}"
        self._write(heading)

    def rows(self, rows: list[Row]) -> None:
        """One line; a result that was not exact is called WRONG."""
        own = rows[0].figures
        line = f"{sizes.show(rows[0].bytes):>{self._width}} {own.median_us:11.1f} {own.min_us:11.1f} {own.p99_us:11.1f}"
        line += f" {own.algbw_gbs:11.3f} {own.busbw_gbs:11.3f} {rows[0].transport:>7} {rows[0].algorithm:>13}"
        if (of := rows[0].quantized) is not None:
            line += f" {of.wire_bytes:11} {of.error_max:10.2e} {of.error_rms:10.2e} {of.cpu:5.2f}"
        for row in rows[1:]:
            ratio = row.figures.median_us / own.median_us
            line += f" {row.figures.median_us:12.1f} {ratio:6.{2 if ratio >= 0.1 else 4}f}x"
        wrong = [row.contender for row in rows if not row.exact]
        self._write(line + (f"  WRONG: {', '.join(wrong)}" if wrong else ""))


Report = JsonReport | TableReport
