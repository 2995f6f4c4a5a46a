# SPDX-License-Identifier: MIT
"""Collectives that move what members have, of any dtype, bit for bit unless they are told to quantize it. What each
raises is said at `all_reduce`, as is what quantization does; what `epoch` means, at `reduce`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pccl import parts, request
from pccl._native import ReduceInfo
from pccl.enums import Algorithm
from pccl.forms import Caller, starting
from pccl.quantization import QuantizationOptions
from pccl.request import quantize


class Moves(Caller):
    """Blocks have one length on all members; parts, in the forms that end in `_v`, may differ and be empty."""

    def all_gather(
        self,
        send: Any,
        recv: Any,
        *,
        tag: int = 0,
        epoch: int = 0,
        algorithm: Algorithm = Algorithm.AUTO,
        priority: int = 0,
        timeout: float | None = None,
        quantization_options: QuantizationOptions | None = None,
        errors: Any = None,
    ) -> ReduceInfo:
        """Block r of `recv` becomes `send` of rank r; the count of `recv` is that of `send` times the world size. In
        place where `send` is this rank's block of `recv`."""
        group = self._group(epoch)
        one = request.all_gather(send, recv, tag, algorithm, timeout, self._modes, group)
        return self._run(quantize(one, quantization_options, errors, group), priority)

    def all_gather_v(
        self,
        send: Any,
        recv: Any,
        recv_counts: Sequence[int],
        *,
        tag: int = 0,
        epoch: int = 0,
        priority: int = 0,
        timeout: float | None = None,
        quantization_options: QuantizationOptions | None = None,
        errors: Any = None,
    ) -> ReduceInfo:
        """As `all_gather` with parts of `recv_counts[r]` elements, one behind the other in `recv`. All members pass the
        same counts, else CollectiveMismatch."""
        group = self._group(epoch)
        one = parts.all_gather(send, recv, recv_counts, tag, timeout, self._modes, group)
        return self._run(quantize(one, quantization_options, errors, group), priority)

    def gather(
        self,
        send: Any,
        recv: Any = None,
        root: int = 0,
        *,
        tag: int = 0,
        epoch: int = 0,
        algorithm: Algorithm = Algorithm.AUTO,
        priority: int = 0,
        timeout: float | None = None,
    ) -> ReduceInfo:
        """Block r of `recv` of rank `root` becomes `send` of rank r; its count is that of `send` times the world size.
        Elsewhere `recv` is ignored. In place where `send` is the root's block of `recv`."""
        return self._run(
            request.gather(send, recv, root, tag, algorithm, timeout, self._modes, self._group(epoch)), priority
        )

    def gather_v(
        self,
        send: Any,
        recv: Any = None,
        recv_counts: Sequence[int] | None = None,
        root: int = 0,
        *,
        tag: int = 0,
        epoch: int = 0,
        priority: int = 0,
        timeout: float | None = None,
    ) -> ReduceInfo:
        """As `gather` with parts that may differ: the root passes `recv_counts[r]`, the elements that rank r sends,
        else CollectiveMismatch."""
        return self._run(
            parts.gather(send, recv, recv_counts, root, tag, timeout, self._modes, self._group(epoch)), priority
        )

    def scatter(
        self,
        send: Any,
        recv: Any,
        root: int = 0,
        *,
        tag: int = 0,
        epoch: int = 0,
        algorithm: Algorithm = Algorithm.AUTO,
        priority: int = 0,
        timeout: float | None = None,
    ) -> ReduceInfo:
        """`recv` of rank r becomes block r of `send` of rank `root`, whose count is that of `recv` times the world
        size. Elsewhere `send` is ignored. In place where `recv` is the root's block of `send`."""
        return self._run(
            request.scatter(send, recv, root, tag, algorithm, timeout, self._modes, self._group(epoch)), priority
        )

    def scatter_v(
        self,
        send: Any,
        send_counts: Sequence[int] | None,
        recv: Any,
        root: int = 0,
        *,
        tag: int = 0,
        epoch: int = 0,
        priority: int = 0,
        timeout: float | None = None,
    ) -> ReduceInfo:
        """As `scatter` with parts that may differ: the root passes `send_counts[r]`, the elements of `recv` of rank r,
        else CollectiveMismatch."""
        return self._run(
            parts.scatter(send, send_counts, recv, root, tag, timeout, self._modes, self._group(epoch)), priority
        )

    def all_to_all(
        self,
        send: Any,
        recv: Any = None,
        *,
        tag: int = 0,
        epoch: int = 0,
        algorithm: Algorithm = Algorithm.AUTO,
        priority: int = 0,
        timeout: float | None = None,
        quantization_options: QuantizationOptions | None = None,
        errors: Any = None,
    ) -> ReduceInfo:
        """Block r of `recv` becomes this rank's block of `send` of rank r; both hold world size equal blocks. Without
        `recv`, in place."""
        group = self._group(epoch)
        one = request.all_to_all(send, recv, tag, algorithm, timeout, self._modes, group)
        return self._run(quantize(one, quantization_options, errors, group), priority)

    def all_to_all_v(
        self,
        send: Any,
        send_counts: Sequence[int],
        recv: Any,
        recv_counts: Sequence[int],
        *,
        tag: int = 0,
        epoch: int = 0,
        priority: int = 0,
        timeout: float | None = None,
        quantization_options: QuantizationOptions | None = None,
        errors: Any = None,
    ) -> ReduceInfo:
        """As `all_to_all` with parts that may differ: `send_counts[r]` elements go to rank r, `recv_counts[r]` come
        from it; what one sends must be what the other expects, else CollectiveMismatch."""
        group = self._group(epoch)
        one = parts.all_to_all(send, send_counts, recv, recv_counts, tag, timeout, self._modes, group)
        return self._run(quantize(one, quantization_options, errors, group), priority)

    def broadcast(
        self,
        x: Any,
        root: int = 0,
        *,
        tag: int = 0,
        epoch: int = 0,
        algorithm: Algorithm = Algorithm.AUTO,
        priority: int = 0,
        timeout: float | None = None,
        quantization_options: QuantizationOptions | None = None,
        errors: Any = None,
    ) -> ReduceInfo:
        """`x` of all members becomes that of rank `root`."""
        one = request.broadcast(x, root, tag, algorithm, timeout, self._modes, self._group(epoch))
        return self._run(quantize(one, quantization_options, errors), priority)

    all_gather_async = starting(all_gather)
    all_gather_v_async = starting(all_gather_v)
    gather_async = starting(gather)
    gather_v_async = starting(gather_v)
    scatter_async = starting(scatter)
    scatter_v_async = starting(scatter_v)
    all_to_all_async = starting(all_to_all)
    all_to_all_v_async = starting(all_to_all_v)
    broadcast_async = starting(broadcast)
