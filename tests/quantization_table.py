# SPDX-License-Identifier: MIT
"""The table of measured errors in docs/quantization.md: `python -m tests.quantization_table` prints it.

Of 2^18 values of each kind: the root mean square of the errors by the standard deviation of the values, and the largest
error by its bound.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pccl.quantization import QuantizationAlgorithm, QuantizationOptions

COUNT = 2**18

BLOCK = QuantizationAlgorithm.BLOCK
ROWS: list[tuple[str, QuantizationOptions]] = [
    ("bfloat16", QuantizationOptions("bfloat16")),
    ("float16", QuantizationOptions("float16")),
    ("uint8, min-max", QuantizationOptions("uint8")),
    ("... stochastic", QuantizationOptions("uint8", rounding="stochastic", seed=1)),
    ("uint8, zero point", QuantizationOptions("uint8", QuantizationAlgorithm.ZERO_POINT_SCALE)),
    ("int8", QuantizationOptions("int8", BLOCK)),
    ("... in blocks of 64", QuantizationOptions("int8", BLOCK, block=64)),
    ("... rotated", QuantizationOptions("int8", BLOCK, rotate=True, seed=1)),
    ("float8_e4m3fn", QuantizationOptions("float8_e4m3fn")),
    ("float8_e5m2", QuantizationOptions("float8_e5m2")),
    ("int4", QuantizationOptions("int4")),
    ("... in blocks of 64", QuantizationOptions("int4", block=64)),
    ("... rotated", QuantizationOptions("int4", rotate=True, seed=1)),
    ("int2", QuantizationOptions("int2")),
    ("... in blocks of 64", QuantizationOptions("int2", block=64)),
]


def kinds() -> dict[str, NDArray[np.float32]]:
    """Values of all kinds; heavy-tailed ones are Student's t with 2 degrees of freedom, cut at 1,000."""
    random = np.random.default_rng(1)
    outliers = random.standard_normal(COUNT)
    outliers[random.random(COUNT) < 0.002] *= 30
    values = {
        "normal": random.standard_normal(COUNT),
        "uniform": random.uniform(-1, 1, COUNT),
        "heavy-tailed": np.clip(random.standard_t(2, COUNT), -1000, 1000),
        "outliers": outliers,
        "offset": 100 + random.standard_normal(COUNT),
    }
    return {name: of.astype(np.float32) for name, of in values.items()}


def table() -> list[str]:
    """Lines of markdown."""
    values = kinds()
    lines = [f"| form | bits | {' | '.join(values)} |", "|---|---|" + "---|" * len(values)]
    for name, options in ROWS:
        cells = [name, f"{8 * options.bytes(COUNT) / COUNT:.3g}"]
        for x in values.values():
            off = options.round_trip(x).astype(np.float64) - x
            deviation = np.std(x, dtype=np.float64)
            share = np.max(np.abs(off) / options.bound(x))
            error = 100 * np.sqrt(np.square(off).mean()) / deviation
            cells.append(f"{error:.{0 if error >= 100 else 2}{'f' if error >= 100 else 'g'}} ({100 * share:.0f})")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    print("\n".join(table()))
