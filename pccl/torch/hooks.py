# SPDX-License-Identifier: MIT
"""Gradients sent in a shorter format, with error feedback: hooks for DDP and for FSDP2.

    compression = pccl.torch.hooks.Compression("int8")
    ddp.register_comm_hook(compression, pccl.torch.hooks.all_reduce)      # DDP
    ddp.register_comm_hook(state, compression.around(powerSGD_hook))      # DDP, around another hook ("bf16" or "fp16")
    compression.shard(model)                                              # FSDP2: its reduce-scatter
    compression.replicate(model, between_replicas)                        # FSDP2 shards that have replicas elsewhere

What is done, for W ranks, of which rank i has the gradient g and has kept back the residual e (at first zero):

    u  = g + e              in float32
    q  = round(s * u)       in the format; s = 1/W where an average is asked for, else the factor of the operation
    e' = u - q / s          in float32, kept back for the next step
    result = the sum of all ranks' q, added in the format's type

So over T steps what a rank has sent, divided by s, and what it holds back at the end add up to all of its gradients:
the error of a step is made good by the next ones instead of adding up, and SGD moves as it would without rounding, but
for what is under way. Residuals are in units of the gradient, so that W may change between steps. All ranks get the
same bits.

That is so for "bf16" and "fp16" on any backend. What the collective itself rounds, when it adds values of these types,
is not fed back. The other formats are those of `pccl.QuantizationOptions`, on a group of pccl's: there values are added
in float32, and e' has what encoding has taken of sums, too, on the rank that encoded them, so that over all ranks
nothing at all is lost. An infinite or undefined element goes out as it is (quantized, it makes all of its block NaN),
for a scaler of losses to see; its residual is zero. With options of your own it is the error that these ask for.

Residuals advance once a reduction has succeeded, and not before: after an error they are what they were, and the step
can be repeated. Where success is known only at the end of a step (commit deferred), call `settle` when the step is
good, and `undo` before it is repeated.

How contributions go out is the business of `contributions`. DDP looks at a hook's annotations: they must be real.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed

from pccl.quantization import QuantizationOptions
from pccl.torch import contributions, formats
from pccl.torch.residuals import Residuals

# Untyped in some releases of torch, and not the same names in all.
dist: Any = torch.distributed
Future = torch.futures.Future[torch.Tensor]
Hook = Callable[[Any, dist.GradBucket], Future]


class Compression:
    """A format, and what it has kept back so far. One for each model: the residuals are by parameter.

    `format` is "bf16" or "fp16"; or "bfloat16", "float16", "uint8", "int8", "int4", "int2", "float8_e4m3fn",
    "float8_e5m2", or a QuantizationOptions for more of a say: those need a group of pccl's, else the first reduction
    raises Unsupported. Gradients on another device are then reduced on the CPU, and waited for. `group` is DDP's, or
    the default one. Without `error_feedback` nothing is kept back, and what rounding takes away is lost. Memory: 4
    bytes for each element of a gradient that this rank sends, and as much again after `settle`.
    """

    def __init__(self, format: str | QuantizationOptions, group: Any = None, *, error_feedback: bool = True) -> None:
        self.format = formats.named(format)
        self.group = group
        self._residuals = Residuals() if error_feedback else None

    def around(self, hook: Hook) -> Hook:
        """A DDP hook that gives `hook` (with its own state) buckets in the format, and DDP its result: what
        `powerSGD_hook` leaves out is in that hook's own feedback, what the format leaves out is in this one. Raises
        ValueError for a format that is no type of torch's, as hooks call torch's own functions."""
        if not isinstance(self.format, formats.Cast):
            raise ValueError(f"other hooks cannot send {self.format.name}: choose from {', '.join(formats.CASTS)}")

        def inside(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
            buffer = bucket.buffer()
            gradient = _of_bucket(self, bucket, 1.0)
            bucket.set_buffer(gradient.contribution.sent)
            return hook(state, bucket).then(lambda done: gradient.finish(_value(done), buffer))

        return inside

    def shard(self, model: torch.nn.Module) -> None:
        """FSDP2: gradients of each module that `fully_shard` was called for are reduced and scattered in the format. A
        module of which some parameters get no gradient in some steps forgets its residual when that changes."""
        for module in _sharded_modules(model):
            module.set_custom_reduce_scatter(ReduceScatter(self))

    def replicate(self, model: torch.nn.Module, group: Any) -> None:
        """FSDP2: what a shard's gradient has come to is averaged over `group`, which holds the same shard of all
        replicas, in the format. For models sharded over one dimension, whose replicas FSDP knows nothing of."""
        for module in _sharded_modules(model):
            module.set_all_reduce_hook(ReplicaAverage(self, group))

    def residual(self, parameter: Any) -> torch.Tensor | None:
        """A copy of what is kept back of a parameter's gradient, flat; None where it is nothing."""
        found = self._residuals.of([parameter], [parameter.numel()]) if self._residuals is not None else None
        return None if found is None else found.clone()

    def reseed(self, seed: int) -> None:
        """For options that draw at random: the seed of the next step, the same on all ranks. A step that is repeated
        has that of its first try, so take the number of the step. Raises ValueError for other formats."""
        if not isinstance(self.format, formats.Quantized):
            raise ValueError(f"{self.format.name} does not draw at random")
        self.format = self.format.reseeded(seed)

    def settle(self) -> None:
        """The step is good: `undo` goes back to here."""
        if self._residuals is not None:
            self._residuals.settle()

    def undo(self) -> None:
        """The step will be repeated: what is kept back is what it was at the last `settle`."""
        if self._residuals is not None:
            self._residuals.undo()


def all_reduce(state: Compression, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The DDP hook: averages a bucket. A failed reduction is an error of DDP's backward."""
    group = dist.group.WORLD if state.group is None else state.group
    buffer = bucket.buffer()
    gradient = _of_bucket(state, bucket, 1.0 / group.size())
    contribution = gradient.contribution
    done: torch.futures.Future[torch.Tensor]
    if contribution.sent.device == buffer.device:
        reduced = contribution.all_reduce(group, async_op=True).get_future()
        done = reduced.then(lambda done: gradient.finish(_value(done), buffer))
    else:  # a future of one device cannot give a tensor of another one
        contribution.all_reduce(group)
        done = torch.futures.Future(devices=[buffer.device])
        done.set_result(gradient.finish(contribution.sent, buffer))
    return done


class ReduceScatter:
    """What FSDP2 takes for `set_custom_reduce_scatter`; each module needs one of its own."""

    def __init__(self, compression: Compression) -> None:
        self._compression = compression

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Memory like any other."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any, op: Any, async_op: bool = False
    ) -> None:
        """Blocks. Raises ValueError for another operation than a sum, scaled or not, and if it is only to be begun."""
        if async_op:
            raise ValueError("a compressed reduce-scatter cannot be left to run: async_op must be False")
        gradient = _Gradient(self._compression, [self], [input_tensor.numel()], input_tensor, _scale(op, group))
        sent = gradient.contribution.sent
        received = torch.empty(output_tensor.shape, dtype=sent.dtype, device=sent.device)
        gradient.contribution.reduce_scatter(received, group)
        gradient.finish(received, output_tensor)


class ReplicaAverage:
    """What FSDP2 takes for `set_all_reduce_hook`; each module needs one of its own."""

    def __init__(self, compression: Compression, group: Any) -> None:
        self._compression = compression
        self._group = group

    def __call__(self, reduce_output: torch.Tensor) -> None:
        """In place. Blocks."""
        scale = 1.0 / self._group.size()
        gradient = _Gradient(self._compression, [self], [reduce_output.numel()], reduce_output, scale)
        gradient.contribution.all_reduce(self._group)
        gradient.finish(gradient.contribution.sent, reduce_output)


class _Gradient:
    """One that is reduced, with what was kept back before; what is kept back now is entered when that has succeeded."""

    def __init__(
        self, compression: Compression, keys: Sequence[Any], counts: Sequence[int], gradient: torch.Tensor, scale: float
    ) -> None:
        self._keys, self._counts = keys, counts
        self._residuals = compression._residuals
        kept = None if self._residuals is None else self._residuals.of(keys, counts)
        self.contribution = contributions.made(compression.format, gradient, kept, scale, self._residuals is not None)

    def finish(self, reduced: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """The target, which has the result now."""
        if self._residuals is not None:
            back = self.contribution.kept_back().nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
            self._residuals.put(self._keys, self._counts, back)
        return target.copy_(reduced.view_as(target))


def _of_bucket(compression: Compression, bucket: dist.GradBucket, scale: float) -> _Gradient:
    parameters = bucket.parameters()
    return _Gradient(compression, parameters, [it.numel() for it in parameters], bucket.buffer(), scale)


def _value(done: Any) -> torch.Tensor:
    """What a future holds. Raises what went wrong."""
    value = done.value()
    tensor: torch.Tensor = value[0] if isinstance(value, list | tuple) else value
    return tensor


def _scale(op: Any, group: Any) -> float:
    if op == dist.ReduceOp.AVG:
        return 1.0 / float(group.size())
    if op == dist.ReduceOp.PREMUL_SUM:
        factor = float(op.__getstate__()[1])
        if factor != 0 and math.isfinite(factor):
            return factor
    elif op == dist.ReduceOp.SUM:
        return 1.0
    raise ValueError(f"a compressed reduce-scatter is a sum, scaled or not; {op} is none")


def _sharded_modules(model: torch.nn.Module) -> list[Any]:
    """Raises ValueError where there is none: a call without effect would not be noticed."""
    found = [module for module in model.modules() if hasattr(module, "set_custom_reduce_scatter")]
    if not found:
        raise ValueError("fully_shard was called for no module of this model")
    return found
