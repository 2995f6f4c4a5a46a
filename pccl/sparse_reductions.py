# SPDX-License-Identifier: MIT
"""Collectives that combine vectors of which few elements are given."""

from __future__ import annotations

from typing import Any

from pccl import sparse_exchange
from pccl.forms import Caller, submitting
from pccl.quantization import QuantizationOptions
from pccl.sparse import SparseSum


class SparseReductions(Caller):
    """Their results are the same bits on all members."""

    def all_reduce_sparse(
        self,
        indices: Any,
        values: Any,
        length: int,
        *,
        tag: int = 0,
        epoch: int = 0,
        timeout: float | None = None,
        quantization_options: QuantizationOptions | None = None,
        errors: Any = None,
    ) -> SparseSum:
        """Adds up vectors of `length` elements, of which each member gives some: `values` at `indices`. Returns the
        union of all indices, sorted, and the sums, which are added in the order of ranks.

        `indices` are whole numbers below `length`, each at most once, in any order; `values` a numpy array or torch CPU
        tensor of as many integers or floats, of the same dtype on all members. Any member may give any number, or none.
        Both may be changed as soon as the call (also one that returns at once) has returned. float16 and bfloat16 are
        added up in float32 and rounded once.

        With `quantization_options`, the same on all members, values (of floats) are sent in that format, and all add up
        what it says, also of their own. They are quantized in the order of indices; random choices differ from rank to
        rank.
        `errors`, a float32 array of `length` elements of any shape, gets what quantization took from each value, at its
        index, and nothing elsewhere: so `top_k` can have left there what is not sent at all (`ErrorFeedback`).

        It takes two operations of one epoch: as in `reduce`, that is `epoch`, or without one that of the call. They are
        matched with those on Python objects, in the order of their calls per tag; what is called behind one that was
        lost with its epoch is lost too, unless that one was waited for before. Every member receives what all others
        give: it pays where few elements are given by not too many. Raises InvalidArgument before any traffic;
        CollectiveMismatch when dtypes, lengths or quantization differ; QuantizationError on all where a member's value
        cannot be quantized; and what `all_reduce` raises. Ctrl-C ends the wait only.
        """
        group = self._group(epoch)
        given = sparse_exchange.Contribution.of(indices, values, length, quantization_options, errors, group.rank)
        steps = sparse_exchange.all_reduce(given, tag, timeout, self._modes, group)
        total: SparseSum = self._follow("all_reduce_sparse", tag, steps)
        return total

    all_reduce_sparse_async = submitting(all_reduce_sparse)
