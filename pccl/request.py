# SPDX-License-Identifier: MIT
"""From a user's arguments to one operation that the engine can start: every check, and nothing sent yet.

The one idea: a `Request` is the argument list of `Engine.run` and `Engine.start`, in their order, together with what
keeps its memory alive. It may be started again after a failure.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from enum import IntEnum
from numbers import Real
from typing import Any, NamedTuple

from pccl import arrays, descriptors
from pccl._native import NULL, Pointer, constants, extent
from pccl.arrays import Borrowed
from pccl.descriptors import ReduceDescriptor, ReduceOpDescriptor
from pccl.enums import Algorithm, Collective, ReduceOp
from pccl.errors import InvalidArgument
from pccl.messages import View

SECONDS_MAX = 4_000_000
"""The longest timeout; in milliseconds it fits 32 bits."""

TAG_MAX = 2**64 - 1

_ALL_REDUCE = int(Collective.ALL_REDUCE)


class Request(NamedTuple):
    """See `pccl_call`."""

    collective: int
    dtype: int
    op: int
    algorithm: int
    root: int
    flags: int
    elements: int
    tag: int
    source: Pointer
    target: Pointer
    expected_epoch: int
    timeout_ms: int
    owner: object


class Modes(NamedTuple):
    """A communicator's flags for its operations: in place, and out of place."""

    in_place: int
    out_of_place: int

    @classmethod
    def of(cls, *, deferred: bool, preserve_input: bool) -> Modes:
        """DEFERRED for all; DISCARD_INPUT where input and output are one."""
        flags = constants.PCCL_DEFERRED if deferred else 0
        return cls(flags | (0 if preserve_input else constants.PCCL_DISCARD_INPUT), flags)


def all_reduce(send: Any, recv: Any, op: int, tag: int, algorithm: int, timeout: float | None, modes: Modes) -> Request:
    """In place without `recv`. Raises InvalidArgument, as all functions here."""
    if recv is None or recv is send:
        source = target = arrays.borrow(send, True, "send")
        flags = modes.in_place
    else:
        source = arrays.borrow(send, False, "send")
        target = arrays.borrow(recv, True, "recv")
        arrays.same_layout(source, target)
        flags = modes.out_of_place
    return _request(_ALL_REDUCE, source, target, source.elements, op, algorithm, 0, flags, tag, 0, timeout)


def all_reduces(items: Sequence[Any], op: int, first_tag: int, timeout: float | None, modes: Modes) -> list[Request]:
    """One for each descriptor, or array that is reduced in place; all with tags of their own."""
    if not isinstance(items, Iterable):
        raise InvalidArgument(f"a list of arrays or descriptors is needed, not a {type(items).__name__}")
    first_tag = whole("tag", first_tag, 0, TAG_MAX)
    requests = []
    for index, item in enumerate(items):
        if isinstance(item, ReduceOpDescriptor):
            reduction = item.reduce_descriptor
            if not isinstance(reduction, ReduceDescriptor):
                raise InvalidArgument(f"reduce_descriptor is a {type(reduction).__name__}, not a ReduceDescriptor")
            descriptors.check(item.send, reduction.operand_descriptor, reduction.quantization_options)
            one = all_reduce(item.send, item.recv, reduction.op, reduction.tag, 0, timeout, modes)
            if one.elements != reduction.count:
                raise InvalidArgument(f"a descriptor says {reduction.count} elements, its array has {one.elements}")
        else:
            one = all_reduce(item, None, op, first_tag + index, 0, timeout, modes)
        requests.append(one)
    if not requests:
        raise InvalidArgument("there is nothing to reduce")
    if len({one.tag for one in requests}) < len(requests):
        raise InvalidArgument("concurrent operations need tags of their own")
    _check_apart(requests)
    return requests


def reduce_scatter(
    send: Any, recv: Any, op: int, tag: int, algorithm: int, timeout: float | None, modes: Modes, view: View
) -> Request:
    """Valid in the epoch of `view` only: the counts are checked against its world size."""
    source = arrays.borrow(send, False, "send")
    target = arrays.borrow(recv, True, "recv")
    _check_blocks(source, "send", target, "recv", len(view.members))
    kind, flags, epoch = Collective.REDUCE_SCATTER, modes.out_of_place, view.epoch
    return _request(kind, source, target, target.elements, op, algorithm, 0, flags, tag, epoch, timeout)


def all_gather(
    send: Any, recv: Any, tag: int, algorithm: int, timeout: float | None, modes: Modes, view: View
) -> Request:
    """Valid in the epoch of `view` only: the counts are checked against its world size."""
    source = arrays.borrow(send, False, "send")
    target = arrays.borrow(recv, True, "recv")
    _check_blocks(target, "recv", source, "send", len(view.members))
    kind, flags, epoch = Collective.ALL_GATHER, modes.out_of_place, view.epoch
    return _request(kind, source, target, source.elements, 0, algorithm, 0, flags, tag, epoch, timeout)


def broadcast(x: Any, root: int, tag: int, epoch: int, algorithm: int, timeout: float | None, modes: Modes) -> Request:
    """In place on all members. The engine checks `root`."""
    memory = arrays.borrow(x, True, "x")
    root = whole("root", root, 0, 2**32 - 1)
    epoch = whole("epoch", epoch, 0, 2**64 - 1)
    kind, flags = Collective.BROADCAST, modes.in_place
    return _request(kind, memory, memory, memory.elements, 0, algorithm, root, flags, tag, epoch, timeout)


def barrier(tag: int, timeout: float | None, modes: Modes) -> Request:
    """No memory."""
    return _request(Collective.BARRIER, _NOTHING, _NOTHING, 0, 0, 0, 0, modes.out_of_place, tag, 0, timeout)


def question(collective: int, send: Any, op: int, algorithm: int) -> tuple[int, int, int, int, int]:
    """For `Engine.explain`: what would run for such a call."""
    dtype, elements = (0, 0) if send is None else arrays.borrow(send, False, "send")[1:3]
    kind = named("collective", collective, Collective)
    return kind, dtype, named("op", op, ReduceOp), named("algorithm", algorithm, Algorithm), elements


def commit(timeout: float | None) -> Request:
    """Settles the deferred operations of all tags."""
    return _request(Collective.COMMIT, _NOTHING, _NOTHING, 0, 0, 0, 0, 0, 0, 0, timeout)


def whole(name: str, value: int, low: int, high: int) -> int:
    """A whole number (also one of numpy's) within bounds. Raises InvalidArgument."""
    try:
        number = operator.index(value)
    except TypeError:
        number = low - 1
    if not low <= number <= high:
        raise InvalidArgument(f"{name} must be a whole number from {low} to {high}, not {value!r}")
    return number


def named(name: str, value: int, kind: type[IntEnum]) -> int:
    """A member of `kind`, or its number. Raises InvalidArgument that lists them."""
    if value.__class__ is kind:
        return value
    try:
        return kind(operator.index(value))
    except (TypeError, ValueError):
        names = ", ".join(it.name for it in kind)
        raise InvalidArgument(f"{name} must be of {kind.__name__} ({names}), not {value!r}") from None


def truth(name: str, value: bool) -> bool:
    """True or False. Raises InvalidArgument for what only counts as one of them."""
    if value is not True and value is not False:
        raise InvalidArgument(f"{name} is True or False, not {value!r}")
    return value


def patience(timeout: float | None) -> float:
    """The seconds that a wait may take at most, also none or less; infinity without a limit. Raises InvalidArgument."""
    if timeout is None:
        return math.inf
    if not isinstance(timeout, Real) or math.isnan(timeout):
        raise InvalidArgument(f"timeout must be a number of seconds, or None for no limit, not {timeout!r}")
    return float(timeout)


def milliseconds(name: str, seconds: float) -> int:
    """A timeout as the engine counts it, at least 1. Raises InvalidArgument."""
    if not isinstance(seconds, Real) or not 0 < seconds <= SECONDS_MAX:
        raise InvalidArgument(f"{name} must be a positive number of seconds up to {SECONDS_MAX:,}, not {seconds!r}")
    return max(1, int(seconds * 1000))


def choice(name: str, value: str, allowed: Iterable[str]) -> str:
    """One of several words. Raises InvalidArgument that lists them."""
    *others, last = (f'"{word}"' for word in allowed)
    if not isinstance(value, str) or value not in allowed:
        raise InvalidArgument(f"{name} is {', '.join(others)} or {last}, not {value!r}")
    return value


_NOTHING = Borrowed(NULL, 0, 0, None)


def _request(
    collective: int,
    source: Borrowed,
    target: Borrowed,
    elements: int,
    op: int,
    algorithm: int,
    root: int,
    flags: int,
    tag: int,
    epoch: int,
    timeout: float | None,
) -> Request:
    return Request(
        collective,
        source.dtype,
        named("op", op, ReduceOp),
        named("algorithm", algorithm, Algorithm),
        root,
        flags,
        elements,
        whole("tag", tag, 0, TAG_MAX),
        source.pointer,
        target.pointer,
        epoch,
        0 if timeout is None else milliseconds("timeout", timeout),
        (source.owner, target.owner),
    )


def _check_apart(requests: Sequence[Request]) -> None:
    """Concurrent operations must not write where another reads or writes. Raises InvalidArgument."""
    places = []
    for index, one in enumerate(requests):
        target = extent(one.target, one.dtype, one.elements)
        source = extent(one.source, one.dtype, one.elements)
        places.append((*target, index, True))
        if source != target:
            places.append((*source, index, False))
    # From left to right; of those so far, written or only read, the two of different operations that reach farthest.
    farthest: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
    for first, end, index, written in sorted(places):
        for reached, other in farthest[True] + (farthest[False] if written else []):
            if other != index and first < min(end, reached):
                raise InvalidArgument(f"arrays of operations {other} and {index} of one call overlap")
        best = sorted([(end, index), *farthest[written]], reverse=True)
        farthest[written] = [best[0], *[it for it in best if it[1] != best[0][1]][:1]]


def _check_blocks(long: Borrowed, long_name: str, block: Borrowed, block_name: str, world_size: int) -> None:
    if long.dtype != block.dtype or long.elements != block.elements * world_size:
        raise InvalidArgument(
            f"{long_name} has {arrays.describe(long)} and {block_name} has {arrays.describe(block)}; "
            f"with {world_size} peers {long_name} must hold {world_size} times as many"
        )
