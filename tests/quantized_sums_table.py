# SPDX-License-Identifier: MIT
"""The table of measured errors of sums in docs/quantization.md: `python -m tests.quantized_sums_table` prints it.

Of an all_reduce of 2^16 values of each kind, among members that are threads of this process: the root mean square of
the errors by the standard deviation of the exact sums.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import pccl
from pccl import Algorithm, QuantizationAlgorithm, QuantizationOptions
from tests.process.local import Local

COUNT = 2**16
SIZES = (2, 4, 8, 16)

BLOCK = QuantizationAlgorithm.BLOCK
ROWS: list[tuple[str, Algorithm, QuantizationOptions]] = [
    ("uint8, min-max", Algorithm.DIRECT, QuantizationOptions("uint8")),
    ("", Algorithm.RING, QuantizationOptions("uint8")),
    ("int8", Algorithm.DIRECT, QuantizationOptions("int8", BLOCK)),
    ("", Algorithm.RING, QuantizationOptions("int8", BLOCK)),
    ("float8_e4m3fn", Algorithm.DIRECT, QuantizationOptions("float8_e4m3fn")),
    ("", Algorithm.RING, QuantizationOptions("float8_e4m3fn")),
    ("int4", Algorithm.DIRECT, QuantizationOptions("int4")),
    ("", Algorithm.RING, QuantizationOptions("int4")),
]

Floats = NDArray[np.float32]


def values(kind: str, rank: int, count: int = COUNT) -> Floats:
    """What a rank has of a kind."""
    random = np.random.default_rng(rank)
    if kind == "uniform":
        return random.uniform(-1, 1, count).astype(np.float32)
    if kind == "heavy-tailed":
        return np.clip(random.standard_t(2, count), -1000, 1000).astype(np.float32)
    x = random.standard_normal(count, np.float32)
    if kind == "outliers":
        x[random.random(count) < 0.002] *= 30
    return x


KINDS = ("normal", "uniform", "heavy-tailed", "outliers")


def errors(local: Local, algorithm: Algorithm, options: QuantizationOptions, kind: str) -> float:
    """In percent."""

    def call(comm: pccl.Communicator) -> Floats:
        x = values(kind, comm.rank)
        comm.all_reduce(x, algorithm=algorithm, quantization_options=options)
        return x

    results = local.all(call)
    exact = np.sum([values(kind, rank).astype(np.float64) for rank in range(len(results))], axis=0)
    return float(100 * np.sqrt(np.square(results[0] - exact).mean()) / exact.std())


def table(sizes: tuple[int, ...] = SIZES) -> list[str]:
    """Lines of markdown: all kinds of values for each size."""
    found: dict[tuple[int, int], list[str]] = {}
    for size in sizes:
        with Local(size) as local:
            for index, (_, algorithm, options) in enumerate(ROWS):
                found[index, size] = [f"{errors(local, algorithm, options, kind):.2g}" for kind in KINDS]
    lines = [f"| form | by | {' | '.join(f'{size} members' for size in sizes)} |", "|---|---|" + "---|" * len(sizes)]
    for index, (name, algorithm, _) in enumerate(ROWS):
        cells = [name, algorithm.name.lower(), *(", ".join(found[index, size]) for size in sizes)]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    print("\n".join(table()))
