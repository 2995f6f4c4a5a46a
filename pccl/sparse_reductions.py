# SPDX-License-Identifier: MIT
"""Collectives that combine vectors of which few elements are given."""

from __future__ import annotations

from typing import Any

from pccl import sparse_exchange
from pccl.forms import Caller, submitting
from pccl.sparse import SparseSum


class SparseReductions(Caller):
    """Their results are the same bits on all members."""

    def all_reduce_sparse(
        self, indices: Any, values: Any, length: int, *, tag: int = 0, epoch: int = 0, timeout: float | None = None
    ) -> SparseSum:
        """Adds up vectors of `length` elements, of which each member gives some: `values` at `indices`. Returns the
        union of all indices, sorted, and the sums, which are added in the order of ranks.

        `indices` are whole numbers below `length`, each at most once, in any order; `values` a numpy array or torch CPU
        tensor of as many integers or floats, of the same dtype on all members. Any member may give any number, or none.
        Both may be changed as soon as the call (also one that returns at once) has returned. float16 and bfloat16 are
        added up in float32 and rounded once.

        It takes two operations of one epoch: as in `reduce`, that is `epoch`, or without one that of the call. They are
        matched with those on Python objects, in the order of their calls per tag; what is called behind one that was
        lost with its epoch is lost too, unless that one was waited for before. Every member receives what all others
        give: it pays where few elements are given by not too many. Raises InvalidArgument before any traffic;
        CollectiveMismatch when dtypes or lengths differ; and what `all_reduce` raises. Ctrl-C ends the wait only.
        """
        given = sparse_exchange.Contribution.of(indices, values, length)
        steps = sparse_exchange.all_reduce(given, tag, timeout, self._modes, self._group(epoch))
        total: SparseSum = self._follow("all_reduce_sparse", tag, steps)
        return total

    all_reduce_sparse_async = submitting(all_reduce_sparse)
