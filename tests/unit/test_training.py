# SPDX-License-Identifier: MIT
"""The mathematics of the demo, in one process: shards, gradients, and that DiLoCo learns the digits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from pccl.demo import chart, digits, diloco, mlp

pytest.importorskip("sklearn")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Products this small only lose by threads, the more so beside other tests."""
    with threadpool_limits(1):
        yield


@pytest.mark.parametrize("world_size", [1, 2, 3, 7])
def test_shards_of_a_round_are_disjoint_and_cover_everything(world_size: int) -> None:
    shards = [digits.shard(1437, rank, world_size, 5) for rank in range(world_size)]
    assert sorted(np.concatenate(shards)) == list(range(1437))
    assert not np.array_equal(shards[0], digits.shard(1437, 0, world_size, 6))


def test_the_gradient_is_what_finite_differences_say() -> None:
    generator = np.random.default_rng(3)
    parameters = mlp.initial_parameters(2).astype(np.float64)  # float32 is too coarse for differences
    images = generator.random((16, digits.PIXELS))
    labels = generator.integers(0, digits.CLASSES, 16)
    _, gradient = mlp.loss_and_gradient(parameters, images, labels)
    direction = generator.standard_normal(len(parameters))
    step = 1e-6
    above, _ = mlp.loss_and_gradient(parameters + step * direction, images, labels)
    below, _ = mlp.loss_and_gradient(parameters - step * direction, images, labels)
    assert (above - below) / (2 * step) == pytest.approx(float(gradient @ direction), rel=1e-4)


def test_three_ranks_learn_the_digits() -> None:
    data, outer = digits.load(), diloco.Outer()
    for _ in range(30):
        moved = [diloco.local_steps(outer, data, rank, 3, 40)[1] for rank in range(3)]
        outer.step(np.mean(moved, axis=0, dtype=np.float32))
    assert int(outer.round[0]) == 30
    assert mlp.accuracy(outer.parameters, data.test_images, data.test_labels) > 0.93


def test_the_digest_sees_every_tensor() -> None:
    outer = diloco.Outer()
    seen = {outer.digest()}
    for tensor in outer.tensors().values():
        tensor[0] += 1
        seen.add(outer.digest())
    assert len(seen) == 4


def test_the_picture_is_a_png(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    history = chart.History()
    for second in range(5):
        for peer in ("peer-0", "peer-1"):
            history.round_finished(peer, float(second), 1.0 / (second + 1), 2 + second // 3)
    history.events.append((2.5, "a newcomer"))
    assert history.members == [(0.0, 2), (3.0, 3)]
    chart.write(history, tmp_path / "demo.png")
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")
