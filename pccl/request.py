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

import numpy as np

from pccl import _native, arrays, descriptors
from pccl._native import NULL, Pointer, constants, extent
from pccl.arrays import Borrowed
from pccl.descriptors import ReduceDescriptor, ReduceOpDescriptor
from pccl.enums import Algorithm, Collective, PremulSum, ReduceOp
from pccl.errors import InvalidArgument

SECONDS_MAX = 4_000_000
"""The longest timeout; in milliseconds it fits 32 bits."""

TAG_MAX = 2**64 - 1

_ALL_REDUCE = int(Collective.ALL_REDUCE)
_REDUCING = (
    Collective.ALL_REDUCE,
    Collective.REDUCE_SCATTER,
    Collective.REDUCE,
    Collective.SCAN,
    Collective.EXSCAN,
)
_SPREADING = (Collective.REDUCE_SCATTER, Collective.SCATTER, Collective.ALL_TO_ALL)
"""Whose `send` holds a part for each rank."""


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
    input_counts: Pointer = NULL
    output_counts: Pointer = NULL
    factor: float = 0.0


class Members(NamedTuple):
    """A group in one epoch, as one of its members sees it."""

    epoch: int
    size: int
    rank: int


class Modes(NamedTuple):
    """A communicator's flags for its operations: in place, and out of place."""

    in_place: int
    out_of_place: int
    deterministic: bool = False
    """What reduces is to do so in a fixed order, unless a call says otherwise; not in the flags yet."""

    @classmethod
    def of(cls, *, deferred: bool, preserve_input: bool, deterministic: bool = False) -> Modes:
        """DEFERRED for all; DISCARD_INPUT where input and output are one."""
        flags = constants.PCCL_DEFERRED if deferred else 0
        return cls(flags | (0 if preserve_input else constants.PCCL_DISCARD_INPUT), flags, deterministic)

    def reducing(self, deterministic: bool | None) -> Modes:
        """For what reduces; None: as the communicator was told. Raises InvalidArgument."""
        if not (self.deterministic if deterministic is None else truth("deterministic", deterministic)):
            return self
        flag = constants.PCCL_DETERMINISTIC
        return Modes(self.in_place | flag, self.out_of_place | flag, deterministic=True)


def all_reduce(
    send: Any, recv: Any, op: int | PremulSum, tag: int, algorithm: int, timeout: float | None, modes: Modes
) -> Request:
    """In place without `recv`. Raises InvalidArgument, as all functions here."""
    source, target, flags = _pair(send, recv, modes, in_place=True)
    return _request(_ALL_REDUCE, source, target, source.elements, op, algorithm, 0, flags, tag, 0, timeout)


def all_reduces(
    items: Sequence[Any], op: int | PremulSum, first_tag: int, timeout: float | None, modes: Modes
) -> list[Request]:
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
    send: Any,
    recv: Any,
    op: int | PremulSum,
    tag: int,
    algorithm: int,
    timeout: float | None,
    modes: Modes,
    group: Members,
) -> Request:
    """Valid in the epoch of `group` only: the counts are checked against its world size."""
    source = arrays.borrow(send, False, "send")
    target = arrays.borrow(recv, True, "recv")
    _check_blocks(source, "send", target, "recv", group.size)
    kind, flags, epoch = Collective.REDUCE_SCATTER, modes.out_of_place, group.epoch
    return _request(kind, source, target, target.elements, op, algorithm, 0, flags, tag, epoch, timeout)


def all_gather(
    send: Any, recv: Any, tag: int, algorithm: int, timeout: float | None, modes: Modes, group: Members
) -> Request:
    """Valid in the epoch of `group` only: the counts are checked against its world size."""
    source = arrays.borrow(send, False, "send")
    target = arrays.borrow(recv, True, "recv")
    _check_blocks(target, "recv", source, "send", group.size)
    kind, flags, epoch = Collective.ALL_GATHER, modes.out_of_place, group.epoch
    return _request(kind, source, target, source.elements, 0, algorithm, 0, flags, tag, epoch, timeout)


def reduce(
    send: Any,
    recv: Any,
    root: int,
    op: int | PremulSum,
    tag: int,
    algorithm: int,
    timeout: float | None,
    modes: Modes,
    group: Members,
) -> Request:
    """`recv` counts at the root only; without it, in place there. Valid in the epoch of `group` only, as all that has a
    root or parts: ranks mean other peers in another."""
    root = whole("root", root, 0, group.size - 1)
    at_root = root == group.rank
    source, target, flags = _pair(send, recv if at_root else None, modes, in_place=at_root)
    kind = Collective.REDUCE
    return _request(kind, source, target, source.elements, op, algorithm, root, flags, tag, group.epoch, timeout)


def scan(
    exclusive: bool,
    send: Any,
    recv: Any,
    op: int | PremulSum,
    tag: int,
    algorithm: int,
    timeout: float | None,
    modes: Modes,
) -> Request:
    """In place without `recv`."""
    source, target, flags = _pair(send, recv, modes, in_place=True)
    kind = Collective.EXSCAN if exclusive else Collective.SCAN
    return _request(kind, source, target, source.elements, op, algorithm, 0, flags, tag, 0, timeout)


def gather(
    send: Any, recv: Any, root: int, tag: int, algorithm: int, timeout: float | None, modes: Modes, group: Members
) -> Request:
    """`recv` counts at the root only."""
    root = whole("root", root, 0, group.size - 1)
    source, target = arrays.borrow(send, False, "send"), _NOTHING
    if root == group.rank:
        target = arrays.borrow(recv, True, "recv")
        _check_blocks(target, "recv", source, "send", group.size)
    kind, flags = Collective.GATHER, modes.out_of_place
    return _request(kind, source, target, source.elements, 0, algorithm, root, flags, tag, group.epoch, timeout)


def scatter(
    send: Any, recv: Any, root: int, tag: int, algorithm: int, timeout: float | None, modes: Modes, group: Members
) -> Request:
    """`send` counts at the root only."""
    root = whole("root", root, 0, group.size - 1)
    source, target = _NOTHING, arrays.borrow(recv, True, "recv")
    if root == group.rank:
        source = arrays.borrow(send, False, "send")
        _check_blocks(source, "send", target, "recv", group.size)
    kind, flags = Collective.SCATTER, modes.out_of_place
    one = _request(kind, source, target, target.elements, 0, algorithm, root, flags, tag, group.epoch, timeout)
    return one._replace(dtype=target.dtype)


def all_to_all(
    send: Any, recv: Any, tag: int, algorithm: int, timeout: float | None, modes: Modes, group: Members
) -> Request:
    """In place without `recv`."""
    source, target, flags = _pair(send, recv, modes, in_place=True)
    part, kind = _part(source, group.size), Collective.ALL_TO_ALL
    return _request(kind, source, target, part, 0, algorithm, 0, flags, tag, group.epoch, timeout)


def uneven(
    collective: int,
    send: Any,
    send_counts: Sequence[int] | None,
    recv: Any,
    recv_counts: Sequence[int] | None,
    root: int,
    op: int | PremulSum,
    tag: int,
    timeout: float | None,
    modes: Modes,
    group: Members,
) -> Request:
    """Parts that differ in length: counts by rank for the buffers that hold all parts. A buffer that has no meaning on
    this rank is None."""
    root = whole("root", root, 0, group.size - 1)
    source = _NOTHING if send is None else arrays.borrow(send, False, "send")
    target = _NOTHING if recv is None else arrays.borrow(recv, True, "recv")
    if send is not None and recv is not None and source.dtype != target.dtype:
        raise InvalidArgument(f"send has {arrays.describe(source)} and recv has {arrays.describe(target)}")
    flags = modes.out_of_place | constants.PCCL_UNEVEN
    elements = target.elements if send is None else source.elements  # of our own part, where we give no counts
    one = _request(collective, source, target, elements, op, 0, root, flags, tag, group.epoch, timeout)
    inputs = _counts("send", source, send_counts, group)
    outputs = _counts("recv", target, recv_counts, group)
    if inputs is NULL:
        _check_own("send", source, "recv_counts", recv_counts, group)
    if outputs is NULL:
        _check_own("recv", target, "send_counts", send_counts, group)
    dtype = target.dtype if send is None else source.dtype
    return one._replace(dtype=dtype, input_counts=inputs, output_counts=outputs, owner=(one.owner, inputs, outputs))


def gather_v(
    send: Any,
    recv: Any,
    recv_counts: Sequence[int] | None,
    root: int,
    tag: int,
    timeout: float | None,
    modes: Modes,
    group: Members,
) -> Request:
    """`recv` and `recv_counts` count at the root only."""
    if whole("root", root, 0, group.size - 1) != group.rank:
        recv = recv_counts = None
    elif recv is None or recv_counts is None:
        raise InvalidArgument("the root of a gather_v needs recv and recv_counts")
    return uneven(Collective.GATHER, send, None, recv, recv_counts, root, 0, tag, timeout, modes, group)


def scatter_v(
    send: Any,
    send_counts: Sequence[int] | None,
    recv: Any,
    root: int,
    tag: int,
    timeout: float | None,
    modes: Modes,
    group: Members,
) -> Request:
    """`send` and `send_counts` count at the root only."""
    if whole("root", root, 0, group.size - 1) != group.rank:
        send = send_counts = None
    elif send is None or send_counts is None:
        raise InvalidArgument("the root of a scatter_v needs send and send_counts")
    return uneven(Collective.SCATTER, send, send_counts, recv, None, root, 0, tag, timeout, modes, group)


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


def question(
    collective: int,
    send: Any,
    op: int | PremulSum,
    algorithm: int,
    deterministic: bool | None,
    modes: Modes,
    group: Members,
) -> tuple[int, int, int, int, int, int]:
    """For `Engine.explain`: what would run for such a call, where `send` is what a member passes to it (the root, if
    only its counts)."""
    kind = named("collective", collective, Collective)
    source = _NOTHING if send is None else arrays.borrow(send, False, "send")
    elements = _part(source, group.size) if kind in _SPREADING else source.elements
    if deterministic is not None or kind in _REDUCING:
        modes = modes.reducing(deterministic)
    flags = modes.out_of_place
    return kind, source.dtype, _reduction(op)[0], named("algorithm", algorithm, Algorithm), flags, elements


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


def _reduction(op: int | PremulSum) -> tuple[int, float]:
    """An operation and its factor."""
    if not isinstance(op, PremulSum):
        kind = named("op", op, ReduceOp)
        if kind == ReduceOp.PREMUL_SUM:
            raise InvalidArgument("op PREMUL_SUM needs a factor: pass op=pccl.PremulSum(factor)")
        return kind, 0.0
    try:
        if isinstance(op.factor, Real):
            return ReduceOp.PREMUL_SUM, float(op.factor)
    except OverflowError:
        pass
    raise InvalidArgument(f"the factor of a PremulSum must be a float, not {op.factor!r}")


def _request(
    collective: int,
    source: Borrowed,
    target: Borrowed,
    elements: int,
    op: int | PremulSum,
    algorithm: int,
    root: int,
    flags: int,
    tag: int,
    epoch: int,
    timeout: float | None,
) -> Request:
    kind, factor = _reduction(op)
    return Request(
        collective,
        source.dtype,
        kind,
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
        factor=factor,
    )


def _pair(send: Any, recv: Any, modes: Modes, *, in_place: bool) -> tuple[Borrowed, Borrowed, int]:
    """Two arrays of one layout and the flags for them. Without `recv`: `send` for both, or with `in_place` false no
    target at all."""
    if recv is None and not in_place:
        return arrays.borrow(send, False, "send"), _NOTHING, modes.out_of_place
    if recv is None or recv is send:
        both = arrays.borrow(send, True, "send")
        return both, both, modes.in_place
    source, target = arrays.borrow(send, False, "send"), arrays.borrow(recv, True, "recv")
    arrays.same_layout(source, target)
    return source, target, modes.out_of_place


def _counts(name: str, memory: Borrowed, by_rank: Sequence[int] | None, group: Members) -> Pointer:
    """Checked against the array that they describe."""
    if by_rank is None:
        return NULL
    if not isinstance(by_rank, Sequence | np.ndarray) or len(by_rank) != group.size:
        raise InvalidArgument(f"{name}_counts must have one count for each of {group.size} ranks, not {by_rank!r}")
    counts = [whole(f"a count of {name}_counts", count, 0, 2**63 - 1) for count in by_rank]
    if sum(counts) != memory.elements:
        raise InvalidArgument(f"{name} has {arrays.describe(memory)}, {name}_counts add up to {sum(counts)}")
    return _native.counts(counts)


def _check_own(name: str, memory: Borrowed, other_name: str, by_rank: Sequence[int] | None, group: Members) -> None:
    """An array of this rank's part alone holds what is said of it among the parts of all."""
    if by_rank is not None and memory.elements != by_rank[group.rank]:
        raise InvalidArgument(
            f"{name} has {arrays.describe(memory)}, but {other_name}[{group.rank}] is {by_rank[group.rank]}"
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


def _part(send: Borrowed, size: int) -> int:
    """The elements of each rank's part of it. Raises InvalidArgument."""
    if send.elements % size:
        raise InvalidArgument(f"send has {arrays.describe(send)}; with {size} peers it must hold {size} equal parts")
    return send.elements // size


def _check_blocks(long: Borrowed, long_name: str, block: Borrowed, block_name: str, world_size: int) -> None:
    if long.dtype != block.dtype or long.elements != block.elements * world_size:
        raise InvalidArgument(
            f"{long_name} has {arrays.describe(long)} and {block_name} has {arrays.describe(block)}; "
            f"with {world_size} peers {long_name} must hold {world_size} times as many"
        )
