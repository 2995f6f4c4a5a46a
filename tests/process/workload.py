# SPDX-License-Identifier: MIT
"""Every collective as a call whose result can be checked whoever took part in it.

Contributions are those of `pccl.stress.values`: each tells whose it is, so a result says who its members were, and from
those follows each element.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

import pccl
from pccl.stress import values

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Work:
    """One call. `members` gives the numbers of those in the result and asserts that it is exact; `input` is what has to
    survive a failure."""

    call: Callable[[], pccl.ReduceInfo]
    members: Callable[[], list[int] | None]
    input: Array

    def digest(self) -> int:
        """Of the input's bytes."""
        return zlib.crc32(self.input.tobytes())


def contribution(number: int, step: int, elements: int, blocks: int = 1) -> Array:
    """`blocks` contributions of a peer, one after the other, that differ."""
    made = np.zeros(blocks * elements, np.float32)
    for block in range(blocks):
        values.contribute(made[block * elements : (block + 1) * elements], number, step, block)
    return made


def summed(result: Array, step: int, block: int = 0) -> list[int]:
    """Whose sum this is. Asserts that it is exact."""
    numbers = values.members(result)
    assert numbers is not None, "a contribution is in it twice"
    assert values.is_sum(result, numbers, step, block), f"not the sum over {numbers}"
    return numbers


def sole(result: Array, step: int) -> int:
    """Whose contribution this is. Asserts that it is exact."""
    numbers = values.members(result)
    assert numbers is not None
    assert len(numbers) == 1, f"the contribution of {numbers}"
    assert values.is_contribution(result, numbers[0], step, 0), f"damaged contribution of {numbers}"
    return numbers[0]


def all_reduce(comm: pccl.Communicator, number: int, step: int, elements: int, in_place: bool) -> Work:
    send = contribution(number, step, elements)
    recv = send if in_place else np.zeros_like(send)
    return Work(lambda: comm.all_reduce(send, None if in_place else recv), lambda: summed(recv, step), send)


def reduce_scatter(comm: pccl.Communicator, number: int, step: int, elements: int, in_place: bool) -> Work:
    rank, size = comm.rank, comm.group_world_size
    send = contribution(number, step, elements, size)
    block = send[rank * elements : (rank + 1) * elements]
    recv = block if in_place else np.zeros_like(block)
    return Work(lambda: comm.reduce_scatter(send, recv), lambda: summed(recv, step, rank), send)


def all_gather(comm: pccl.Communicator, number: int, step: int, elements: int, in_place: bool) -> Work:
    rank, size = comm.rank, comm.group_world_size
    recv = np.zeros(size * elements, np.float32)
    block = recv[rank * elements : (rank + 1) * elements]
    send = block if in_place else np.zeros_like(block)
    values.contribute(send, number, step, 0)

    def members() -> list[int]:
        return sorted(sole(part, step) for part in recv.reshape(size, elements))

    return Work(lambda: comm.all_gather(send, recv), members, send)


def broadcast(comm: pccl.Communicator, number: int, step: int, elements: int, in_place: bool) -> Work:
    """From a root that changes with the step. Only the root has input: what others hold is as undefined after a failure
    as any output."""
    root, epoch = step % comm.group_world_size, comm.epoch
    x = contribution(number, step, elements)
    input_ = x if comm.rank == root else x[:0]
    return Work(lambda: comm.broadcast(x, root, epoch=epoch), lambda: [sole(x, step)], input_)


def barrier(comm: pccl.Communicator, number: int, step: int, elements: int, in_place: bool) -> Work:
    return Work(comm.barrier, lambda: None, np.zeros(0, np.float32))


COLLECTIVES = {
    "all_reduce": all_reduce,
    "reduce_scatter": reduce_scatter,
    "all_gather": all_gather,
    "broadcast": broadcast,
    "barrier": barrier,
}

FORMS = [(name, in_place) for name in ("all_reduce", "reduce_scatter", "all_gather") for in_place in (False, True)]
FORMS += [("broadcast", True), ("barrier", False)]
"""All collectives, in place and not where there is a choice."""
