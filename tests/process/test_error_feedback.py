# SPDX-License-Identifier: MIT
"""Error feedback with real members: over all steps nothing is lost, also where a step was made again with fewer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pccl
from pccl import ErrorFeedback, QuantizationOptions
from tests.process.local import Local

pytestmark = pytest.mark.process

COUNT = 5000
STEPS = 40
TOP = 300

Vector = np.ndarray[Any, np.dtype[np.float32]]
Call = Callable[[pccl.Communicator, ErrorFeedback, Vector], tuple[Vector, pccl.ReduceInfo]]


def gradient(step: int, place: int) -> Vector:
    """With a part that is the same in each step, which coarse rounding would lose in each."""
    draw = np.random.default_rng((step, place)).standard_normal(COUNT, np.float32)
    return draw + np.linspace(-0.1, 0.1, COUNT, dtype=np.float32)


def dense(comm: pccl.Communicator, feedback: ErrorFeedback, given: Vector) -> tuple[Vector, pccl.ReduceInfo]:
    total = feedback.add("w", given)
    info = comm.all_reduce(total, quantization_options=QuantizationOptions("int4"), errors=feedback.errors("w"))
    return total, info


def few(comm: pccl.Communicator, feedback: ErrorFeedback, given: Vector) -> tuple[Vector, pccl.ReduceInfo]:
    x, errors = feedback.add("w", given), feedback.errors("w")
    indices, values = pccl.top_k(x, TOP, errors)
    options = QuantizationOptions("int4")
    got = comm.all_reduce_sparse(indices, values, COUNT, quantization_options=options, errors=errors)
    return got.dense(), got.info


def train(call: Call, feedback: ErrorFeedback, place: int, steps: range) -> Callable[[pccl.Communicator], Any]:
    """The sum of all results, and the world size of each step."""

    def run(comm: pccl.Communicator) -> tuple[Vector, list[int]]:
        total, sizes = np.zeros(COUNT), []
        for step in steps:
            while True:
                try:
                    result, info = call(comm, feedback, gradient(step, place))
                except pccl.PeerLost:
                    continue
                break
            feedback.commit()
            total += result
            sizes.append(info.world_size)
        return total, sizes

    return run


@pytest.mark.parametrize("call", [dense, few])
@pytest.mark.parametrize("size", [2, 3, 4])
def test_what_came_and_what_is_kept_are_all_that_was_given(call: Call, size: int) -> None:
    feedbacks = [ErrorFeedback() for _ in range(size)]
    with Local(size) as local:
        results = local.each([train(call, it, place, range(STEPS)) for place, it in enumerate(feedbacks)])
    assert len({total.tobytes() for total, _ in results}) == 1
    kept = np.sum([it.state_dict()["w"] for it in feedbacks], axis=0, dtype=np.float64)
    given = np.sum([gradient(step, place) for step in range(STEPS) for place in range(size)], axis=0, dtype=np.float64)
    np.testing.assert_allclose(results[0][0] + kept, given, atol=1e-3 * size)
    assert np.abs(kept).max() > 0.01, "there was something to keep"


@pytest.mark.parametrize("call", [dense, few])
def test_a_member_that_leaves_takes_only_its_own_along(call: Call) -> None:
    """The survivors' steps are made again from what they had kept before."""
    feedbacks = [ErrorFeedback() for _ in range(3)]
    early = range(STEPS // 2)
    with Local(3) as local:

        def leaving(comm: pccl.Communicator) -> Any:
            found = train(call, feedbacks[2], 2, early)(comm)
            comm.close()
            return found

        staying = [train(call, feedbacks[place], place, range(STEPS)) for place in range(2)]
        (first, sizes), (second, _), _ = local.each([*staying, leaving])
    assert first.tobytes() == second.tobytes()
    assert sizes == [3] * len(early) + [2] * (STEPS - len(early))
    kept = np.sum([it.state_dict()["w"] for it in feedbacks], axis=0, dtype=np.float64)
    given = np.sum(
        [gradient(step, place) for place in range(3) for step in (early if place == 2 else range(STEPS))],
        axis=0,
        dtype=np.float64,
    )
    np.testing.assert_allclose(first + kept, given, atol=3e-3)


def test_deferred_steps_are_committed_after_they_are_settled() -> None:
    def call(comm: pccl.Communicator, feedback: ErrorFeedback, given: Vector) -> tuple[Vector, pccl.ReduceInfo]:
        result = dense(comm, feedback, given)
        comm.commit()
        return result

    feedbacks = [ErrorFeedback() for _ in range(2)]
    with Local(2, commit="deferred") as local:
        results = local.each([train(call, it, place, range(STEPS)) for place, it in enumerate(feedbacks)])
    kept = np.sum([it.state_dict()["w"] for it in feedbacks], axis=0, dtype=np.float64)
    given = np.sum([gradient(step, place) for step in range(STEPS) for place in range(2)], axis=0, dtype=np.float64)
    np.testing.assert_allclose(results[0][0] + kept, given, atol=2e-3)
