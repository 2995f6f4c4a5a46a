# SPDX-License-Identifier: MIT
"""Arrays of the user: what is taken, as what, and what is refused with which words."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref

import numpy as np
import pytest

from pccl import DataType, InvalidArgument, arrays
from pccl._native import pointer

NUMPY_TYPES = [
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
    "bool",
    "complex64",
    "complex128",
]


@pytest.mark.parametrize("dtype", NUMPY_TYPES)
def test_numpy_arrays_of_every_type(dtype: str) -> None:
    array = np.zeros((3, 4), dtype)
    borrowed = arrays.borrow(array, True, "send")
    assert borrowed.dtype == DataType[dtype.upper()]
    assert borrowed.elements == 12
    assert borrowed.owner is array
    assert borrowed.address == array.ctypes.data
    assert arrays.describe(borrowed) == f"12 {dtype}"


@pytest.mark.parametrize("shape", [(), (0,), (1, 0, 2), (1,), (2, 3, 4)])
def test_any_shape(shape: tuple[int, ...]) -> None:
    assert arrays.borrow(np.ones(shape, np.float32), True, "send").elements == int(np.prod(shape))


def test_a_slice_starts_where_it_starts() -> None:
    array = np.arange(10, dtype=np.int64)
    assert arrays.borrow(array[3:7], True, "send").address == array.ctypes.data + 24


def refusals() -> dict[str, tuple[object, str]]:
    read_only = np.ones(3, np.float32)
    read_only.flags.writeable = False
    return {
        "strided": (np.ones(10, np.float32)[::2], "send is not C-contiguous"),
        "column": (np.ones((4, 4), np.float32)[:, 1], "send is not C-contiguous"),
        "transposed": (np.ones((4, 5), np.float32).T, "send is not C-contiguous"),
        "broadcast": (np.broadcast_to(np.float32(1), (4,)), "send is (not C-contiguous|read-only)"),
        "read-only": (read_only, "send is read-only"),
        "long double": (np.ones(3, np.longdouble), "send has dtype '<f16'"),
        "date": (np.zeros(3, "M8[s]"), "send has dtype '<M8"),
        "foreign byte order": (np.ones(3, ">f4"), "send has dtype '>f4'"),
        "objects": (np.array([1, None]), "send has dtype"),
        "list": ([1, 2, 3], "send is a list, not a numpy array or a torch tensor"),
        "scalar": (np.float32(1), "send is a float32, not"),
        "none": (None, "send is a NoneType, not"),
    }


@pytest.mark.parametrize("name", refusals())
def test_refused_before_anything_happens(name: str) -> None:
    array, text = refusals()[name]
    with pytest.raises(InvalidArgument, match=text):
        arrays.borrow(array, True, "send")


def test_a_read_only_array_may_be_read() -> None:
    array = np.ones(3, np.float32)
    array.flags.writeable = False
    assert arrays.borrow(array, False, "send").elements == 3


def test_layouts_must_agree() -> None:
    three, four = (arrays.borrow(np.ones(count, np.float32), True, "x") for count in (3, 4))
    with pytest.raises(InvalidArgument, match="send has 3 float32 and recv has 4 float32"):
        arrays.same_layout(three, four)
    with pytest.raises(InvalidArgument, match="send has 3 float32 and recv has 3 float64"):
        arrays.same_layout(three, arrays.borrow(np.ones(3), True, "x"))
    arrays.same_layout(three, three)


def test_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    for dtype in ("bfloat16", "float8_e4m3fn", "float8_e5m2", *NUMPY_TYPES):
        tensor = torch.zeros((3, 4), dtype=getattr(torch, dtype))
        borrowed = arrays.borrow(tensor, True, "send")
        assert borrowed.dtype == DataType[dtype.upper()]
        assert borrowed.elements == 12
        assert borrowed.address == tensor.data_ptr()
        assert arrays.dtype_of(tensor) == DataType[dtype.upper()]
    parameter = torch.nn.Parameter(torch.ones(3))
    assert arrays.borrow(parameter, True, "send").elements == 3
    for wrong, text in {
        "not contiguous": torch.zeros(4, 4).t(),
        "torch.float8_e4m3fnuz": torch.zeros(3, dtype=torch.float8_e4m3fnuz),
        "resolve_conj": torch.zeros(3, dtype=torch.complex64).conj(),
        "resolve_neg": torch.zeros(3, dtype=torch.complex64).conj().imag,
        "meta": torch.zeros(3, device="meta"),
        "to_dense": torch.zeros(3).to_sparse(),
    }.items():
        with pytest.raises(InvalidArgument, match=wrong):
            arrays.borrow(text, True, "send")


def test_the_first_tensors_may_come_in_several_threads_at_once() -> None:
    """Whoever asks for torch's types while another thread collects them, between any two of them, gets all."""
    torch = pytest.importorskip("torch")
    tables = []

    class Overtaken:
        """torch, of which another thread asks for the types at each step of the first one."""

        busy = False

        def __getattr__(self, name: str) -> object:
            if not self.busy:
                self.busy = True
                tables.append(dict(arrays._torch_dtypes(self)))
                self.busy = False
            return getattr(torch, name)

    whole = arrays._torch_dtypes(torch)
    tables.append(arrays._torch_dtypes(Overtaken()))
    assert len(tables) == len(DataType) + 1
    assert all(table == whole for table in tables)


def test_torch_is_not_imported_for_it() -> None:
    code = "import sys, numpy, pccl.arrays as a; a.borrow(numpy.ones(3), True, 'x'); assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_dtype_of_what_is_no_array() -> None:
    with pytest.raises(InvalidArgument, match="list"):
        arrays.dtype_of([True])
    assert pointer(4096) is not None


def test_memory_outlives_a_tensor_that_parts_with_it() -> None:
    torch = pytest.importorskip("torch")
    for part in (lambda tensor: tensor.set_(torch.zeros(1)), lambda tensor: setattr(tensor, "data", torch.zeros(1))):
        array = np.ones(5, np.float32)
        alive = weakref.ref(array)
        tensor = torch.from_numpy(array)
        del array
        borrowed = arrays.borrow(tensor, True, "send")
        part(tensor)
        del tensor
        gc.collect()
        assert alive() is not None
        assert (alive() == 1).all()
        del borrowed
        gc.collect()
        assert alive() is None
