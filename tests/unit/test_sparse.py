# SPDX-License-Identifier: MIT
"""The largest elements of an array, what they leave, and sums of sparse vectors as dense ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pccl import InvalidArgument, ReduceInfo, SparseSum, sparse, top_k

FLOATS = st.floats(width=32)
INFO = ReduceInfo(2, 0, 0, 0, 1, 1)


def summed(values: Any) -> SparseSum:
    return SparseSum(np.array([1, 4]), values, 6, INFO)


@given(arrays.arrays(np.float32, st.integers(0, 60), elements=FLOATS), st.data())
def test_nothing_that_is_left_out_is_larger(array: np.ndarray[Any, np.dtype[np.float32]], data: st.DataObject) -> None:
    k = data.draw(st.integers(0, len(array)))
    rest = np.empty(len(array), np.float32)
    indices, values = top_k(array, k, rest)
    assert len(indices) == k
    assert (np.diff(indices) > 0).all()
    np.testing.assert_array_equal(values, array[indices])
    sizes = np.where(np.isnan(array), np.inf, np.abs(array))
    left = np.setdiff1d(np.arange(len(array)), indices)
    if k > 0 and len(left) > 0:
        least = sizes[indices].min()
        assert sizes[left].max() <= least
        chosen, passed = indices[sizes[indices] == least], left[sizes[left] == least]
        assert len(passed) == 0 or chosen.max() < passed.min(), "of equal ones, those that come first"
    np.testing.assert_array_equal(rest[left], array[left])
    assert not rest[indices].any()


@pytest.mark.parametrize("k", [1, 100, 5000, 60_000, 199_999])
@pytest.mark.parametrize("kind", ["normal", "alike", "rising", "few", "undefined", "periodic"])
def test_of_many_elements_the_same_are_chosen(kind: str, k: int) -> None:
    """Whatever a sample of them tells."""
    count = 200_000
    array = np.random.default_rng(1).standard_normal(count, np.float32)
    if kind == "alike":
        array = np.round(array)
    elif kind == "rising":
        array.sort()
    elif kind == "few":
        array[100:-100] = 0
    elif kind == "undefined":
        array[::7] = np.nan
    elif kind == "periodic":
        array[:: count // sparse._SAMPLE] = 100
    indices, _ = top_k(array, k)
    order = np.lexsort((np.arange(count), -np.where(np.isnan(array), np.inf, np.abs(array))))
    np.testing.assert_array_equal(indices, np.sort(order[:k]))


def test_arrays_of_any_shape_and_kind() -> None:
    array = np.array([[1, -5, 0], [4, 2, -3]], np.float64)
    rest = np.empty((2, 3), np.float32)
    indices, values = top_k(array, 3, rest)
    assert indices.tolist() == [1, 3, 5]
    assert values.tolist() == [-5, 4, -3]
    assert rest.tolist() == [[1, 0, 0], [0, 2, 0]]
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        tensor = torch.tensor(array, dtype=dtype, requires_grad=True)
        indices, values = top_k(tensor, 3, rest)
        assert (indices.tolist(), values.tolist(), values.dtype) == ([1, 3, 5], [-5, 4, -3], dtype)
        assert rest.tolist() == [[1, 0, 0], [0, 2, 0]]


@pytest.mark.parametrize(
    ("array", "k", "rest", "text"),
    [
        (np.zeros(3), 4, None, "k must be a whole number from 0 to 3"),
        (np.zeros(3), -1, None, "k must be"),
        (np.zeros(3, np.int32), 1, None, "array holds int32, not floats"),
        (np.zeros(3), 1, np.zeros(3), "rest must be a contiguous, writable array of 3 float32"),
        (np.zeros(3), 1, np.zeros(4, np.float32), "rest must be"),
        (np.zeros(3), 1, np.zeros((3, 2), np.float32)[:, 0], "rest must be"),
        (np.zeros(3), 1, [0, 0, 0], "rest must be"),
        (torch.zeros(3, dtype=torch.int8), 1, None, "array holds torch.int8, not floats"),
    ],
)
def test_what_cannot_be_chosen_from_is_refused(array: Any, k: int, rest: Any, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        top_k(array, k, rest)


def test_a_sum_as_a_dense_vector() -> None:
    assert summed(np.float32([2, 3])).dense().tolist() == [0, 2, 0, 0, 3, 0]
    out = np.full((2, 3), 7, np.float32)
    assert summed(np.float32([2, 3])).dense(out) is out
    assert out.tolist() == [[0, 2, 0], [0, 3, 0]]
    dense = summed(torch.tensor([2, 3], dtype=torch.bfloat16)).dense()
    assert (dense.tolist(), dense.dtype) == ([0, 2, 0, 0, 3, 0], torch.bfloat16)
    tensor = torch.full((3, 2), 7.0)
    assert summed(torch.tensor([2.0, 3.0])).dense(tensor) is tensor
    assert tensor.tolist() == [[0, 2], [0, 0], [3, 0]]


@pytest.mark.parametrize(
    "out", [np.zeros(6), np.zeros(5, np.float32), np.zeros((6, 2), np.float32)[:, 0], torch.zeros(6), [0] * 6]
)
def test_what_a_sum_cannot_be_written_to_is_refused(out: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^out "):
        summed(np.float32([2, 3])).dense(out)
