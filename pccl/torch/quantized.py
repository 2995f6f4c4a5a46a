# SPDX-License-Identifier: MIT
"""Collectives of which what goes over links is quantized, on a group of pccl's:

    options = pccl.QuantizationOptions("int4")
    pccl.torch.quantized.all_reduce(x, quantization_options=options, errors=errors)

What for: torch's own functions have no place for a format. These are torch's otherwise: names, order of arguments,
`async_op`, and they are matched with the group's other calls in the order in which ranks make them. Tensors are of
floats; what the forms are, and how far results are off: docs/quantization.md. Must not know: gradients, residuals.

`errors`, a float32 tensor on the CPU as long as the input, gets what this rank's values and the sums that it encoded
lost; it is undefined after a failure. Raises InvalidArgument (a ValueError) for what is not so, Unsupported for a group
of another backend, both before any traffic; the call itself raises what others of the group raise, and for values that
are not finite a DistBackendError with QuantizationError behind it (`pccl.torch.cause`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed
import torch.distributed.distributed_c10d
from torch import Tensor

from pccl import arrays
from pccl.errors import InvalidArgument, Unsupported
from pccl.quantization import QuantizationAlgorithm, QuantizationOptions
from pccl.torch import native
from pccl.torch.process_group import ProcessGroup

# Untyped in some releases of torch.
dist: Any = torch.distributed
c10d: Any = torch.distributed.distributed_c10d
Work = Any
"""None where the call was not left to run."""

_FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def all_reduce(
    tensor: Tensor,
    op: Any = dist.ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
    *,
    quantization_options: QuantizationOptions,
    errors: Tensor | None = None,
) -> Work:
    """In place."""
    form = _form(group, tensor, quantization_options, errors)
    return _ended(form.allreduce([tensor], _reducing(c10d.AllreduceOptions(), op, async_op)), async_op)


def reduce_scatter_tensor(
    output: Tensor,
    input: Tensor,
    op: Any = dist.ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
    *,
    quantization_options: QuantizationOptions,
    errors: Tensor | None = None,
) -> Work:
    """`input` holds a block for each rank."""
    form = _form(group, input, quantization_options, errors)
    options = _reducing(c10d.ReduceScatterOptions(), op, async_op)
    return _ended(form._reduce_scatter_base(output, input, options), async_op)


def all_gather_into_tensor(
    output_tensor: Tensor,
    input_tensor: Tensor,
    group: Any = None,
    async_op: bool = False,
    *,
    quantization_options: QuantizationOptions,
    errors: Tensor | None = None,
) -> Work:
    """This rank's own block, too, is what the others get of it."""
    form = _form(group, input_tensor, quantization_options, errors)
    options = _plain(c10d.AllgatherOptions(), async_op)
    return _ended(form._allgather_base(output_tensor, input_tensor, options), async_op)


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Any = None,
    async_op: bool = False,
    *,
    quantization_options: QuantizationOptions,
    errors: Tensor | None = None,
) -> Work:
    """What stays with its own rank is exact."""
    form, options = _form(group, input, quantization_options, errors), _plain(c10d.AllToAllOptions(), async_op)
    outgoing, incoming = list(input_split_sizes or ()), list(output_split_sizes or ())
    return _ended(form.alltoall_base(output, input, incoming, outgoing, options), async_op)


def broadcast(
    tensor: Tensor,
    src: int,
    group: Any = None,
    async_op: bool = False,
    *,
    quantization_options: QuantizationOptions,
    errors: Tensor | None = None,
) -> Work:
    """From the global rank `src`, whose own tensor becomes what the others get; the errors of these are zero."""
    form, options = _form(group, tensor, quantization_options, errors), _plain(c10d.BroadcastOptions(), async_op)
    options.rootRank = dist.get_group_rank(group, src) if group is not None else src
    return _ended(form.broadcast([tensor], options), async_op)


def _form(group: Any, given: Tensor, options: QuantizationOptions, errors: Tensor | None) -> Any:
    """The group for one such call, of whichever form of the backend."""
    if not isinstance(options, QuantizationOptions) or options.algorithm == QuantizationAlgorithm.NONE:
        raise InvalidArgument("quantization_options must be a QuantizationOptions that quantizes")
    if not isinstance(given, Tensor) or given.dtype not in _FLOATS:
        what = f"of {given.dtype}" if isinstance(given, Tensor) else f"a {type(given).__name__}"
        raise InvalidArgument(f"tensors of float32, float64, float16 and bfloat16 can be quantized, and this is {what}")
    if errors is not None:
        if given.device.type != "cpu":
            raise InvalidArgument(f"errors are those of a tensor on the CPU, not on {given.device}")
        arrays.float32("errors", errors, given.numel())
    group = dist.group.WORLD if group is None else group
    if group in (None, dist.GroupMember.NON_GROUP_MEMBER):
        raise InvalidArgument("this rank has no such group: call init_process_group, and let only its members call")
    backend = _unwrapped(group, given.device)
    if isinstance(backend, ProcessGroup):
        return backend.quantized(options, errors)
    if backend.name() != "pccl":
        raise Unsupported(f"the group's backend for {given.device} is {backend.name()}, and only pccl's quantizes")
    if backend is not group._get_backend(given.device):
        group = dist.ProcessGroup(group.rank(), group.size())
        group._register_backend(given.device, dist.ProcessGroup.BackendType.CUSTOM, backend)
    return native.load().quantized(group, given.device, options, errors)


def _unwrapped(group: Any, device: torch.device) -> Any:
    """Without what torch puts around it for debugging."""
    try:
        backend = group._get_backend(device)
    except RuntimeError as failure:
        raise Unsupported(f"the group has no backend for {device}: {failure}") from failure
    while hasattr(backend, "wrapped_pg"):
        backend = backend.wrapped_pg
    return backend


def _plain(options: Any, async_op: bool) -> Any:
    options.asyncOp = async_op
    return options


def _reducing(options: Any, op: Any, async_op: bool) -> Any:
    options.reduceOp = op
    return _plain(options, async_op)


def _ended(work: Any, async_op: bool) -> Work:
    if async_op:
        return work
    work.wait()
    return None
