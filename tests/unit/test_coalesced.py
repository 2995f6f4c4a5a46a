# SPDX-License-Identifier: MIT
"""Many arrays of one all_reduce: what the engine is told of them, and each that does not fit is named by its place."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from pccl import Algorithm, Collective, DataType, InvalidArgument, PremulSum, ReduceOp, coalesced
from pccl._native import address, constants
from pccl.request import Modes, Request

MODES = Modes.of(deferred=False, preserve_input=False)
SHAPES = [(), (3,), (0,), (2, 5), (1, 0, 2)]


def made(tensors: Any, out: Any = None, op: Any = ReduceOp.SUM, tag: Any = 0) -> Request:
    return coalesced.all_reduce(tensors, out, op, tag, Algorithm.AUTO, None, MODES)


def arrays(dtype: str = "float32") -> list[Any]:
    return [np.ones(shape, dtype) for shape in SHAPES]


def listed(one: Request) -> list[tuple[int, int, int]]:
    tensors = [one.call.tensors[index] for index in range(one.call.tensors_count)]
    return [(address(it.input), address(it.output), it.count) for it in tensors]


def wanted(tensors: list[Any], out: list[Any]) -> list[tuple[int, int, int]]:
    return [(source.ctypes.data, target.ctypes.data, source.size) for source, target in zip(tensors, out, strict=True)]


def test_the_engine_is_told_of_each() -> None:
    given, out = arrays(), arrays()
    for one, targets in ((made(given), given), (made(given, given), given), (made(iter(given), tuple(out)), out)):
        assert listed(one) == wanted(given, targets)
        call = one.call
        assert (call.collective, call.dtype, call.op) == (Collective.ALL_REDUCE, DataType.FLOAT32, ReduceOp.SUM)
        assert call.flags == (constants.PCCL_DISCARD_INPUT if targets is given else 0)
    one = made(given, [*given[:4], out[4]], PremulSum(2.5), 7)
    assert (one.call.op, one.call.factor, one.call.tag, one.call.flags) == (ReduceOp.PREMUL_SUM, 2.5, 7, 0)


def test_torch_tensors_and_arrays_may_be_mixed() -> None:
    torch = pytest.importorskip("torch")
    tensor, array = torch.ones(2, 3), np.ones(6, np.float32)
    assert listed(made([tensor, array], [array.copy(), tensor.clone()]))[0][::2] == (tensor.data_ptr(), 6)


def test_their_memory_lives_as_long_as_the_request() -> None:
    one = made(arrays())
    for source, _ in one.owner[0]:
        assert source.owner.size == source.elements
    assert listed(one) == [(source.address, target.address, source.elements) for source, target in one.owner[0]]


@pytest.mark.parametrize("index", range(len(SHAPES)))
def test_the_one_that_does_not_fit_is_named(index: int) -> None:
    read_only = np.ones(4, np.float32)
    read_only.flags.writeable = False
    unfit = {
        "is a list, not a numpy array": [1.0],
        "has dtype '<U1'": np.array("x"),
        "is not C-contiguous": np.ones((4, 4), np.float32)[:, ::2],
        "is read-only": read_only,
    }
    for (text, one), as_out in itertools.product(unfit.items(), (False, True)):
        given, out = arrays(), arrays()
        (out if as_out else given)[index] = one
        with pytest.raises(InvalidArgument, match=rf"{'out' if as_out else 'tensors'}\[{index}\] {text}"):
            made(given, out if as_out else None)
    given = arrays()
    given[index] = np.ones(SHAPES[index], np.float64)
    odd = max(index, 1)  # all are held against the first one
    with pytest.raises(InvalidArgument, match=rf"tensors\[{odd}\] has .* and tensors\[0\] has .*; all must be of one"):
        made(given)
    for other in (np.ones(99, np.float32), np.ones(SHAPES[index], np.int32)):
        out = arrays()
        out[index] = other
        with pytest.raises(InvalidArgument, match=rf"tensors\[{index}\] has .* and out\[{index}\] has .* be alike"):
            made(arrays(), out)


def test_lists_that_are_none() -> None:
    for none in (None, 5, np.ones((2, 3), np.float32)):
        with pytest.raises(InvalidArgument, match=r"tensors is a .*, not a list of arrays"):
            made(none)
    with pytest.raises(InvalidArgument, match="out is a ndarray, not a list of arrays"):
        made(arrays(), np.ones(5, np.float32))
    with pytest.raises(InvalidArgument, match="there are 5 tensors, but 4 in out"):
        made(arrays(), arrays()[:4])
    with pytest.raises(InvalidArgument, match="there is nothing to reduce: tensors is empty"):
        made([])
