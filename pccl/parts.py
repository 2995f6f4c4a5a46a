# SPDX-License-Identifier: MIT
"""Requests for parts that differ in length. A buffer that holds the parts of all ranks comes with their counts; one of
a single part holds ours. The engine reads and writes as much as the counts say, so they are checked against arrays
and world size here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pccl import _native, arrays
from pccl._native import NULL, Pointer, constants
from pccl.arguments import whole
from pccl.arrays import NOTHING, Borrowed
from pccl.enums import Collective, PremulSum, ReduceOp
from pccl.errors import InvalidArgument
from pccl.request import Members, Modes, Request, build

Counts = Sequence[int] | None
"""Elements by rank."""

_NO_OP = ReduceOp.SUM
"""Of what only moves."""


def all_gather(
    send: Any, recv: Any, recv_counts: Counts, tag: int, timeout: float | None, modes: Modes, group: Members
) -> Request:
    """`recv` holds all parts. Raises InvalidArgument, as all functions here."""
    return _uneven(Collective.ALL_GATHER, send, None, recv, recv_counts, 0, _NO_OP, tag, timeout, modes, group)


def reduce_scatter(
    send: Any,
    send_counts: Counts,
    recv: Any,
    op: int | PremulSum,
    tag: int,
    timeout: float | None,
    modes: Modes,
    group: Members,
) -> Request:
    """`send` holds all parts."""
    return _uneven(Collective.REDUCE_SCATTER, send, send_counts, recv, None, 0, op, tag, timeout, modes, group)


def all_to_all(
    send: Any,
    send_counts: Counts,
    recv: Any,
    recv_counts: Counts,
    tag: int,
    timeout: float | None,
    modes: Modes,
    group: Members,
) -> Request:
    """Both hold parts for, and of, all."""
    return _uneven(Collective.ALL_TO_ALL, send, send_counts, recv, recv_counts, 0, _NO_OP, tag, timeout, modes, group)


def gather(
    send: Any, recv: Any, recv_counts: Counts, root: int, tag: int, timeout: float | None, modes: Modes, group: Members
) -> Request:
    """`recv` and `recv_counts` count at the root only."""
    if group.root(root) != group.rank:
        recv = recv_counts = None
    elif recv is None or recv_counts is None:
        raise InvalidArgument("the root of a gather_v needs recv and recv_counts")
    return _uneven(Collective.GATHER, send, None, recv, recv_counts, root, _NO_OP, tag, timeout, modes, group)


def scatter(
    send: Any, send_counts: Counts, recv: Any, root: int, tag: int, timeout: float | None, modes: Modes, group: Members
) -> Request:
    """`send` and `send_counts` count at the root only."""
    if group.root(root) != group.rank:
        send = send_counts = None
    elif send is None or send_counts is None:
        raise InvalidArgument("the root of a scatter_v needs send and send_counts")
    return _uneven(Collective.SCATTER, send, send_counts, recv, None, root, _NO_OP, tag, timeout, modes, group)


def _uneven(
    collective: int,
    send: Any,
    send_counts: Counts,
    recv: Any,
    recv_counts: Counts,
    root: int,
    op: int | PremulSum,
    tag: int,
    timeout: float | None,
    modes: Modes,
    group: Members,
) -> Request:
    """Counts for the buffers that hold all parts. A buffer that has no meaning on this rank is None."""
    root = group.root(root)
    source = NOTHING if send is None else arrays.borrow(send, False, "send")
    target = NOTHING if recv is None else arrays.borrow(recv, True, "recv")
    if send is not None and recv is not None and source.dtype != target.dtype:
        raise InvalidArgument(f"send has {arrays.describe(source)} and recv has {arrays.describe(target)}")
    inputs = _counts("send", source, send_counts, group)
    outputs = _counts("recv", target, recv_counts, group)
    if inputs is NULL:
        _check_own("send", source, "recv_counts", recv_counts, group)
    if outputs is NULL:
        _check_own("recv", target, "send_counts", send_counts, group)
    flags = modes.out_of_place | constants.PCCL_UNEVEN
    elements = target.elements if send is None else source.elements  # of our own part, where we give no counts
    one = build(collective, flags, source, target, elements, tag, timeout, group.epoch, root, op=op)
    one.call.input_counts, one.call.output_counts = inputs, outputs
    one.owner = (one.owner, inputs, outputs)
    return one


def _counts(name: str, memory: Borrowed, by_rank: Counts, group: Members) -> Pointer:
    """Checked against the array that they describe."""
    if by_rank is None:
        return NULL
    if not isinstance(by_rank, Sequence | np.ndarray) or len(by_rank) != group.size:
        raise InvalidArgument(f"{name}_counts must have one count for each of {group.size} ranks, not {by_rank!r}")
    counts = [whole(f"a count of {name}_counts", count, 0, 2**63 - 1) for count in by_rank]
    if sum(counts) != memory.elements:
        raise InvalidArgument(f"{name} has {arrays.describe(memory)}, {name}_counts add up to {sum(counts)}")
    return _native.counts(counts)


def _check_own(name: str, memory: Borrowed, other_name: str, by_rank: Counts, group: Members) -> None:
    """An array of this rank's part alone holds what is said of it among the parts of all."""
    if by_rank is not None and memory.elements != by_rank[group.rank]:
        raise InvalidArgument(
            f"{name} has {arrays.describe(memory)}, but {other_name}[{group.rank}] is {by_rank[group.rank]}"
        )
