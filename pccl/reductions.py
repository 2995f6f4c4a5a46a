# SPDX-License-Identifier: MIT
"""Collectives that combine what members have. What each raises is said at `all_reduce`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pccl import coalesced, descriptors, parts, request
from pccl._native import ReduceInfo
from pccl.descriptors import ReduceOperandDescriptor
from pccl.enums import Algorithm, PremulSum, ReduceOp
from pccl.forms import Caller, starting
from pccl.quantization import QuantizationOptions
from pccl.request import quantize


class Reductions(Caller):
    """Their results are the same bits on all members that get one."""

    def all_reduce(
        self,
        send: Any,
        recv: Any = None,
        *,
        op: ReduceOp | PremulSum = ReduceOp.SUM,
        tag: int = 0,
        algorithm: Algorithm = Algorithm.AUTO,
        deterministic: bool | None = None,
        priority: int = 0,
        timeout: float | None = None,
        operand_descriptor: ReduceOperandDescriptor | None = None,
        quantization_options: QuantizationOptions | None = None,
        errors: Any = None,
    ) -> ReduceInfo:
        """Combines `send` of all members element by element into `recv` of each; without `recv`, in place.

        Both are numpy arrays or torch CPU tensors, contiguous, of one dtype and count. Blocks until done, at most
        `timeout` seconds without progress. `deterministic` replaces what the Communicator was told, here and in all
        that reduces; all members ask for the same. `priority`, from -3 to 3: of all that is under way, what is higher
        is sent first; members should agree on it, since each only decides what it sends itself, but no result depends
        on it.

        With `quantization_options` values of floats are sent in fewer bits; all members pass the same. Results are
        still the same bits on all, and how far they are from the exact ones is bounded (docs/quantization.md). Into
        `errors`, a float32 array like `send` that all members pass or none, goes what this rank's encoding took, for
        `ErrorFeedback`; it holds anything after a failure. In what only moves, the sender's own copy becomes what the
        others get.

        Raises InvalidArgument, Unsupported, TooFewPeers before any traffic; PeerLost (call again: the next epoch is
        installed and `send` is intact), CollectiveMismatch, OperationTimeout; QuantizationError on all members when a
        value of one cannot be quantized.
        """
        modes = self._modes.reducing(deterministic)
        if operand_descriptor is not None:
            descriptors.check(send, operand_descriptor)
        one = request.all_reduce(send, recv, op, tag, algorithm, timeout, modes)
        return self._run(quantize(one, quantization_options, errors), priority)

    def all_reduce_coalesced(
        self,
        tensors: Iterable[Any],
        out: Iterable[Any] | None = None,
        *,
        op: ReduceOp | PremulSum = ReduceOp.SUM,
        tag: int = 0,
        algorithm: Algorithm = Algorithm.AUTO,
        deterministic: bool | None = None,
        priority: int = 0,
        timeout: float | None = None,
        quantization_options: QuantizationOptions | None = None,
        errors: Any = None,
    ) -> ReduceInfo:
        """Combines many arrays in one operation, as one `all_reduce` of all of them behind one another would: each of
        `tensors` into its counterpart in `out`; without `out`, all in place.

        Numpy arrays or torch CPU tensors, contiguous, of one dtype and any shapes, empty and 0-d ones too, at least one
        and at most 65,536. Each is in place where its counterpart in `out` is itself; what is written to must not
        overlap anything else. All members pass as many with the same counts in the same order, else CollectiveMismatch.
        It succeeds or fails for all of them together: after PeerLost each of `tensors` is intact, and those in `out`
        hold anything. An InvalidArgument names the array by its place. Otherwise as `all_reduce`.
        """
        modes = self._modes.reducing(deterministic)
        one = coalesced.all_reduce(tensors, out, op, tag, algorithm, timeout, modes)
        return self._run(quantize(one, quantization_options, errors), priority)

    def reduce_scatter(
        self,
        send: Any,
        recv: Any,
        *,
        op: ReduceOp | PremulSum = ReduceOp.SUM,
        tag: int = 0,
        epoch: int = 0,
        algorithm: Algorithm = Algorithm.AUTO,
        deterministic: bool | None = None,
        priority: int = 0,
        timeout: float | None = None,
        quantization_options: QuantizationOptions | None = None,
        errors: Any = None,
    ) -> ReduceInfo:
        """Combines `send` of all members; rank r gets block r of the result in `recv`, whose count times the world size
        is that of `send`. In place where `recv` is that block of `send`. `epoch` as in `reduce`, otherwise as
        `all_reduce`."""
        modes, group = self._modes.reducing(deterministic), self._group(epoch)
        one = request.reduce_scatter(send, recv, op, tag, algorithm, timeout, modes, group)
        return self._run(quantize(one, quantization_options, errors, group), priority)

    def reduce_scatter_v(
        self,
        send: Any,
        send_counts: Sequence[int],
        recv: Any,
        *,
        op: ReduceOp | PremulSum = ReduceOp.SUM,
        tag: int = 0,
        epoch: int = 0,
        deterministic: bool | None = None,
        priority: int = 0,
        timeout: float | None = None,
        quantization_options: QuantizationOptions | None = None,
        errors: Any = None,
    ) -> ReduceInfo:
        """As `reduce_scatter` with parts of `send_counts[r]` elements, one behind the other in `send`. All members pass
        the same counts, else CollectiveMismatch."""
        modes, group = self._modes.reducing(deterministic), self._group(epoch)
        one = parts.reduce_scatter(send, send_counts, recv, op, tag, timeout, modes, group)
        return self._run(quantize(one, quantization_options, errors, group), priority)

    def reduce(
        self,
        send: Any,
        recv: Any = None,
        root: int = 0,
        *,
        op: ReduceOp | PremulSum = ReduceOp.SUM,
        tag: int = 0,
        epoch: int = 0,
        algorithm: Algorithm = Algorithm.AUTO,
        deterministic: bool | None = None,
        priority: int = 0,
        timeout: float | None = None,
        quantization_options: QuantizationOptions | None = None,
        errors: Any = None,
    ) -> ReduceInfo:
        """Combines `send` of all members element by element into `recv` of rank `root`; without `recv`, in place there.
        Elsewhere `recv` is ignored.

        As all calls with a root or parts, raises PeerLost if the group changes before it begins, since ranks mean other
        peers then: it runs in `epoch`, or without one in that of the call. Who took ranks from an earlier look at the
        group (`Communicator.epoch`, `ReduceInfo.epoch`) passes its epoch. Otherwise as `all_reduce`.
        """
        modes, group = self._modes.reducing(deterministic), self._group(epoch)
        one = request.reduce(send, recv, root, op, tag, algorithm, timeout, modes, group)
        return self._run(quantize(one, quantization_options, errors), priority)

    def scan(
        self,
        send: Any,
        recv: Any = None,
        *,
        op: ReduceOp | PremulSum = ReduceOp.SUM,
        tag: int = 0,
        algorithm: Algorithm = Algorithm.AUTO,
        deterministic: bool | None = None,
        priority: int = 0,
        timeout: float | None = None,
    ) -> ReduceInfo:
        """`recv` of rank r becomes the combination of `send` of ranks 0 to r (inclusive prefix); without `recv`, in
        place. AVG has no meaning here. Otherwise as `all_reduce`."""
        modes = self._modes.reducing(deterministic)
        return self._run(request.scan(False, send, recv, op, tag, algorithm, timeout, modes), priority)

    def exscan(
        self,
        send: Any,
        recv: Any = None,
        *,
        op: ReduceOp | PremulSum = ReduceOp.SUM,
        tag: int = 0,
        algorithm: Algorithm = Algorithm.AUTO,
        deterministic: bool | None = None,
        priority: int = 0,
        timeout: float | None = None,
    ) -> ReduceInfo:
        """As `scan`, but without the own contribution: ranks 0 to r-1. Rank 0 keeps what is in `recv`."""
        modes = self._modes.reducing(deterministic)
        return self._run(request.scan(True, send, recv, op, tag, algorithm, timeout, modes), priority)

    all_reduce_async = starting(all_reduce)
    all_reduce_coalesced_async = starting(all_reduce_coalesced)
    reduce_scatter_async = starting(reduce_scatter)
    reduce_scatter_v_async = starting(reduce_scatter_v)
    reduce_async = starting(reduce)
    scan_async = starting(scan)
    exscan_async = starting(exscan)
