# SPDX-License-Identifier: MIT
"""What was kept back comes with the next step, once, and only after a step that succeeded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pccl import ErrorFeedback, InvalidArgument, top_k

GRID = 8
"""What can be sent are its multiples: sums of whole numbers are exact, and so are residuals."""

STEPS = st.lists(st.tuples(st.lists(st.integers(-99, 99), min_size=4, max_size=4), st.integers(0, 2)), max_size=30)
"""Of each, what is to be sent, and how often it fails before."""


def sent(x: Any, errors: Any) -> Any:
    """As a call with quantization."""
    coded = np.round(x / GRID) * GRID
    errors[...] = x - coded
    return coded


@given(STEPS)
def test_all_that_was_sent_and_what_is_kept_are_all_there_was(steps: list[tuple[list[int], int]]) -> None:
    feedback = ErrorFeedback()
    total = np.zeros(4, np.float32)
    for values, failures in steps:
        gradient = np.float32(values)
        for _ in range(failures):
            sent(feedback.add("w", gradient), feedback.errors("w"))
        total += sent(feedback.add("w", gradient), feedback.errors("w"))
        feedback.commit()
    kept = feedback.state_dict().get("w", np.zeros(4))
    np.testing.assert_array_equal(total + kept, np.sum([it for it, _ in steps], axis=0) if steps else np.zeros(4))
    assert np.abs(kept).max() <= GRID / 2


@given(STEPS, st.integers(0, 4))
def test_so_it_is_where_few_elements_are_sent(steps: list[tuple[list[int], int]], k: int) -> None:
    feedback = ErrorFeedback()
    total = np.zeros(4, np.float32)
    for values, failures in steps:
        for attempt in range(failures + 1):
            x = feedback.add("w", np.float32(values))
            errors = feedback.errors("w")
            indices, chosen = top_k(x, k, errors)
            coded = np.round(chosen / GRID) * GRID
            errors[indices] = chosen - coded
            if attempt == failures:
                total[indices] += coded
                feedback.commit()
    kept = feedback.state_dict().get("w", np.zeros(4))
    np.testing.assert_array_equal(total + kept, np.sum([it for it, _ in steps], axis=0) if steps else np.zeros(4))


def test_nothing_counts_before_it_is_committed() -> None:
    feedback = ErrorFeedback()
    feedback.add("w", np.zeros(2, np.float32))
    feedback.errors("w")[:] = 5
    assert feedback.state_dict()["w"].tolist() == [0, 0]
    assert feedback.add("w", np.float32([1, 2])).tolist() == [1, 2]
    feedback.commit()
    assert feedback.add("w", np.float32([1, 2])).tolist() == [1, 2], "the call was to be made again, and was not"
    feedback.errors("w")[:] = 6
    feedback.discard()
    feedback.commit()
    assert feedback.add("w", np.float32([1, 2])).tolist() == [1, 2]
    feedback.errors("w")[:] = 7
    feedback.commit()
    feedback.commit()
    assert feedback.add("w", np.float32([1, 2])).tolist() == [8, 9]


def test_names_are_apart() -> None:
    feedback = ErrorFeedback()
    for name, error in (("a", 1), ("b", 2)):
        feedback.add(name, np.zeros((2, 2), np.float32))
        feedback.errors(name)[...] = error
    feedback.commit()
    feedback.add("a", np.zeros((2, 2), np.float32))
    feedback.errors("a")[...] = 3
    feedback.commit()
    assert {name: it.tolist() for name, it in feedback.state_dict().items()} == {"a": [[3, 3]] * 2, "b": [[2, 2]] * 2}


def test_infinite_values_leave_nothing_behind() -> None:
    feedback = ErrorFeedback()
    feedback.add("w", np.float32([1, np.inf, 3]))
    feedback.errors("w")[:] = [0.5, np.nan, -np.inf]
    feedback.commit()
    assert feedback.state_dict()["w"].tolist() == [0.5, 0, 0]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_sums_are_of_the_dtype_of_what_is_returned(dtype: Any) -> None:
    feedback = kept({"w": np.float32([0.25, 2**-20])})
    array = np.array([1, 1], dtype)
    x = feedback.add("w", array)
    assert x.dtype == dtype
    assert x is not array
    np.testing.assert_array_equal(x, (np.float64([1.25, 1 + 2**-20])).astype(dtype))
    wide = np.zeros(2, np.float32)
    assert feedback.add("w", array, wide) is wide
    np.testing.assert_array_equal(wide, np.float32([1.25, 1 + 2**-20]))
    assert feedback.add("w", array, array) is array
    np.testing.assert_array_equal(array, x)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_tensors(dtype: torch.dtype) -> None:
    feedback = kept({"w": np.float32([[0.25, 0.5]])})
    parameter = torch.nn.Parameter(torch.tensor([[1, 2]], dtype=dtype))
    x = feedback.add("w", parameter)
    assert (x.tolist(), x.dtype, x.requires_grad) == ([[1.25, 2.5]], dtype, False)
    assert feedback.add("w", parameter, parameter) is parameter
    assert parameter.tolist() == [[1.25, 2.5]]
    out = torch.zeros(1, 2)
    assert feedback.add("w", x, out).tolist() == [[1.5, 3.0]]


def test_a_state_is_a_copy_and_replaces_all() -> None:
    given = np.float32([1, 2])
    feedback = kept({"w": given})
    state = feedback.state_dict()
    given[:] = state["w"][:] = 9
    assert feedback.state_dict()["w"].tolist() == [1, 2]
    feedback.add("w", np.zeros(2, np.float32))
    feedback.errors("w")[:] = 5
    feedback.load_state_dict({"v": np.float32([4])})
    feedback.commit()
    assert {name: it.tolist() for name, it in feedback.state_dict().items()} == {"v": [4]}
    with pytest.raises(InvalidArgument, match="'v' must be an array"):
        feedback.load_state_dict({"w": np.float32([4]), "v": [4]})
    assert list(feedback.state_dict()) == ["v"]


def kept(state: dict[str, Any]) -> ErrorFeedback:
    feedback = ErrorFeedback()
    feedback.load_state_dict(state)
    return feedback


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda it: it.errors("v"), "there is no tensor 'v': call add first"),
        (lambda it: it.add("w", np.zeros(3, np.float32)), r"tensor 'w' had the shape \(2,\), and now has \(3,\)"),
        (lambda it: it.add("w", np.zeros(2, np.int32)), "array must be an array or CPU tensor of floats"),
        (lambda it: it.add("w", [1.0, 2.0]), "array must be .* not a list"),
        (lambda it: it.add("w", torch.zeros(2, dtype=torch.int8)), "array must be"),
        (lambda it: it.add("w", np.zeros(2), np.zeros((2, 1))), r"out has the shape \(2, 1\), and array \(2,\)"),
        (lambda it: it.add("w", np.zeros(2), np.zeros(2, np.int64)), "out must be"),
    ],
)
def test_what_is_wrong_is_refused(call: Any, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        call(kept({"w": np.float32([1, 2])}))
