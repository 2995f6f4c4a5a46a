# SPDX-License-Identifier: MIT
"""Every collective as a call whose result can be checked whoever took part in it.

Contributions are those of `pccl.stress.values`: each tells whose it is, so a result says who its members were, and from
those follows each element.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import pccl
from pccl.stress import values

Array = NDArray[np.float32]
Members = list[int] | None
NOTHING: Array = np.zeros(0, np.float32)


@dataclass(frozen=True)
class Work:
    """One call. `members` takes what it returned, asserts that the result is exact, and gives the numbers of those in
    it (None where it does not tell of all). `input` is what has to survive a failure."""

    call: Callable[[], pccl.ReduceInfo]
    members: Callable[[pccl.ReduceInfo], Members]
    input: Array

    def digest(self) -> int:
        """Of the input's bytes."""
        return zlib.crc32(self.input.tobytes())


# ---------------------------------------------------------------- what is given, and what it tells afterwards


def contribution(number: int, step: int, elements: int, blocks: int = 1) -> Array:
    """`blocks` contributions of a peer, one after the other, that differ."""
    return parts(number, step, [elements] * blocks)


def parts(number: int, step: int, counts: Sequence[int]) -> Array:
    """Contributions of a peer of these lengths, one after the other, that differ; some may be empty."""
    made = np.zeros(sum(counts), np.float32)
    for block, part in enumerate(split(made, counts)):
        if part.size > 0:
            values.contribute(part, number, step, block)
    return made


def split(whole: Array, counts: Sequence[int]) -> list[Array]:
    """The parts of these lengths."""
    return np.split(whole, np.cumsum(counts))[:-1]


def uneven(elements: int, *ranks: int) -> int:
    """The length of the part that these ranks are concerned with: none, one or two times `elements`."""
    return sum(ranks) % 3 * elements


def root_of(step: int) -> int:
    """Changes with the step, and is there in every group of two or more."""
    return step % 2


def summed(result: Array, step: int, block: int = 0) -> list[int]:
    """Whose sum this is. Asserts that it is exact."""
    numbers = values.members(result)
    assert numbers is not None, "a contribution is in it twice"
    assert values.is_sum(result, numbers, step, block), f"not the sum over {numbers}"
    return numbers


def sole(result: Array, step: int, block: int = 0) -> int:
    """Whose contribution this is. Asserts that it is exact."""
    numbers = values.members(result)
    assert numbers is not None
    assert len(numbers) == 1, f"the contribution of {numbers}"
    assert values.is_contribution(result, numbers[0], step, block), f"damaged contribution of {numbers}"
    return numbers[0]


def soles(result: Array, counts: Sequence[int], step: int, block: int = 0) -> Members:
    """Whose contributions the parts are, each of another peer; None where some are empty."""
    numbers = sorted(sole(part, step, block) for part in split(result, counts) if part.size > 0)
    assert len(set(numbers)) == len(numbers), f"twice among {numbers}"
    return numbers if all(counts) else None


# ---------------------------------------------------------------- sums


def all_reduce(comm: pccl.Communicator, number: int, step: int, elements: int, in_place: bool, **more: Any) -> Work:
    send = contribution(number, step, elements)
    recv = send if in_place else np.zeros_like(send)
    return Work(lambda: comm.all_reduce(send, recv, **more), lambda info: summed(recv, step), send)


def reduce(comm: pccl.Communicator, number: int, step: int, elements: int, in_place: bool, **more: Any) -> Work:
    root, send = root_of(step), contribution(number, step, elements)
    recv = send if in_place else np.zeros_like(send)

    def members(info: pccl.ReduceInfo) -> Members:
        if info.rank == root:
            return summed(recv, step)
        assert values.is_contribution(send, number, step, 0), "only the root has a result"
        return None

    return Work(lambda: comm.reduce(send, recv, root, **more), members, send)


def reduce_scatter(comm: pccl.Communicator, number: int, step: int, elements: int, in_place: bool, **more: Any) -> Work:
    rank, size = comm.rank, comm.group_world_size
    send = contribution(number, step, elements, size)
    block = send[rank * elements : (rank + 1) * elements]
    recv = block if in_place else np.zeros_like(block)
    return Work(lambda: comm.reduce_scatter(send, recv, **more), lambda info: summed(recv, step, info.rank), send)


def reduce_scatter_v(comm: pccl.Communicator, number: int, step: int, elements: int, in_place: bool) -> Work:
    rank, counts = comm.rank, [uneven(elements, r) for r in range(comm.group_world_size)]
    send = parts(number, step, counts)
    recv = split(send, counts)[rank] if in_place else np.zeros(counts[rank], np.float32)

    def members(info: pccl.ReduceInfo) -> Members:
        return summed(recv, step, info.rank) if recv.size > 0 else None

    return Work(lambda: comm.reduce_scatter_v(send, counts, recv), members, send)


def scan(comm: pccl.Communicator, number: int, step: int, elements: int, in_place: bool, **more: Any) -> Work:
    send = contribution(number, step, elements)
    recv = send if in_place else np.zeros_like(send)

    def members(info: pccl.ReduceInfo) -> Members:
        numbers = summed(recv, step)
        assert number in numbers, f"without our own: {numbers}"
        assert len(numbers) == info.rank + 1, f"rank {info.rank} got the sum of {numbers}"
        return numbers if info.rank == info.world_size - 1 else None

    return Work(lambda: comm.scan(send, recv, **more), members, send)


def exscan(comm: pccl.Communicator, number: int, step: int, elements: int, in_place: bool, **more: Any) -> Work:
    send = contribution(number, step, elements)
    recv = send if in_place else np.zeros_like(send)

    def members(info: pccl.ReduceInfo) -> Members:
        kept = [number] if in_place and info.rank == 0 else []
        numbers = [it for it in summed(recv, step) if it not in kept]
        assert number not in numbers, f"with our own: {numbers}"
        assert len(numbers) == info.rank, f"rank {info.rank} got the sum of {numbers}"
        return None

    return Work(lambda: comm.exscan(send, recv, **more), members, send)


# ---------------------------------------------------------------- moves


def all_gather(comm: pccl.Communicator, number: int, step: int, elements: int, in_place: bool, **more: Any) -> Work:
    rank, counts = comm.rank, [elements] * comm.group_world_size
    recv, send = gathering(number, step, counts, rank, in_place)
    return Work(lambda: comm.all_gather(send, recv, **more), lambda info: soles(recv, counts, step), send)


def all_gather_v(comm: pccl.Communicator, number: int, step: int, elements: int, in_place: bool) -> Work:
    rank, counts = comm.rank, [uneven(elements, r) for r in range(comm.group_world_size)]
    recv, send = gathering(number, step, counts, rank, in_place)
    return Work(lambda: comm.all_gather_v(send, recv, counts), lambda info: soles(recv, counts, step), send)


def gather(comm: pccl.Communicator, number: int, step: int, elements: int, in_place: bool, **more: Any) -> Work:
    rank, root, counts = comm.rank, root_of(step), [elements] * comm.group_world_size
    recv, send = gathering(number, step, counts, rank, in_place)

    def members(info: pccl.ReduceInfo) -> Members:
        return soles(recv, counts, step) if info.rank == root else None

    return Work(lambda: comm.gather(send, recv if rank == root else None, root, **more), members, send)


def gather_v(comm: pccl.Communicator, number: int, step: int, elements: int, in_place: bool) -> Work:
    rank, root, counts = comm.rank, root_of(step), [uneven(elements, r) for r in range(comm.group_world_size)]
    recv, send = gathering(number, step, counts, rank, in_place)
    at_root = (recv, counts) if rank == root else (None, None)

    def members(info: pccl.ReduceInfo) -> Members:
        return soles(recv, counts, step) if info.rank == root else None

    return Work(lambda: comm.gather_v(send, *at_root, root), members, send)


def gathering(number: int, step: int, counts: Sequence[int], rank: int, in_place: bool) -> tuple[Array, Array]:
    """Memory for the parts of all, and our own part, which lies in it or elsewhere."""
    recv = np.zeros(sum(counts), np.float32)
    send = split(recv, counts)[rank] if in_place else np.zeros(counts[rank], np.float32)
    if send.size > 0:
        values.contribute(send, number, step, 0)
    return recv, send


def scatter(comm: pccl.Communicator, number: int, step: int, elements: int, in_place: bool, **more: Any) -> Work:
    rank, root, counts = comm.rank, root_of(step), [elements] * comm.group_world_size
    send, recv = scattering(number, step, counts, rank, root, in_place)
    return Work(lambda: comm.scatter(send, recv, root, **more), lambda info: [sole(recv, step, info.rank)], send)


def scatter_v(comm: pccl.Communicator, number: int, step: int, elements: int, in_place: bool) -> Work:
    rank, root, counts = comm.rank, root_of(step), [uneven(elements, r) for r in range(comm.group_world_size)]
    send, recv = scattering(number, step, counts, rank, root, in_place)

    def members(info: pccl.ReduceInfo) -> Members:
        return [sole(recv, step, info.rank)] if recv.size > 0 else None

    return Work(lambda: comm.scatter_v(send, counts, recv, root), members, send)


def scattering(
    number: int, step: int, counts: Sequence[int], rank: int, root: int, in_place: bool
) -> tuple[Array, Array]:
    """The root's parts for all, nothing elsewhere; and memory for our own part, which lies in it at the root or
    elsewhere."""
    send = parts(number, step, counts) if rank == root else NOTHING
    recv = split(send, counts)[rank] if in_place and rank == root else np.zeros(counts[rank], np.float32)
    return send, recv


def all_to_all(comm: pccl.Communicator, number: int, step: int, elements: int, in_place: bool, **more: Any) -> Work:
    counts = [elements] * comm.group_world_size
    send = parts(number, step, counts)
    recv = send if in_place else np.zeros_like(send)
    return Work(lambda: comm.all_to_all(send, recv, **more), lambda info: soles(recv, counts, step, info.rank), send)


def all_to_all_v(comm: pccl.Communicator, number: int, step: int, elements: int, in_place: bool) -> Work:
    rank, size = comm.rank, comm.group_world_size
    sent, expected = ([uneven(elements, *pair) for pair in pairs] for pairs in exchanges(rank, size))
    send, recv = parts(number, step, sent), np.zeros(sum(expected), np.float32)

    def members(info: pccl.ReduceInfo) -> Members:
        return soles(recv, expected, step, info.rank)

    return Work(lambda: comm.all_to_all_v(send, sent, recv, expected), members, send)


def exchanges(rank: int, size: int) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """What `uneven` is asked for parts to all and from all, which differ in the two directions of a pair."""
    return [(rank, other, other) for other in range(size)], [(other, rank, rank) for other in range(size)]


def broadcast(comm: pccl.Communicator, number: int, step: int, elements: int, in_place: bool, **more: Any) -> Work:
    """From a root that changes with the step. Only the root has input: what others hold is as undefined after a failure
    as any output."""
    root, epoch = step % comm.group_world_size, comm.epoch
    x = contribution(number, step, elements)
    input_ = x if comm.rank == root else NOTHING
    return Work(lambda: comm.broadcast(x, root, epoch=epoch, **more), lambda info: [sole(x, step)], input_)


def barrier(comm: pccl.Communicator, number: int, step: int, elements: int, in_place: bool) -> Work:
    return Work(comm.barrier, lambda info: None, NOTHING)


COLLECTIVES: dict[str, Callable[..., Work]] = {
    made.__name__: made
    for made in (
        *(all_reduce, reduce_scatter, all_gather, broadcast, barrier),
        *(reduce, gather, scatter, all_to_all, scan, exscan, reduce_scatter_v, all_gather_v),
        *(gather_v, scatter_v, all_to_all_v),
    )
}
"""They take a communicator, the number of its peer, the step, elements of a part, whether in place, and what else the
call takes (`algorithm`)."""

FROM_ROOT = {"broadcast", "scatter", "scatter_v"}
"""Their results tell of the root only."""

DIRECT = ["gather_v", "scatter_v", "all_to_all_v"]
"""They need a link between any two."""

FORMS = [
    (name, in_place)
    for name in COLLECTIVES
    for in_place in (False, True)
    if name not in DIRECT and (name, in_place) not in [("broadcast", False), ("barrier", True)]
]
"""All collectives that any group can do, in place and not where there is a choice."""

FORMS_OF_ALL_LINKS = [(name, in_place) for name in DIRECT for in_place in (False, True)][:-1]
"""The others; an all_to_all_v in place is no other than out of place."""
