# SPDX-License-Identifier: MIT
"""Torch's collectives as requests to the engine: what the Python form of the backend starts.

What for: one function for each kind of operation, which checks, stages and builds. Must not know: Work, futures, what
waits for what.

The one idea: everything comes down to a `Started`: requests to launch together, the tensors that they write, and what
is to be done with these in the end. Lists of tensors go through one flat buffer, with the length of each as counts.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from pccl import coalesced, parts, request
from pccl.enums import Algorithm
from pccl.errors import InvalidArgument
from pccl.quantization import QuantizationOptions
from pccl.request import Members, Modes, Request
from pccl.torch import tensors
from pccl.torch.group import Group

_AUTO = Algorithm.AUTO


@dataclass(slots=True)
class Started:
    """What one call of torch's comes down to."""

    requests: list[Request] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)
    finish: list[Callable[[], object]] = field(default_factory=list)

    def writes(self, tensor: Tensor, name: str, *, keep: bool = False) -> Tensor:
        """The memory in which the engine makes what becomes `tensor`."""
        return self._staged(tensors.target(tensor, name, keep=keep))

    def spreads(self, given: Sequence[Tensor], name: str) -> Tensor:
        """The same for many, one behind the other."""
        return self._staged(tensors.apart(given, name))

    def _staged(self, staged: tensors.Staged) -> Tensor:
        if staged.finish is not None:
            self.finish.append(staged.finish)
        return staged.memory


class Calls:
    """Requests of one group. `timeout` is in seconds, None for the group's own."""

    def __init__(self, group: Group, view_size: int, *, deterministic: bool) -> None:
        self._group, self.tag = group, group.tag
        self._members = Members(group.epoch, group.size, group.index)
        self._view = Members(group.epoch, view_size, group.ranks[group.index])
        self._modes = Modes.of(deferred=group.deferred, preserve_input=False, deterministic=deterministic)
        self._reducing = self._modes.reducing(None)

        self._options: QuantizationOptions | None = None
        self._errors: Tensor | None = None

    @property
    def size(self) -> int:
        """Ranks of the group."""
        return self._group.size

    def tagged(self, tag: int) -> Calls:
        """The same under another tag."""
        other = copy.copy(self)
        other.tag = tag
        return other

    def quantized(self, options: QuantizationOptions, errors: Tensor | None) -> Calls:
        """The same, of which each is quantized; its errors go into that tensor of float32."""
        other = copy.copy(self)
        other._options, other._errors = options, errors
        return other

    # ------------------------------------------------------------ what reduces

    def all_reduce(self, given: Sequence[Tensor], op: Any, timeout: float | None) -> Started:
        """In place; many tensors of one dtype are one operation."""
        started, kind = Started(outputs=list(given)), tensors.reduction(op)
        by_dtype: dict[Any, list[Tensor]] = {}
        for index, it in enumerate(given):
            tensors.reducible(it, f"tensors[{index}]")
            by_dtype.setdefault(it.dtype, []).append(started.writes(it, f"tensors[{index}]", keep=True))
        for alike in by_dtype.values():
            if len(alike) == 1:
                one = request.all_reduce(alike[0], None, kind, self.tag, _AUTO, timeout, self._reducing)
            else:
                one = coalesced.all_reduce(alike, None, kind, self.tag, _AUTO, timeout, self._reducing)
            started.requests.append(self._scoped(one))
        return started

    def reduce(self, tensor: Tensor, root: int, op: Any, timeout: float | None) -> Started:
        """In place at the root; the others keep what they have."""
        tensors.reducible(tensor, "tensor")
        tensors.writable(tensor, "tensor")  # not at the root alone: all ranks refuse the same call
        started, kind = Started(outputs=[tensor]), tensors.reduction(op)
        if root == self._group.index:
            memory = started.writes(tensor, "tensor", keep=True)
        else:
            memory = tensors.source(tensor, "tensor")
        one = request.reduce(memory, None, root, kind, self.tag, _AUTO, timeout, self._reducing, self._members)
        started.requests.append(self._scoped(one))
        return started

    def reduce_scatter(self, output: Tensor, given: Tensor, op: Any, timeout: float | None) -> Started:
        """`given` holds a block for each rank."""
        tensors.reducible(given, "input")
        started, kind = Started(outputs=[output]), tensors.reduction(op)
        source, target = tensors.source(given, "input"), started.writes(output, "output")
        one = request.reduce_scatter(source, target, kind, self.tag, _AUTO, timeout, self._reducing, self._members)
        started.requests.append(self._scoped(one))
        return started

    def reduce_scatter_list(self, output: Tensor, given: Sequence[Tensor], op: Any, timeout: float | None) -> Started:
        """Parts may differ in length."""
        self._check_list(given, "input_list")
        tensors.reducible(output, "output")
        started, kind = Started(outputs=[output]), tensors.reduction(op)
        source, target = tensors.joined(given, "input_list"), started.writes(output, "output")
        lengths = tensors.counts(given)
        if len(set(lengths)) == 1:
            one = request.reduce_scatter(source, target, kind, self.tag, _AUTO, timeout, self._reducing, self._members)
        else:
            one = parts.reduce_scatter(source, lengths, target, kind, self.tag, timeout, self._reducing, self._members)
        started.requests.append(self._scoped(one))
        return started

    # ------------------------------------------------------------ what moves

    def broadcast(self, given: Sequence[Tensor], root: int, timeout: float | None) -> Started:
        """In place."""
        started, is_root = Started(outputs=list(given)), root == self._group.index
        for index, it in enumerate(given):
            name = f"tensors[{index}]"
            tensors.writable(it, name)  # also where it is only read: all ranks refuse the same call
            memory = tensors.source(it, name) if is_root else started.writes(it, name)
            one = request.broadcast(memory, root, self.tag, _AUTO, timeout, self._modes, self._members)
            started.requests.append(self._scoped(one))
        return started

    def all_gather(self, output: Tensor, given: Tensor, timeout: float | None) -> Started:
        """`output` holds a block for each rank."""
        _check_alike(output, given)
        started = Started(outputs=[output])
        source, target = tensors.source(given, "input"), started.writes(output, "output")
        one = request.all_gather(source, target, self.tag, _AUTO, timeout, self._modes, self._members)
        started.requests.append(self._scoped(one))
        return started

    def all_gather_list(self, outputs: Sequence[Tensor], given: Tensor, timeout: float | None) -> Started:
        """Parts may differ in length."""
        self._check_list(outputs, "tensor_list")
        _check_alike(outputs[0], given)
        started = Started(outputs=list(outputs))
        source, target = tensors.source(given, "tensor"), started.spreads(outputs, "tensor_list")
        lengths = tensors.counts(outputs)
        if len(set(lengths)) == 1:
            one = request.all_gather(source, target, self.tag, _AUTO, timeout, self._modes, self._members)
        else:
            one = parts.all_gather(source, target, lengths, self.tag, timeout, self._modes, self._members)
        started.requests.append(self._scoped(one))
        return started

    def gather(self, outputs: Sequence[Tensor], given: Tensor, root: int, timeout: float | None) -> Started:
        """`outputs` count at the root only."""
        started, target, lengths = Started(), None, None
        if root == self._group.index:
            self._check_list(outputs, "gather_list")
            _check_alike(outputs[0], given)
            started.outputs = list(outputs)
            target, lengths = started.spreads(outputs, "gather_list"), tensors.counts(outputs)
        source = tensors.source(given, "tensor")
        one = parts.gather(source, target, lengths, root, self.tag, timeout, self._modes, self._members)
        started.requests.append(self._scoped(one))
        return started

    def scatter(self, output: Tensor, given: Sequence[Tensor], root: int, timeout: float | None) -> Started:
        """`given` counts at the root only."""
        started, source, lengths = Started(outputs=[output]), None, None
        if root == self._group.index:
            self._check_list(given, "scatter_list")
            _check_alike(output, given[0])
            source, lengths = tensors.joined(given, "scatter_list"), tensors.counts(given)
        target = started.writes(output, "tensor")
        one = parts.scatter(source, lengths, target, root, self.tag, timeout, self._modes, self._members)
        started.requests.append(self._scoped(one))
        return started

    def all_to_all(
        self,
        output: Tensor,
        given: Tensor,
        output_splits: Sequence[int],
        input_splits: Sequence[int],
        timeout: float | None,
    ) -> Started:
        """Splits are in rows of the first dimension; none: equal ones."""
        _check_alike(output, given)
        started = Started(outputs=[output])
        incoming = self._rows(output, output_splits, "output")
        outgoing = self._rows(given, input_splits, "input")
        source, target = tensors.source(given, "input"), started.writes(output, "output")
        one = parts.all_to_all(source, outgoing, target, incoming, self.tag, timeout, self._modes, self._members)
        started.requests.append(self._scoped(one))
        return started

    def all_to_all_list(self, outputs: Sequence[Tensor], given: Sequence[Tensor], timeout: float | None) -> Started:
        """Parts may differ in length."""
        self._check_list(outputs, "output_tensor_list")
        self._check_list(given, "input_tensor_list")
        _check_alike(outputs[0], given[0])
        started = Started(outputs=list(outputs))
        source, target = tensors.joined(given, "input_tensor_list"), started.spreads(outputs, "output_tensor_list")
        one = parts.all_to_all(
            source,
            tensors.counts(given),
            target,
            tensors.counts(outputs),
            self.tag,
            timeout,
            self._modes,
            self._members,
        )
        started.requests.append(self._scoped(one))
        return started

    # ------------------------------------------------------------ the rest

    def barrier(self, timeout: float | None) -> Started:
        """No tensors."""
        return Started([self._scoped(request.barrier(self.tag, timeout, self._modes))])

    def send(self, tensor: Tensor, to: int, tag: int, timeout: float | None) -> Started:
        """To a rank of the group."""
        memory, peer = tensors.source(tensor, "tensor"), self._peer("dst", to)
        return Started([request.send(memory, peer, self._group.tag_for(tag), timeout, self._modes, self._view)])

    def recv(self, tensor: Tensor, source: int | None, tag: int, timeout: float | None) -> Started:
        """From a rank of the group, or (None) from any."""
        started = Started(outputs=[tensor])
        memory = started.writes(tensor, "tensor")
        peer = None if source is None else self._peer("src", source)
        own_tag, epoch = self._group.tag_for(tag), self._group.epoch
        one = request.recv(memory, peer, own_tag, epoch, timeout, self._modes, self._view)
        started.requests.append(one)
        return started

    def _scoped(self, one: Request) -> Request:
        if self._group.scope:
            one.call.scope = self._group.scope
        one.call.expected_epoch = self._group.epoch
        if one.call.timeout_ms == 0:
            one.call.timeout_ms = self._group.timeout_ms
        return one if self._options is None else request.quantize(one, self._options, self._errors, self._members)

    def _peer(self, name: str, rank: int) -> int:
        if not 0 <= rank < self._group.size:
            raise InvalidArgument(f"{name} must be a rank from 0 to {self._group.size - 1}, not {rank}")
        return self._group.ranks[rank]

    def _check_list(self, given: Sequence[Tensor], name: str) -> None:
        if len(given) != self._group.size:
            raise InvalidArgument(f"{name} has {len(given)} tensors, but the group has {self._group.size} ranks")

    def _rows(self, tensor: Tensor, splits: Sequence[int], name: str) -> list[int]:
        """Elements for each rank."""
        rows, size = tensor.shape[0] if tensor.dim() else 1, self._group.size
        if not splits:
            if rows % size:
                raise InvalidArgument(f"{name} has {rows} rows, which do not split evenly among {size} ranks")
            splits = [rows // size] * size
        if len(splits) != size or any(it < 0 for it in splits) or sum(splits) != rows:
            raise InvalidArgument(f"{name} has {rows} rows for {size} ranks, split sizes are {list(splits)}")
        width = tensor.numel() // rows * tensors.unit(tensor) if rows else 0
        return [it * width for it in splits]


def _check_alike(output: Tensor, given: Tensor) -> None:
    if output.dtype != given.dtype:
        raise InvalidArgument(f"input has dtype {given.dtype} and output has dtype {output.dtype}")
