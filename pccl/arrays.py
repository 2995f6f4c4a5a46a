# SPDX-License-Identifier: MIT
"""What a user hands in (numpy array or torch CPU tensor) as the engine wants it: pointer, dtype, count.

torch is never imported here: who passes a tensor has imported it. Every check happens before any traffic, and says
which argument is wrong.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from pccl import _native
from pccl.enums import TORCH_ONLY, DataType
from pccl.errors import InvalidArgument

_NUMPY: dict[np.dtype[Any], int] = {
    np.dtype(_native.dtype_name(kind)): int(kind) for kind in DataType if kind not in TORCH_ONLY
}
_NUMBERS = {dtype.num: _NUMPY[dtype] for dtype in map(np.dtype, np.typecodes["All"]) if dtype in _NUMPY}
"""The same by numpy's own numbers, of which some are the same type: long and long long."""


class Borrowed(NamedTuple):
    """An array's memory; `owner` keeps it alive and in place, whatever becomes of the array (unless it is told to free
    its memory: `resize_`, `resize(refcheck=False)`)."""

    address: int
    dtype: int
    elements: int
    owner: object


NOTHING = Borrowed(0, 0, 0, None)
"""Where a collective has no buffer on this rank."""


@_native.quickened("borrow", Borrowed, _NUMBERS)
def borrow(array: Any, writable: bool, name: str) -> Borrowed:
    """The memory of a C-contiguous numpy array or torch CPU tensor of a dtype in `DataType`, of any shape.

    Raises InvalidArgument that begins with `name`.
    """
    if isinstance(array, np.ndarray):
        if array.__class__ is not np.ndarray and isinstance(array, np.ma.MaskedArray):
            raise InvalidArgument(f"{name} is a masked array; pass filled() of it, or its data and its mask apart")
        try:
            address = _native.address(_native.pin(array, writable))
            return Borrowed(address, _NUMPY[array.dtype], array.size, array)
        except (KeyError, ValueError, BufferError):
            _refuse_numpy(array, name)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return _borrow_torch(torch, array, name)
    raise InvalidArgument(f"{name} is a {type(array).__name__}, not a numpy array or a torch tensor")


def same_layout(source: Borrowed, target: Borrowed) -> None:
    """Raises InvalidArgument unless both have one dtype and one count."""
    if source.dtype != target.dtype or source.elements != target.elements:
        raise InvalidArgument(f"send has {describe(source)} and recv has {describe(target)}; they must be alike")


def describe(borrowed: Borrowed) -> str:
    """For messages: 5 float32."""
    return f"{borrowed.elements} {_native.dtype_name(borrowed.dtype)}"


def dtype_of(array: Any) -> DataType:
    """The element type of an array or tensor. Raises InvalidArgument for what pccl does not know."""
    if isinstance(array, np.ndarray):
        return DataType.from_numpy_dtype(array.dtype)
    return DataType.from_torch_dtype(getattr(array, "dtype", type(array).__name__))


def is_tensor(array: Any) -> bool:
    """torch is never imported for it: who passes a tensor has imported it."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def as_numpy(array: Any) -> NDArray[Any]:
    """The same floats; those that numpy does not have in float32."""
    if not is_tensor(array):
        return np.asarray(array)
    array = array.detach()
    return np.asarray((array.float() if array.element_size() < 4 else array).numpy())


def float32(name: str, array: Any, elements: int) -> NDArray[np.float32]:
    """A flat view of an array or tensor that float32 are written to. Raises InvalidArgument."""
    if is_tensor(array):
        array = array.detach().numpy() if array.device.type == "cpu" and array.is_contiguous() else None
    if (
        not isinstance(array, np.ndarray)
        or array.dtype != np.float32
        or array.size != elements
        or not array.flags.c_contiguous
        or not array.flags.writeable
    ):
        raise InvalidArgument(f"{name} must be a contiguous, writable array of {elements} float32")
    return array.reshape(-1)


def _refuse_numpy(array: np.ndarray[Any, Any], name: str) -> NoReturn:
    if array.dtype not in _NUMPY:
        raise InvalidArgument(f"{name} has dtype {array.dtype.str!r}; supported: {', '.join(map(str, _NUMPY))}")
    if not array.flags.c_contiguous:
        raise InvalidArgument(f"{name} is not C-contiguous; pass numpy.ascontiguousarray of it")
    raise InvalidArgument(f"{name} is read-only, but would be written to")


@functools.cache
def _torch_dtypes(torch: Any) -> dict[Any, int]:
    """Made when the first tensor comes; by each thread that has one before it is there."""
    known = ((getattr(torch, _native.dtype_name(kind), None), int(kind)) for kind in DataType)
    return {dtype: kind for dtype, kind in known if dtype is not None}


def _borrow_torch(torch: Any, tensor: Any, name: str) -> Borrowed:
    dtypes = _torch_dtypes(torch)
    dtype = dtypes.get(tensor.dtype)
    if hasattr(tensor, "to_local"):
        raise InvalidArgument(f"{name} is a distributed tensor; pass its local part, to_local()")
    if tensor.device.type != "cpu":
        raise InvalidArgument(f"{name} is on {tensor.device}; pccl works on CPU tensors")
    if dtype is None:
        raise InvalidArgument(f"{name} has dtype {tensor.dtype}; supported: {', '.join(map(str, dtypes))}")
    if tensor.is_nested or tensor.layout != torch.strided:
        raise InvalidArgument(f"{name} is not a plain dense tensor; pass tensor.to_dense()")
    if tensor.is_neg() or tensor.is_conj():
        resolve = "resolve_neg" if tensor.is_neg() else "resolve_conj"
        raise InvalidArgument(f"{name} is not a plain dense tensor; pass tensor.{resolve}()")
    if not tensor.is_contiguous():
        raise InvalidArgument(f"{name} is not contiguous; pass tensor.contiguous()")
    try:
        address, elements, storage = tensor.data_ptr(), tensor.numel(), tensor.untyped_storage()
    except RuntimeError as failure:
        raise InvalidArgument(f"{name} has no memory of its own: {failure}") from None
    if elements > 0 and address == 0:
        raise InvalidArgument(f"{name} has no memory: its storage was freed, or it is a fake tensor")
    return Borrowed(address, dtype, elements, storage)  # which a tensor may part with: set_(), .data
