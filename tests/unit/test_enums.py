# SPDX-License-Identifier: MIT
"""Kinds and their names elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

from pccl import Algorithm, Attribute, Collective, DataType, InvalidArgument, ReduceOp
from pccl._cffi import ffi, lib
from pccl.enums import TORCH_ONLY


def test_types_go_to_numpy_and_back() -> None:
    for kind in DataType:
        if kind not in TORCH_ONLY:
            assert DataType.from_numpy_dtype(kind.to_numpy_dtype()) is kind
            continue
        with pytest.raises(InvalidArgument, match=f"numpy has no {kind.name.lower()}"):
            kind.to_numpy_dtype()
    for dtype in (np.dtype("g"), np.dtype(">f4"), np.dtype("G"), np.dtype("M8[s]"), np.dtype("U3")):
        with pytest.raises(InvalidArgument, match="no DataType"):
            DataType.from_numpy_dtype(dtype)


def test_types_go_to_torch_and_back() -> None:
    torch = pytest.importorskip("torch")
    for kind in DataType:
        assert DataType.from_torch_dtype(kind.to_torch_dtype()) is kind
    with pytest.raises(InvalidArgument, match="complex32"):
        DataType.from_torch_dtype(torch.complex32)


def test_lists_are_those_of_the_library() -> None:
    for mirror, count, name_of in (
        (Algorithm, lib.PCCL_ALGORITHM_COUNT, lib.pccl_algorithm_name),
        (Collective, lib.PCCL_COLLECTIVE_COUNT, lib.pccl_collective_name),
        (DataType, lib.PCCL_DTYPE_COUNT, lib.pccl_dtype_name),
        (ReduceOp, lib.PCCL_REDUCE_OP_COUNT, lib.pccl_reduce_op_name),
    ):
        names = [ffi.string(name_of(number)).decode().upper() for number in range(count)]
        assert [(int(member), member.name) for member in mirror] == list(enumerate(names))


def test_second_names() -> None:
    assert DataType.FLOAT is DataType.FLOAT32
    assert DataType.DOUBLE is DataType.FLOAT64
    assert Attribute.LOCAL_WORLD_SIZE is Attribute.PEER_GROUP_WORLD_SIZE
    assert len(Attribute) == 4
