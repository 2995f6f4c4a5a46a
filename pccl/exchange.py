# SPDX-License-Identifier: MIT
"""Collectives of Python objects, as the steps that they take.

The one idea: every member first tells all others what it calls and what it brings (a `Notice`, by an all_gather of
fixed size). So all know the same, and come to the same judgement: that the calls fit together, that everybody could
pack its object, that nobody gets more than it takes. Only then do the objects move, with sizes that those concerned
know, in the very epoch in which the notices were told.

Pure: a generator yields requests, is resumed with what each of them that has succeeded tells, and returns the result.
Who runs them is not known here. What is wrong with tag, root or timeout is raised before the first request.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pccl import parts, request
from pccl._native import ReduceInfo
from pccl.arguments import whole
from pccl.errors import CollectiveMismatch, InvalidArgument, ObjectError, PCCLError
from pccl.packing import Damaged, Packer, Pickled, Plain
from pccl.request import Members, Modes, Request

Bytes = NDArray[np.uint8]
Steps = Generator[Request, ReduceInfo, Any]

CALLS = ("broadcast_object", "all_gather_object", "gather_object", "scatter_object")
SPARSE = len(CALLS)
"""The number of a call whose notice `sparse_exchange.py` reads."""

OWN_TAGS = request.TAG_MAX + 1
"""Added to the user's tag: these operations are matched among themselves, whatever else is under way with that tag."""

MAX_BYTES = 2**40
"""The most that may be allowed for an object."""

_NOTICE = struct.Struct("<BBBxIQQ104s")


class Notice(NamedTuple):
    """What a member calls, and what it brings: the bytes of its (largest) object, or the reason why there is none."""

    call: int
    packer: int
    failed: bool
    root: int
    size: int
    max_bytes: int
    text: bytes = b""

    @classmethod
    def read(cls, raw: Any) -> Notice:
        """Any bytes of that size are one."""
        call, packer, failed, *rest = _NOTICE.unpack(raw)
        return cls(call, packer, bool(failed), *rest)

    def write(self) -> bytes:
        """Always of one size; a long text is cut."""
        return _NOTICE.pack(*self)

    def describe(self) -> str:
        """The call, more or less as it was written."""
        if self.call == SPARSE:
            return "all_reduce_sparse"
        name = CALLS[self.call] if self.call < len(CALLS) else f"call {self.call}"
        packer = {it.number: it.name for it in (Plain, Pickled)}.get(self.packer, f"packer {self.packer}")
        return f"{name}({packer}, root={self.root})"


def judge(notices: Sequence[Notice]) -> PCCLError | None:
    """Why the objects cannot be handed over; the same for all, since all have the same notices."""
    first = notices[0]
    for rank, it in enumerate(notices):
        if (it.call, it.packer, it.root) != (first.call, first.packer, first.root):
            return CollectiveMismatch(f"rank 0 calls {first.describe()}, rank {rank} calls {it.describe()}")
    for rank, it in enumerate(notices):
        if it.failed:
            return ObjectError(f"rank {rank} has nothing to hand over: {_text(it.text)}")
    least = min(range(len(notices)), key=lambda rank: notices[rank].max_bytes)
    for rank, it in enumerate(notices):
        if it.size > notices[least].max_bytes:
            return ObjectError(
                f"rank {rank} has an object of {it.size} bytes, rank {least} takes {notices[least].max_bytes} at most"
            )
    return None


@dataclass(frozen=True)
class Exchange:
    """What the calls have in common, and the steps of each."""

    group: Members
    modes: Modes
    tag: int
    timeout: float | None
    packer: Packer
    max_bytes: int

    def __post_init__(self) -> None:
        """Raises InvalidArgument."""
        whole("max_bytes", self.max_bytes, 1, MAX_BYTES)

    def broadcast(self, value: Any, root: int) -> Steps:
        """Returns the root's object, on all."""
        root = self.group.root(root)
        packed, sizes = yield from self._meet("broadcast_object", root, [value] if root == self.group.rank else ())
        memory = np.empty(sizes[root], np.uint8)
        if packed:
            memory[:] = np.frombuffer(packed[0], np.uint8)
        yield own(request.broadcast(memory, root, self.tag, 0, self.timeout, self.modes, self.group))
        return self._unpack(memory, root)

    def all_gather(self, value: Any) -> Steps:
        """Returns everybody's object, by rank, on all."""
        packed, sizes = yield from self._meet("all_gather_object", 0, [value])
        memory, send = np.empty(sum(sizes), np.uint8), np.frombuffer(packed[0], np.uint8)
        yield own(parts.all_gather(send, memory, sizes, self.tag, self.timeout, self.modes, self.group))
        return self._unpack_all(memory, sizes)

    def gather(self, value: Any, root: int) -> Steps:
        """Returns everybody's object, by rank, at the root; None elsewhere."""
        root = self.group.root(root)
        packed, sizes = yield from self._meet("gather_object", root, [value])
        memory, send = np.empty(sum(sizes), np.uint8), np.frombuffer(packed[0], np.uint8)
        if root != self.group.rank:
            memory = np.empty(0, np.uint8)
        yield own(parts.gather(send, memory, sizes, root, self.tag, self.timeout, self.modes, self.group))
        return self._unpack_all(memory, sizes) if root == self.group.rank else None

    def scatter(self, values: Any, root: int) -> Steps:
        """Returns the object that the root has for this rank."""
        root = self.group.root(root)
        at_root = root == self.group.rank
        packed, _ = yield from self._meet("scatter_object", root, values if at_root else ())
        counts, count = [len(it) for it in packed], np.empty(1, np.uint64)
        sizes = np.array(counts, np.uint64) if at_root else None
        yield own(request.scatter(sizes, count, root, self.tag, 0, self.timeout, self.modes, self.group))
        send = np.frombuffer(b"".join(packed), np.uint8) if at_root else None
        memory = np.empty(int(count[0]), np.uint8)
        yield own(parts.scatter(send, counts, memory, root, self.tag, self.timeout, self.modes, self.group))
        return self._unpack(memory, root)

    def _meet(self, call: str, root: int, values: Any) -> Generator[Request, ReduceInfo, tuple[list[bytes], list[int]]]:
        """Tells all what we bring: that, and the bytes that each member brings. Raises InvalidArgument where our own
        object cannot be handed over, and elsewhere what `judge` finds."""
        refusal: InvalidArgument | None = None
        packed: list[bytes] = []
        try:
            packed = self._pack(call, root, values)
        except InvalidArgument as failure:
            refusal = failure
        size, text = max(map(len, packed), default=0), str(refusal or "").encode(errors="replace")
        notice = Notice(CALLS.index(call), self.packer.number, refusal is not None, root, size, self.max_bytes, text)
        ours, all_ = np.frombuffer(notice.write(), np.uint8), np.empty((self.group.size, _NOTICE.size), np.uint8)
        yield own(request.all_gather(ours, all_, self.tag, 0, self.timeout, self.modes, self.group))
        notices = [Notice.read(row) for row in all_]
        failed = refusal or judge(notices)
        if failed is not None:
            raise failed
        return packed, [it.size for it in notices]

    def _pack(self, call: str, root: int, values: Any) -> list[bytes]:
        brings_all = call == "scatter_object" and root == self.group.rank
        if brings_all and (not isinstance(values, list | tuple) or len(values) != self.group.size):
            raise InvalidArgument(f"values must be a list of {self.group.size} objects, one for each rank")
        packed = [self.packer.pack(value) for value in values]
        for it in packed:
            if len(it) > self.max_bytes:
                raise InvalidArgument(f"value takes {len(it)} bytes, and max_bytes is {self.max_bytes}")
        return packed

    def _unpack(self, packed: Bytes, rank: int) -> Any:
        try:
            return self.packer.unpack(packed)
        except Damaged as failure:
            raise ObjectError(f"the object of rank {rank} is {failure}") from failure

    def _unpack_all(self, packed: Bytes, sizes: Sequence[int]) -> list[Any]:
        each = np.split(packed, np.cumsum(sizes)[:-1])
        return [self._unpack(one, rank) for rank, one in enumerate(each)]


def own(one: Request) -> Request:
    """Matched among those of such calls alone."""
    one.call.tag += OWN_TAGS
    return one


def _text(raw: bytes) -> str:
    return raw.rstrip(b"\0").decode(errors="replace")
