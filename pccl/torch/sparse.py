# SPDX-License-Identifier: MIT
"""The sum of sparse tensors: all ranks tell how many entries they have, then gather all entries, and add them up.

The one idea: three operations of the group, one after the other, on a tag of their own, so that nothing else of the
group can come between them. A thread makes them (`pccl.lanes`), and the caller gets a Work at once.
"""

from __future__ import annotations

from collections.abc import Generator

import torch
from torch import Tensor

from pccl._native import ReduceInfo
from pccl.request import Request
from pccl.torch.calls import Calls


def all_reduce(calls: Calls, tensor: Tensor, timeout: float | None) -> Generator[Request, ReduceInfo, None]:
    """Steps that add up `tensor` (COO) of all ranks, in place. Each is to succeed before the next one is made."""
    own = tensor.detach().coalesce()
    indices, values = own.indices().contiguous(), own.values().contiguous()
    lengths = torch.empty(calls.size, dtype=torch.int64)
    yield from _step(calls, lengths, torch.tensor([indices.shape[1]]), timeout)
    all_indices = [torch.empty((int(it), indices.shape[0]), dtype=torch.int64) for it in lengths]
    yield from _gather(calls, all_indices, indices.t().contiguous(), timeout)
    all_values = [torch.empty((int(it), *values.shape[1:]), dtype=values.dtype) for it in lengths]
    yield from _gather(calls, all_values, values, timeout)
    summed = torch.sparse_coo_tensor(torch.cat(all_indices).t(), torch.cat(all_values), tensor.shape).coalesce()
    with torch.no_grad():  # a detached sparse tensor would not change this one
        tensor.copy_(summed)


def _step(calls: Calls, output: Tensor, given: Tensor, timeout: float | None) -> Generator[Request, ReduceInfo, None]:
    started = calls.all_gather(output, given, timeout)
    yield from (it for it in started.requests)  # a list cannot be sent what came of its last item


def _gather(
    calls: Calls, outputs: list[Tensor], given: Tensor, timeout: float | None
) -> Generator[Request, ReduceInfo, None]:
    started = calls.all_gather_list(outputs, given, timeout)
    yield from (it for it in started.requests)  # a list cannot be sent what came of its last item
    for step in started.finish:
        step()
