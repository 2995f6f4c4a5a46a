# SPDX-License-Identifier: MIT
"""What rounding has kept back of each parameter's gradient, in float32, until the next step sends it.

Gradients travel in buckets, and a bucket's parameters may be others in the next step (DDP makes its buckets anew after
the first one). So the ledger is kept by parameter; while buckets stay as they are, a bucket finds its residuals in one
piece. Tensors in here never change: a step puts new ones into their places, so that taking a step back costs no copy.

Must not know: formats, groups, or what a gradient is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary


@dataclass(frozen=True)
class _Slice:
    flat: torch.Tensor
    begin: int
    count: int

    @property
    def values(self) -> torch.Tensor:
        return self.flat[self.begin : self.begin + self.count]


class Residuals:
    """By parameter, or any other object that can be weakly referenced; one that is gone takes its residual along."""

    def __init__(self) -> None:
        self._now: Any = WeakIdKeyDictionary()
        self._settled: Any = WeakIdKeyDictionary()

    def of(self, keys: Sequence[Any], counts: Sequence[int]) -> torch.Tensor | None:
        """Those of a bucket, one after the other; None where all are zero. Not to be changed. A key whose number of
        elements is another one than before begins again at zero."""
        slices = [self._now.get(key) for key in keys]
        if not any(slices):
            return None
        whole: torch.Tensor = next(found for found in slices if found is not None).flat
        if whole.numel() == sum(counts) and _are_in_order(slices, counts, whole):
            return whole
        return torch.cat(
            [
                found.values if found is not None and found.count == count else whole.new_zeros(count)
                for found, count in zip(slices, counts, strict=True)
            ]
        )

    def put(self, keys: Sequence[Any], counts: Sequence[int], flat: torch.Tensor) -> None:
        """New ones for a bucket. Takes the tensor over."""
        begin = 0
        for key, count in zip(keys, counts, strict=True):
            self._now[key] = _Slice(flat, begin, count)
            begin += count

    def settle(self) -> None:
        """What is there now is what `undo` goes back to: for a step that all have agreed on."""
        self._settled = self._now.copy()

    def undo(self) -> None:
        """Back to the last `settle`, or to zero if there was none: for a step that all are going to repeat."""
        self._now = self._settled.copy()


def _are_in_order(slices: list[_Slice | None], counts: Sequence[int], flat: torch.Tensor) -> bool:
    begin = 0
    for found, count in zip(slices, counts, strict=True):
        if found is None or found.flat is not flat or found.begin != begin or found.count != count:
            return False
        begin += count
    return True
