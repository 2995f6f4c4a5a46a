# SPDX-License-Identifier: MIT
"""Torch's tensors as the engine takes them: dense, contiguous, on the CPU, of a dtype that it knows.

What for: all checks of what a user hands in, and what is done about tensors that are not so. Must not know: groups,
operations.

The one idea: what does not fit is *staged*. An input is copied before anything is sent; an output is received beside
the tensor and copied into it when the operation has succeeded. Where that would be wrong, as with tensors whose
elements share memory, the call is refused before any traffic. What is only moved may be of any dtype: it goes as bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed import ReduceOp as TorchOp

from pccl.arrays import _torch_dtypes
from pccl.enums import PremulSum, ReduceOp
from pccl.errors import InvalidArgument

_BYTES_ONLY = (torch.float8_e4m3fn, torch.float8_e5m2)
_KNOWN = _torch_dtypes(torch)

_OPS = {
    "SUM": ReduceOp.SUM,
    "AVG": ReduceOp.AVG,
    "PRODUCT": ReduceOp.PROD,
    "MIN": ReduceOp.MIN,
    "MAX": ReduceOp.MAX,
    "BAND": ReduceOp.BAND,
    "BOR": ReduceOp.BOR,
    "BXOR": ReduceOp.BXOR,
}


class NotReducible(InvalidArgument, TypeError):
    """Tensors of this dtype can be moved, not reduced."""


class Staged(NamedTuple):
    """`memory` is what the engine reads or writes. `finish`, if any, brings what it wrote to where it belongs."""

    memory: Tensor
    finish: Callable[[], object] | None = None


def reduction(op: Any) -> ReduceOp | PremulSum:
    """Torch's operation as pccl's. Raises InvalidArgument for what there is no other of."""
    kind, factor = (op, None) if isinstance(op, TorchOp.RedOpType) else op.__getstate__()
    if kind.name in _OPS:
        return _OPS[kind.name]
    if kind.name == "PREMUL_SUM" and factor is not None:
        return PremulSum(float(factor))
    raise InvalidArgument(f"there is no reduction {kind}")


def reducible(tensor: Tensor, name: str) -> None:
    """Raises NotReducible unless there is arithmetic for its dtype."""
    if tensor.dtype not in _KNOWN or tensor.dtype in _BYTES_ONLY:
        raise NotReducible(f"{name} has dtype {tensor.dtype}, which can be moved but not reduced")


def writable(tensor: Tensor, name: str) -> None:
    """Raises InvalidArgument where elements of it are one."""
    if torch._debug_has_internal_overlap(tensor) == 1:
        raise InvalidArgument(f"{name} has elements that share memory (it was expanded), but would be written to")


def source(tensor: Tensor, name: str) -> Tensor:
    """What is only read."""
    _check_dense(tensor, name)
    if not _is_plain(tensor):
        tensor = tensor.detach().resolve_conj().resolve_neg().to("cpu").contiguous()
    return _movable(tensor)


def target(tensor: Tensor, name: str, *, keep: bool = False) -> Staged:
    """What is written and, with `keep`, read before."""
    _check_dense(tensor, name)
    if _is_plain(tensor):
        return Staged(_movable(tensor))
    writable(tensor, name)
    tensor = tensor.detach()
    memory = torch.empty(tensor.shape, dtype=tensor.dtype)
    if keep:
        memory.copy_(tensor)
    return Staged(_movable(memory), lambda: tensor.copy_(memory))


def joined(tensors: Sequence[Tensor], name: str) -> Tensor:
    """What is only read, one behind the other."""
    parts = [source(it, f"{name}[{index}]").reshape(-1) for index, it in enumerate(tensors)]
    _check_one_dtype(tensors, name)
    return torch.cat(parts) if len(parts) > 1 else parts[0]


def apart(tensors: Sequence[Tensor], name: str) -> Staged:
    """What is written, one behind the other, and then spread over tensors of any shapes."""
    _check_one_dtype(tensors, name)
    for index, it in enumerate(tensors):
        _check_dense(it, f"{name}[{index}]")
        writable(it, f"{name}[{index}]")
    into, lengths = [it.detach() for it in tensors], [it.numel() for it in tensors]
    memory = torch.empty(sum(lengths), dtype=tensors[0].dtype)

    def spread() -> None:
        for tensor, part in zip(into, torch.split(memory, lengths), strict=True):
            tensor.copy_(part.view(tensor.shape))

    return Staged(_movable(memory), spread)


def counts(tensors: Sequence[Tensor]) -> list[int]:
    """Elements of each, as the engine counts them once they are staged."""
    return [it.numel() * unit(it) for it in tensors]


def unit(tensor: Tensor) -> int:
    """How many elements the engine counts for one of the tensor's."""
    return 1 if tensor.dtype in _KNOWN else tensor.element_size()


def _movable(tensor: Tensor) -> Tensor:
    return tensor if tensor.dtype in _KNOWN else tensor.reshape(-1).view(torch.uint8)


def _is_plain(tensor: Tensor) -> bool:
    return tensor.is_contiguous() and tensor.device.type == "cpu" and not tensor.is_neg() and not tensor.is_conj()


def _check_dense(tensor: Tensor, name: str) -> None:
    if not isinstance(tensor, Tensor):
        raise InvalidArgument(f"{name} is a {type(tensor).__name__}, not a tensor")
    if tensor.is_nested or tensor.layout != torch.strided or tensor.is_quantized:
        raise InvalidArgument(f"{name} is not a plain dense tensor (layout {tensor.layout}, dtype {tensor.dtype})")
    if tensor.is_meta:
        raise InvalidArgument(f"{name} is a meta tensor, which has no memory")


def _check_one_dtype(tensors: Sequence[Tensor], name: str) -> None:
    for index, it in enumerate(tensors):
        if it.dtype != tensors[0].dtype:
            raise InvalidArgument(f"{name}[{index}] has dtype {it.dtype} and {name}[0] has dtype {tensors[0].dtype}")
