# SPDX-License-Identifier: MIT
"""Collectives of Python objects. They are for what is small and irregular: names, settings, statistics. Arrays go
faster, and in less memory, through the collectives made for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pccl.arguments import truth
from pccl.exchange import Exchange
from pccl.forms import Caller, submitting
from pccl.packing import Pickled, Plain

OBJECT_BYTES = 2**30
"""The largest object, packed, unless a call says otherwise."""


class Objects(Caller):
    """What each raises is said at `broadcast_object`; the forms that end in `_async` return a Job at once."""

    def broadcast_object(
        self,
        value: Any = None,
        root: int = 0,
        *,
        tag: int = 0,
        epoch: int = 0,
        timeout: float | None = None,
        pickle: bool = False,
        max_bytes: int = OBJECT_BYTES,
    ) -> Any:
        """Returns the object of rank `root`; elsewhere `value` is ignored. Every member gets a copy, also the root.

        Objects are plain data: None, bool, int of 64 bits, float, str, bytes, and lists, tuples and dicts of them. With
        `pickle=True` on all members they may be any that pickle takes, and members can make each other run any code;
        without it nothing is ever unpickled. An object may take `max_bytes` when packed; the least of all members
        counts. `value` may be changed as soon as the call (also one that returns at once) has returned.

        Runs in one epoch, as in `reduce`, and blocks as long as its operations, at most `timeout` seconds without
        progress. Operations on objects are matched among themselves, in the order of their calls per tag; what is
        called behind one that was lost with its epoch is lost too, unless that one was waited for before. Raises
        InvalidArgument where a value cannot be packed (its text says which part), and on all other members ObjectError;
        ObjectError on all when one is too large, or damaged; CollectiveMismatch when calls, roots or `pickle` differ;
        and what `all_reduce` raises. Ctrl-C ends the wait only.
        """
        exchange = _exchange(self, tag, epoch, timeout, pickle, max_bytes)
        return self._follow("broadcast_object", tag, exchange.broadcast(value, root))

    def all_gather_object(
        self,
        value: Any,
        *,
        tag: int = 0,
        epoch: int = 0,
        timeout: float | None = None,
        pickle: bool = False,
        max_bytes: int = OBJECT_BYTES,
    ) -> list[Any]:
        """Returns the objects of all members, by rank; of any size each."""
        exchange = _exchange(self, tag, epoch, timeout, pickle, max_bytes)
        objects: list[Any] = self._follow("all_gather_object", tag, exchange.all_gather(value))
        return objects

    def gather_object(
        self,
        value: Any,
        root: int = 0,
        *,
        tag: int = 0,
        epoch: int = 0,
        timeout: float | None = None,
        pickle: bool = False,
        max_bytes: int = OBJECT_BYTES,
    ) -> list[Any] | None:
        """Returns the objects of all members, by rank, to rank `root`; None elsewhere."""
        exchange = _exchange(self, tag, epoch, timeout, pickle, max_bytes)
        objects: list[Any] | None = self._follow("gather_object", tag, exchange.gather(value, root))
        return objects

    def scatter_object(
        self,
        values: Sequence[Any] | None = None,
        root: int = 0,
        *,
        tag: int = 0,
        epoch: int = 0,
        timeout: float | None = None,
        pickle: bool = False,
        max_bytes: int = OBJECT_BYTES,
    ) -> Any:
        """Returns object r of the list `values` of rank `root` to rank r; elsewhere `values` is ignored."""
        exchange = _exchange(self, tag, epoch, timeout, pickle, max_bytes)
        return self._follow("scatter_object", tag, exchange.scatter(values, root))

    broadcast_object_async = submitting(broadcast_object)
    all_gather_object_async = submitting(all_gather_object)
    gather_object_async = submitting(gather_object)
    scatter_object_async = submitting(scatter_object)


def _exchange(caller: Caller, tag: int, epoch: int, timeout: float | None, pickle: bool, max_bytes: int) -> Exchange:
    packer = Pickled if truth("pickle", pickle) else Plain
    return Exchange(caller._group(epoch), caller._modes, tag, timeout, packer, max_bytes)
