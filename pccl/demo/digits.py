# SPDX-License-Identifier: MIT
"""The handwritten digits that scikit-learn ships (1,797 images of 8 x 8), and who trains on which of them.

A shard depends on (round, rank, world size) alone: nothing is handed out, and after a loss the survivors of a round
share all of the data again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

PIXELS = 64
CLASSES = 10
TEST_IMAGES = 360


@dataclass(frozen=True)
class Digits:
    """Images as float32 rows of 64 pixels in [0, 1], labels as int64 in [0, 10)."""

    train_images: NDArray[np.float32]
    train_labels: NDArray[np.int64]
    test_images: NDArray[np.float32]
    test_labels: NDArray[np.int64]


def load() -> Digits:
    """Reads the data set from scikit-learn's package; the split is the same in every process."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    order = np.random.default_rng(0).permutation(len(bunch.target))
    images = (bunch.data[order] / 16.0).astype(np.float32)
    labels = bunch.target[order].astype(np.int64)
    return Digits(images[TEST_IMAGES:], labels[TEST_IMAGES:], images[:TEST_IMAGES], labels[:TEST_IMAGES])


def shard(images: int, rank: int, world_size: int, round_: int) -> NDArray[np.int64]:
    """Which of `images` images `rank` trains on in a round: the shards of all ranks are disjoint and cover
    everything.
    """
    return np.random.default_rng(round_).permutation(images)[rank::world_size]


def batches(indices: NDArray[np.int64], count: int, size: int, seed: tuple[int, int]) -> NDArray[np.int64]:
    """`count` random batches of `size` of the given indices, as rows."""
    return np.random.default_rng(seed).choice(indices, (count, size))
