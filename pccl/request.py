# SPDX-License-Identifier: MIT
"""From a user's arguments to one operation that the engine can start: every check, and nothing sent yet.

The one idea: a `Request` is the call as the engine takes it, together with what keeps its memory alive. It may be
started again after a failure. What has a root or parts is made for one view of the group (`Members`): it runs in that
epoch or not at all, since ranks mean other peers in another. Parts that differ in length are in `parts.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Real
from typing import Any, NamedTuple, TypeAlias

from pccl import _codec, _native, arrays, descriptors
from pccl._native import NULL, constants, extent, pointer
from pccl.arguments import milliseconds, named, truth, whole
from pccl.arrays import NOTHING, Borrowed
from pccl.descriptors import ReduceDescriptor, ReduceOpDescriptor
from pccl.enums import Algorithm, Collective, PremulSum, ReduceOp
from pccl.errors import InvalidArgument, PeerLost
from pccl.quantization import QuantizationAlgorithm, QuantizationOptions

TAG_MAX = 2**63 - 1
"""The engine knows as many above it, which are pccl's own."""

_REDUCING = (
    Collective.ALL_REDUCE,
    Collective.REDUCE_SCATTER,
    Collective.REDUCE,
    Collective.SCAN,
    Collective.EXSCAN,
)
_SPREADING = (Collective.REDUCE_SCATTER, Collective.SCATTER, Collective.ALL_TO_ALL)
"""Whose `send` holds a part for each rank."""


Request: TypeAlias = _native.Call
"""`call` is the `pccl_call`; `owner` keeps what it points to alive and in place."""


class Members(NamedTuple):
    """A group in one epoch, as one of its members sees it."""

    epoch: int
    size: int
    rank: int

    def within(self, epoch: int) -> Members:
        """Itself, if that is the epoch the caller means, or 0 for whichever it is. Raises PeerLost, InvalidArgument."""
        if whole("epoch", epoch, 0, 2**64 - 1) in (0, self.epoch):
            return self
        failure = PeerLost(f"the group is in epoch {self.epoch} ({self.size} members), not in {epoch}: call again")
        failure.epoch = epoch
        raise failure

    def root(self, rank: int) -> int:
        """A rank of it. Raises InvalidArgument."""
        return whole("root", rank, 0, self.size - 1)

    def other(self, name: str, rank: int) -> int:
        """A rank of it that is not our own. Raises InvalidArgument."""
        if whole(name, rank, 0, self.size - 1) == self.rank:
            raise InvalidArgument(f"{name} is rank {self.rank}, which is this peer itself")
        return int(rank)


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


def prefer(one: Request, priority: int) -> None:
    """Before others, or behind them if negative. Raises InvalidArgument."""
    one.call.priority = whole("priority", priority, constants.PCCL_PRIORITY_MIN, constants.PCCL_PRIORITY_MAX)


def quantize(
    one: Request, options: QuantizationOptions | None, errors: Any = None, group: Members | None = None
) -> Request:
    """What of it goes over links is quantized; `group` is needed where buffers have parts. Raises InvalidArgument."""
    if options is not None and not isinstance(options, QuantizationOptions):
        raise InvalidArgument(f"quantization_options is a {type(options).__name__}, not a QuantizationOptions")
    if options is None or options.algorithm == QuantizationAlgorithm.NONE:
        if errors is not None:
            raise InvalidArgument("errors are those of quantization: pass quantization_options, too")
        return one
    one.call.quantization = options.native()[0]
    if errors is not None:
        memory = arrays.float32("errors", errors, _input_elements(one.call, group))
        held = one.call.errors = _codec.floats(memory)
        one.owner = (one.owner, memory, held)
    return one


def _input_elements(call: _native.Pointer, group: Members | None) -> int:
    if call.tensors_count:
        return sum(call.tensors[i].count for i in range(call.tensors_count))
    size, rank = (group.size, group.rank) if group else (1, 0)
    spreads = call.collective in _SPREADING
    if not call.flags & constants.PCCL_UNEVEN:
        return int(call.count) * (size if spreads else 1)
    return sum(call.input_counts[it] for it in range(size)) if spreads else int(call.output_counts[rank])


# ---------------------------------------------------------------- what reduces


@_native.quickened("all_reduce", Modes)
def all_reduce(
    send: Any, recv: Any, op: int | PremulSum, tag: int, algorithm: int, timeout: float | None, modes: Modes
) -> Request:
    """In place without `recv`. Raises InvalidArgument, as all functions here."""
    source, target, flags = _pair(send, recv, modes)
    kind = Collective.ALL_REDUCE
    return build(kind, flags, source, target, source.elements, tag, timeout, op=op, algorithm=algorithm)


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
            descriptors.check(item.send, reduction.operand_descriptor)
            one = all_reduce(item.send, item.recv, reduction.op, reduction.tag, Algorithm.AUTO, timeout, modes)
            quantize(one, reduction.quantization_options)
            if one.call.count != reduction.count:
                raise InvalidArgument(f"a descriptor says {reduction.count} elements, its array has {one.call.count}")
        else:
            one = all_reduce(item, None, op, first_tag + index, Algorithm.AUTO, timeout, modes)
        requests.append(one)
    if not requests:
        raise InvalidArgument("there is nothing to reduce")
    if len({one.call.tag for one in requests}) < len(requests):
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
    """`send` holds a block for each rank."""
    source = arrays.borrow(send, False, "send")
    target = arrays.borrow(recv, True, "recv")
    _check_blocks(source, "send", target, "recv", group.size)
    kind, flags, epoch = Collective.REDUCE_SCATTER, modes.out_of_place, group.epoch
    return build(kind, flags, source, target, target.elements, tag, timeout, epoch, op=op, algorithm=algorithm)


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
    """`recv` counts at the root only; without it, in place there."""
    root = group.root(root)
    if root == group.rank:
        source, target, flags = _pair(send, recv, modes)
    else:
        source, target, flags = arrays.borrow(send, False, "send"), NOTHING, modes.out_of_place
    kind, elements, epoch = Collective.REDUCE, source.elements, group.epoch
    return build(kind, flags, source, target, elements, tag, timeout, epoch, root, op=op, algorithm=algorithm)


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
    source, target, flags = _pair(send, recv, modes)
    kind = Collective.EXSCAN if exclusive else Collective.SCAN
    return build(kind, flags, source, target, source.elements, tag, timeout, op=op, algorithm=algorithm)


# ---------------------------------------------------------------- what moves


def all_gather(
    send: Any, recv: Any, tag: int, algorithm: int, timeout: float | None, modes: Modes, group: Members
) -> Request:
    """`recv` holds a block for each rank."""
    source = arrays.borrow(send, False, "send")
    target = arrays.borrow(recv, True, "recv")
    _check_blocks(target, "recv", source, "send", group.size)
    kind, flags, epoch = Collective.ALL_GATHER, modes.out_of_place, group.epoch
    return build(kind, flags, source, target, source.elements, tag, timeout, epoch, algorithm=algorithm)


def gather(
    send: Any, recv: Any, root: int, tag: int, algorithm: int, timeout: float | None, modes: Modes, group: Members
) -> Request:
    """`recv` counts at the root only."""
    root = group.root(root)
    source, target = arrays.borrow(send, False, "send"), NOTHING
    if root == group.rank:
        target = arrays.borrow(recv, True, "recv")
        _check_blocks(target, "recv", source, "send", group.size)
    kind, flags, epoch = Collective.GATHER, modes.out_of_place, group.epoch
    return build(kind, flags, source, target, source.elements, tag, timeout, epoch, root, algorithm=algorithm)


def scatter(
    send: Any, recv: Any, root: int, tag: int, algorithm: int, timeout: float | None, modes: Modes, group: Members
) -> Request:
    """`send` counts at the root only."""
    root = group.root(root)
    source, target = NOTHING, arrays.borrow(recv, True, "recv")
    if root == group.rank:
        source = arrays.borrow(send, False, "send")
        _check_blocks(source, "send", target, "recv", group.size)
    kind, flags, epoch = Collective.SCATTER, modes.out_of_place, group.epoch
    return build(kind, flags, source, target, target.elements, tag, timeout, epoch, root, algorithm=algorithm)


def all_to_all(
    send: Any, recv: Any, tag: int, algorithm: int, timeout: float | None, modes: Modes, group: Members
) -> Request:
    """In place without `recv`."""
    source, target, flags = _pair(send, recv, modes)
    part, kind, epoch = _part(source, group.size), Collective.ALL_TO_ALL, group.epoch
    return build(kind, flags, source, target, part, tag, timeout, epoch, algorithm=algorithm)


def broadcast(
    x: Any, root: int, tag: int, algorithm: int, timeout: float | None, modes: Modes, group: Members
) -> Request:
    """In place on all members."""
    root = group.root(root)
    memory = arrays.borrow(x, True, "x")
    kind, flags, epoch = Collective.BROADCAST, modes.in_place, group.epoch
    return build(kind, flags, memory, memory, memory.elements, tag, timeout, epoch, root, algorithm=algorithm)


# ---------------------------------------------------------------- what only meets


def barrier(tag: int, timeout: float | None, modes: Modes) -> Request:
    """No memory."""
    return build(Collective.BARRIER, modes.out_of_place, NOTHING, NOTHING, 0, tag, timeout)


def commit(timeout: float | None) -> Request:
    """Settles the deferred operations of all tags."""
    return build(Collective.COMMIT, 0, NOTHING, NOTHING, 0, 0, timeout)


# ---------------------------------------------------------------- what goes from one to another


def send(array: Any, to: int, tag: int, timeout: float | None, modes: Modes, group: Members) -> Request:
    """For the epoch of `group`."""
    source, flags, epoch = arrays.borrow(array, False, "array"), modes.out_of_place, group.epoch
    peer, kind = group.other("to", to), Collective.SEND
    return build(kind, flags, source, NOTHING, source.elements, tag, timeout, epoch, peer)


def recv(
    array: Any, source: int | None, tag: int, epoch: int, timeout: float | None, modes: Modes, group: Members
) -> Request:
    """For the epoch of `group`; without `source` for `epoch`, which may be 0 for any."""
    target, flags, kind = arrays.borrow(array, True, "array"), modes.out_of_place, Collective.RECV
    if source is None:
        peer = constants.PCCL_ANY_SOURCE
    else:
        peer, epoch = group.other("source", source), group.epoch
    return build(kind, flags, NOTHING, target, target.elements, tag, timeout, epoch, peer)


def batch(items: Sequence[Any], epoch: int, timeout: float | None, modes: Modes, group: Members) -> list[Request]:
    """One for each: what has `to` is a send, what has `source` a receive."""
    if not isinstance(items, Iterable):
        raise InvalidArgument(f"a list of Send and Recv is needed, not a {type(items).__name__}")
    requests = []
    for it in items:
        if hasattr(it, "to") and hasattr(it, "tag"):
            requests.append(send(it.array, it.to, it.tag, timeout, modes, group))
        elif hasattr(it, "source") and hasattr(it, "tag"):
            requests.append(recv(it.array, it.source, it.tag, epoch, timeout, modes, group))
        else:
            raise InvalidArgument(f"a batch holds Send and Recv, not a {type(it).__name__}")
    if requests:
        _check_apart(requests)
    return requests


def question(
    collective: int,
    send: Any,
    op: int | PremulSum,
    algorithm: int,
    deterministic: bool | None,
    modes: Modes,
    group: Members,
    quantization_options: QuantizationOptions | None = None,
) -> Request:
    """For `Engine.explain`: what would run for such a call, where `send` is what a member passes to it (the root, if
    only its counts)."""
    kind = named("collective", collective, Collective)
    source = NOTHING if send is None else arrays.borrow(send, False, "send")
    elements = _part(source, group.size) if kind in _SPREADING else source.elements
    if deterministic is not None or kind in _REDUCING:
        modes = modes.reducing(deterministic)
    one = build(kind, modes.out_of_place, source, NOTHING, elements, 0, None, op=op, algorithm=algorithm)
    return quantize(one, quantization_options)


@_native.quickened("build", NOTHING, ReduceOp.PREMUL_SUM, Algorithm)
def build(
    collective: int,
    flags: int,
    source: Borrowed,
    target: Borrowed,
    elements: int,
    tag: int,
    timeout: float | None,
    epoch: int = 0,
    root: int = 0,
    *,
    op: int | PremulSum = ReduceOp.SUM,
    algorithm: int = Algorithm.AUTO,
) -> Request:
    """Checks what all have in common. `elements` as `pccl_call` counts them; 0 as `epoch` is any."""
    one = Request((source, target))
    call = one.call
    call.collective = collective
    call.dtype = target.dtype if source is NOTHING else source.dtype
    call.op, call.factor = _reduction(op)
    call.algorithm = named("algorithm", algorithm, Algorithm)
    call.root = root
    call.flags = flags
    call.count = elements
    call.tag = whole("tag", tag, 0, TAG_MAX)
    call.input, call.output = pointer(source.address), pointer(target.address)
    call.expected_epoch = epoch
    if timeout is not None:
        call.timeout_ms = milliseconds("timeout", timeout)
    return one


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


def _pair(send: Any, recv: Any, modes: Modes) -> tuple[Borrowed, Borrowed, int]:
    """Two arrays of one layout, or without `recv` one that is both, and the flags for them."""
    if recv is None or recv is send:
        both = arrays.borrow(send, True, "send")
        return both, both, modes.in_place
    source, target = arrays.borrow(send, False, "send"), arrays.borrow(recv, True, "recv")
    arrays.same_layout(source, target)
    return source, target, modes.out_of_place


def _check_apart(requests: Sequence[Request]) -> None:
    """Concurrent operations must not write where another reads or writes. Raises InvalidArgument."""
    places = []
    for index, one in enumerate(requests):
        target = extent(one.call.output, one.call.dtype, one.call.count)
        source = extent(one.call.input, one.call.dtype, one.call.count)
        if one.call.output != NULL:
            places.append((*target, index, True))
        if one.call.input != NULL and source != target:
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
