# SPDX-License-Identifier: MIT
"""Every collective as a call whose result can be checked whoever took part in it.

Contributions are those of `values`: each tells whose it is, so a result says who its members were, and from those
follows each element. What nobody gave is filled with `FILL`, so that a place which nothing was written to shows.

Must not know: why a call is made, and what happens if it fails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pccl import Algorithm, Communicator, Handle, ReduceInfo
from pccl.stress import values
from pccl.stress.values import SLOTS, Array

Members = list[int] | None
FILL = 0xA5
PART_MIN = SLOTS + 1
"""Elements that a part has at least, if it has any."""


class Wrong(Exception):
    """A result that is not what its members gave; the text says what is wrong with it."""


class Memory:
    """For the input and the output of one operation after the other. It only grows: pages that were touched once are
    used again."""

    def __init__(self) -> None:
        self._kept = [np.empty(0, np.uint8), np.empty(0, np.uint8)]

    def input(self, count: int, dtype: Any) -> Array:
        """Whatever was in it before."""
        return self._take(0, count, np.dtype(dtype))

    def output(self, count: int, dtype: Any) -> Array:
        """Filled with FILL."""
        taken = self._take(1, count, np.dtype(dtype))
        taken.view(np.uint8).fill(FILL)
        return taken

    def _take(self, which: int, count: int, dtype: np.dtype[Any]) -> Array:
        size_bytes = count * dtype.itemsize
        if len(self._kept[which]) < size_bytes:
            self._kept[which] = np.empty(size_bytes, np.uint8)
        return self._kept[which][:size_bytes].view(dtype)


class Turn:
    """What one member gives to one operation, for the group of this moment. `index` tells operations of one step apart;
    `salt` decides which members have nothing where parts are uneven."""

    def __init__(
        self,
        comm: Communicator,
        number: int,
        step: int,
        index: int = 0,
        *,
        dtype: Any = np.float32,
        salt: int = 0,
        memory: Memory | None = None,
    ) -> None:
        self.comm, self.number, self.step, self.dtype, self.salt = comm, number, step, dtype, salt
        self.epoch, self.rank, self.size = comm.epoch, comm.rank, comm.group_world_size
        self._memory = Memory() if memory is None else memory
        self._index = index

    @property
    def root(self) -> int:
        """Changes with the step, and is the same in every group of two or more."""
        return (self.step + self._index) % min(2, self.size)

    def give(self, *counts: int) -> Array:
        """Contributions of these lengths, one behind the other, that differ; some may be empty."""
        made = self._memory.input(sum(counts), self.dtype)
        for block, part in enumerate(split(made, counts)):
            self.write(part, block)
        return made

    def place(self, count: int) -> Array:
        """Where a result may go."""
        return self._memory.output(count, self.dtype)

    def write(self, part: Array, block: int = 0) -> None:
        """A contribution, if there is room for any."""
        if part.size > 0:
            values.contribute(part, self.number, self.step, values.block(self._index, block))

    def holds(self, given: Array, *counts: int) -> bool:
        """Whether these are still what `give` made."""
        return all(
            values.is_contribution(part, self.number, self.step, values.block(self._index, block))
            for block, part in enumerate(split(given, counts))
            if part.size > 0
        )

    def uneven(self, elements: int, *ranks: int) -> int:
        """The length of the part that these ranks are concerned with: none, one or two times `elements`."""
        return (self.salt + sum(ranks)) % 3 * elements

    def summed(self, result: Array, block: int = 0) -> list[int]:
        """Whose sum this is. Raises Wrong if it is not exact."""
        numbers = values.members(result)
        if numbers is None:
            raise Wrong("a contribution is in it twice, or none that is whole")
        if not values.is_sum(result, numbers, self.step, values.block(self._index, block)):
            raise Wrong(f"not the sum of what {numbers} gave")
        return numbers

    def sole(self, result: Array, block: int = 0) -> int:
        """Whose contribution this is. Raises Wrong if it is not exact."""
        numbers = self.summed(result, block)
        if len(numbers) != 1:
            raise Wrong(f"the sum of what {numbers} gave, not what one of them gave")
        return numbers[0]

    def soles(self, result: Array, counts: Sequence[int], block: int = 0) -> Members:
        """Whose contributions the parts are, each of another peer; None where some are empty. Raises Wrong."""
        numbers = sorted(self.sole(part, block) for part in split(result, counts) if part.size > 0)
        if len(set(numbers)) != len(numbers):
            raise Wrong(f"parts of {numbers}: one of them is there twice")
        return numbers if all(counts) else None


@dataclass(frozen=True)
class Work:
    """One call, for the group of its `turn`; where `bound`, for no other one, where its ranks and parts would mean
    something else. `members` takes what the call returned and gives the numbers of those in the result (None where it
    does not tell of all); raises Wrong. `intact`: the input is what it was."""

    turn: Turn
    name: str
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    members: Callable[[ReduceInfo], Members]
    intact: Callable[[], bool] = lambda: True
    bound: bool = True

    def call(self) -> ReduceInfo:
        """Blocks until it is done. Raises what the collective does."""
        info: ReduceInfo = self._do(self.name)
        return info

    def start(self) -> Handle:
        """As `call`, but returns at once."""
        handle: Handle = self._do(f"{self.name}_async")
        return handle

    def _do(self, name: str) -> Any:
        epoch = {"epoch": self.turn.epoch} if self.bound else {}
        return getattr(self.turn.comm, name)(*self.arguments, **epoch, **self.options)


def split(whole: Array, counts: Sequence[int]) -> list[Array]:
    """The parts of these lengths."""
    return np.split(whole, np.cumsum(counts))[:-1]


# ---------------------------------------------------------------- sums


def all_reduce(turn: Turn, elements: int, in_place: bool, **more: Any) -> Work:
    """The sum is everybody's."""
    send = turn.give(elements)
    recv = send if in_place else turn.place(elements)
    arguments, intact = (send, recv), lambda: turn.holds(send, elements)
    return Work(turn, "all_reduce", arguments, more, lambda info: turn.summed(recv), intact, bound=False)


def all_reduce_coalesced(turn: Turn, elements: int, in_place: bool, **more: Any) -> Work:
    """The same in tensors of very different lengths, some of them empty, the last one first."""
    few, many = elements // 3, elements // 128
    counts = [0, 1, few, *[many] * 40, 0, elements - 1 - few - 40 * many]
    send = turn.give(elements)
    recv = send if in_place else turn.place(elements)
    arguments, intact = (split(send, counts)[::-1], split(recv, counts)[::-1]), lambda: turn.holds(send, elements)
    return Work(turn, "all_reduce_coalesced", arguments, more, lambda info: turn.summed(recv), intact, bound=False)


def reduce(turn: Turn, elements: int, in_place: bool, **more: Any) -> Work:
    """The sum is the root's."""
    root, send = turn.root, turn.give(elements)
    recv = send if in_place else turn.place(elements)

    def members(info: ReduceInfo) -> Members:
        if info.rank == root:
            return turn.summed(recv)
        if not turn.holds(send, elements):
            raise Wrong("the input of one that is not the root has changed")
        return None

    return Work(turn, "reduce", (send, recv, root), more, members, lambda: turn.holds(send, elements))


def reduce_scatter(turn: Turn, elements: int, in_place: bool, **more: Any) -> Work:
    """Each has the sum of one part."""
    counts = [elements] * turn.size
    send = turn.give(*counts)
    recv = split(send, counts)[turn.rank] if in_place else turn.place(elements)
    arguments, intact = (send, recv), lambda: turn.holds(send, *counts)
    return Work(turn, "reduce_scatter", arguments, more, lambda info: turn.summed(recv, info.rank), intact)


def reduce_scatter_v(turn: Turn, elements: int, in_place: bool, **more: Any) -> Work:
    """The same with parts that differ, some of them empty."""
    counts = [turn.uneven(elements, rank) for rank in range(turn.size)]
    send = turn.give(*counts)
    recv = split(send, counts)[turn.rank] if in_place else turn.place(counts[turn.rank])

    def members(info: ReduceInfo) -> Members:
        return turn.summed(recv, info.rank) if recv.size > 0 else None

    arguments, intact = (send, counts, recv), lambda: turn.holds(send, *counts)
    return Work(turn, "reduce_scatter_v", arguments, more, members, intact)


def scan(turn: Turn, elements: int, in_place: bool, **more: Any) -> Work:
    """The sum of all up to oneself."""
    send = turn.give(elements)
    recv = send if in_place else turn.place(elements)

    def members(info: ReduceInfo) -> Members:
        numbers = turn.summed(recv)
        if turn.number % SLOTS not in numbers or len(numbers) != info.rank + 1:
            raise Wrong(f"rank {info.rank}, which is {turn.number}, got the sum of {numbers}")
        return numbers if info.rank == info.world_size - 1 else None

    return Work(turn, "scan", (send, recv), more, members, lambda: turn.holds(send, elements), bound=False)


def exscan(turn: Turn, elements: int, in_place: bool, **more: Any) -> Work:
    """The sum of all before oneself, which leaves the first's result as it is."""
    send = turn.give(elements)
    recv = send if in_place else turn.place(elements)

    def members(info: ReduceInfo) -> Members:
        if info.rank == 0:
            if not (turn.holds(recv, elements) if in_place else (recv.view(np.uint8) == FILL).all()):
                raise Wrong("the first one's result is of nobody, and yet it has changed")
            return None
        numbers = turn.summed(recv)
        if turn.number % SLOTS in numbers or len(numbers) != info.rank:
            raise Wrong(f"rank {info.rank}, which is {turn.number}, got the sum of {numbers}")
        return None

    return Work(turn, "exscan", (send, recv), more, members, lambda: turn.holds(send, elements), bound=False)


# ---------------------------------------------------------------- moves


def all_gather(turn: Turn, elements: int, in_place: bool, **more: Any) -> Work:
    """Everybody has the parts of all."""
    counts = [elements] * turn.size
    send, recv = _gathering(turn, counts, in_place)
    arguments, intact = (send, recv), lambda: turn.holds(send, elements)
    return Work(turn, "all_gather", arguments, more, lambda info: turn.soles(recv, counts), intact)


def all_gather_v(turn: Turn, elements: int, in_place: bool, **more: Any) -> Work:
    """The same with parts that differ, some of them empty."""
    counts = [turn.uneven(elements, rank) for rank in range(turn.size)]
    send, recv = _gathering(turn, counts, in_place)
    arguments, intact = (send, recv, counts), lambda: turn.holds(send, send.size)
    return Work(turn, "all_gather_v", arguments, more, lambda info: turn.soles(recv, counts), intact)


def gather(turn: Turn, elements: int, in_place: bool, **more: Any) -> Work:
    """The root has the parts of all."""
    root, counts = turn.root, [elements] * turn.size
    send, recv = _gathering(turn, counts, in_place)

    def members(info: ReduceInfo) -> Members:
        return turn.soles(recv, counts) if info.rank == root else None

    arguments = (send, recv if turn.rank == root else None, root)
    return Work(turn, "gather", arguments, more, members, lambda: turn.holds(send, elements))


def gather_v(turn: Turn, elements: int, in_place: bool, **more: Any) -> Work:
    """The same with parts that differ, some of them empty."""
    root, counts = turn.root, [turn.uneven(elements, rank) for rank in range(turn.size)]
    send, recv = _gathering(turn, counts, in_place)

    def members(info: ReduceInfo) -> Members:
        return turn.soles(recv, counts) if info.rank == root else None

    arguments = (send, *((recv, counts) if turn.rank == root else (None, None)), root)
    return Work(turn, "gather_v", arguments, more, members, lambda: turn.holds(send, send.size))


def _gathering(turn: Turn, counts: Sequence[int], in_place: bool) -> tuple[Array, Array]:
    """Our own part, and memory for the parts of all, in which it lies or not."""
    recv = turn.place(sum(counts))
    if not in_place:
        return turn.give(counts[turn.rank]), recv
    send = split(recv, counts)[turn.rank]
    turn.write(send)
    return send, recv


def scatter(turn: Turn, elements: int, in_place: bool, **more: Any) -> Work:
    """Each has one part of the root's."""
    counts = [elements] * turn.size
    send, recv, intact = _scattering(turn, counts, in_place)
    arguments = (send, recv, turn.root)
    return Work(turn, "scatter", arguments, more, lambda info: [turn.sole(recv, info.rank)], intact)


def scatter_v(turn: Turn, elements: int, in_place: bool, **more: Any) -> Work:
    """The same with parts that differ, some of them empty."""
    counts = [turn.uneven(elements, rank) for rank in range(turn.size)]
    send, recv, intact = _scattering(turn, counts, in_place)

    def members(info: ReduceInfo) -> Members:
        return [turn.sole(recv, info.rank)] if recv.size > 0 else None

    return Work(turn, "scatter_v", (send, counts, recv, turn.root), more, members, intact)


def _scattering(turn: Turn, counts: Sequence[int], in_place: bool) -> tuple[Array, Array, Callable[[], bool]]:
    """The root's parts for all, nothing elsewhere; memory for our own part, which lies in it at the root or elsewhere;
    and whether the first is as it was."""
    if turn.rank != turn.root:
        return turn.give(), turn.place(counts[turn.rank]), lambda: True
    send = turn.give(*counts)
    recv = split(send, counts)[turn.rank] if in_place else turn.place(counts[turn.rank])
    return send, recv, lambda: turn.holds(send, *counts)


def all_to_all(turn: Turn, elements: int, in_place: bool, **more: Any) -> Work:
    """Each has a part of everybody's."""
    counts = [elements] * turn.size
    send = turn.give(*counts)
    recv = send if in_place else turn.place(send.size)
    arguments, intact = (send, recv), lambda: turn.holds(send, *counts)
    return Work(turn, "all_to_all", arguments, more, lambda info: turn.soles(recv, counts, info.rank), intact)


def all_to_all_v(turn: Turn, elements: int, in_place: bool, **more: Any) -> Work:
    """The same with parts that differ, also in the two directions of a pair, some of them empty; never in place."""
    us, everyone = turn.rank, range(turn.size)
    sent = [turn.uneven(elements, us, other, other) for other in everyone]
    expected = [turn.uneven(elements, other, us, us) for other in everyone]
    send, recv = turn.give(*sent), turn.place(sum(expected))
    arguments, intact = (send, sent, recv, expected), lambda: turn.holds(send, *sent)
    return Work(turn, "all_to_all_v", arguments, more, lambda info: turn.soles(recv, expected, info.rank), intact)


def broadcast(turn: Turn, elements: int, in_place: bool, **more: Any) -> Work:
    """From a root that changes with the step, among all. Only the root has input: what others hold is as undefined
    after a failure as any output. Always in place."""
    root = turn.step % turn.size
    x = turn.give(elements) if turn.rank == root else turn.place(elements)

    def intact() -> bool:
        return turn.rank != root or turn.holds(x, elements)

    return Work(turn, "broadcast", (x, root), more, lambda info: [turn.sole(x)], intact)


def barrier(turn: Turn, elements: int, in_place: bool, **more: Any) -> Work:
    """Nothing moves."""
    return Work(turn, "barrier", (), more, lambda info: None, bound=False)


COLLECTIVES: dict[str, Callable[..., Work]] = {
    made.__name__: made
    for made in (
        *(all_reduce, reduce_scatter, all_gather, broadcast, barrier),
        *(reduce, gather, scatter, all_to_all, scan, exscan, reduce_scatter_v, all_gather_v),
        *(gather_v, scatter_v, all_to_all_v),
        all_reduce_coalesced,
    )
}
"""They take a Turn, elements of a part, whether in place, and what else the call takes (`algorithm`)."""

_OF_ALL_REDUCE = (
    *(Algorithm.RING, Algorithm.DIRECT, Algorithm.HALVING),
    *(Algorithm.STAR, Algorithm.DOUBLING, Algorithm.HIERARCHICAL),
)
ALGORITHMS = {
    "all_reduce": _OF_ALL_REDUCE,
    "all_reduce_coalesced": _OF_ALL_REDUCE,
    "reduce_scatter": (Algorithm.RING, Algorithm.HALVING),
    "all_gather": (Algorithm.RING, Algorithm.BRUCK),
    "broadcast": (Algorithm.CHAIN, Algorithm.BINOMIAL, Algorithm.STAR),
    "reduce": (Algorithm.CHAIN, Algorithm.BINOMIAL, Algorithm.STAR),
    "gather": (Algorithm.STAR, Algorithm.LINE),
    "scatter": (Algorithm.STAR, Algorithm.LINE),
    "all_to_all": (Algorithm.PAIRWISE, Algorithm.BRUCK, Algorithm.LINE),
    "scan": (Algorithm.CHAIN, Algorithm.DOUBLING, Algorithm.LINE),
    "exscan": (Algorithm.CHAIN, Algorithm.DOUBLING, Algorithm.LINE),
}
"""What a call may ask for where all links are there; who is not named takes no wish."""

DETERMINISTIC = {
    "all_reduce": (Algorithm.AUTO, Algorithm.HALVING, Algorithm.DOUBLING),
    "all_reduce_coalesced": (Algorithm.AUTO, Algorithm.HALVING, Algorithm.DOUBLING),
    "reduce_scatter": (Algorithm.AUTO, Algorithm.HALVING),
    "reduce_scatter_v": (Algorithm.AUTO,),
    "reduce": (Algorithm.AUTO, Algorithm.BINOMIAL),
    "scan": (Algorithm.AUTO, Algorithm.CHAIN),
    "exscan": (Algorithm.AUTO, Algorithm.CHAIN),
}
"""What may be asked for with `deterministic`."""

FROM_ROOT = {"broadcast", "scatter", "scatter_v"}
"""Their results tell of the root only."""

DIRECT = ("gather_v", "scatter_v", "all_to_all_v")
"""They need a link between any two."""

FORMS = [
    (name, in_place)
    for name in COLLECTIVES
    for in_place in (False, True)
    if name not in DIRECT and (name, in_place) not in [("broadcast", False), ("barrier", True)]
]
"""All collectives that any group can do, in place and not where there is a choice."""

FORMS_OF_ALL_LINKS = [(name, in_place) for name in DIRECT for in_place in (False, True)][:-1]
"""The others."""
