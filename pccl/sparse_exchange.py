# SPDX-License-Identifier: MIT
"""The sum of sparse vectors, as the steps that it takes.

As for objects (`exchange.py`): every member first tells all others what it calls and how much it brings, so that all
come to the same judgement. Then all parts move to all members, in the same epoch, and each adds them up by itself, in
the order of ranks: the same bytes in the same order give the same bits.

A part is the values, the encoded indices (csrc/kernel/indices.c), and zeros up to a multiple of 8 bytes. Everybody gets
everybody's part: with n entries of b bytes from each of W members that is (W - 1) * n * b for each, where the ring over
a dense vector of N floats takes about 8 * N. So it is for few entries, and not for very many members.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from pccl import _native, _sparse, arrays, parts, request, sparse
from pccl._sparse import Bytes, Entries
from pccl.arguments import whole
from pccl.enums import DataType
from pccl.errors import CollectiveMismatch, InvalidArgument, PCCLError, ProtocolError
from pccl.exchange import SPARSE, Steps, own
from pccl.exchange import Notice as ObjectNotice
from pccl.request import Members, Modes
from pccl.sparse import SparseSum

_NOTICE = struct.Struct("<BB6xQQQ96x")
"""As long as that of objects, so that either can tell the other."""

_REFUSED = (DataType.BOOL, DataType.COMPLEX64, DataType.COMPLEX128, DataType.FLOAT8_E4M3FN, DataType.FLOAT8_E5M2)


class Notice(NamedTuple):
    """What a member calls, and what it brings."""

    call: int
    dtype: int
    length: int
    entries: int
    index_bytes: int

    @classmethod
    def read(cls, raw: Any) -> Notice:
        """Any bytes of that size are one."""
        return cls(*_NOTICE.unpack(raw))

    def write(self) -> bytes:
        """Always of one size."""
        return _NOTICE.pack(*self)

    def describe(self) -> str:
        """The call, more or less as it was written; different for calls that do not fit together."""
        return f"all_reduce_sparse({_native.dtype_name(self.dtype)}, length={self.length})"

    @property
    def value_bytes(self) -> int:
        """Of all values."""
        return self.entries * _sparse.element_bytes(self.dtype)

    @property
    def size(self) -> int:
        """Of the part, in bytes."""
        return -(-(self.value_bytes + self.index_bytes) // 8) * 8


def judge(rows: Iterable[Any]) -> PCCLError | None:
    """Why what these rows announce cannot be added up; the same for all, since all have the same rows."""
    notices = [Notice.read(row) for row in rows]
    calls = [
        it.describe() if it.call == SPARSE else ObjectNotice.read(row).describe()
        for it, row in zip(notices, rows, strict=True)
    ]
    for rank, call in enumerate(calls):
        if call != calls[0]:
            return CollectiveMismatch(f"rank 0 calls {calls[0]}, rank {rank} calls {call}")
    for rank, it in enumerate(notices):
        most = _sparse.most_bytes(it.entries, it.length) if it.entries <= it.length <= _sparse.LENGTH_MAX else -1
        if not -(-it.entries // 8) <= it.index_bytes <= most:  # an index takes a bit at least
            return ProtocolError(f"rank {rank} announces {it.entries} indices of {it.length} in {it.index_bytes} bytes")
    return None


@dataclass(frozen=True)
class Contribution:
    """One member's vector, checked and encoded."""

    notice: Notice
    part: Bytes
    like: Any
    """Of the kind and dtype that the sum is to have."""

    @classmethod
    def of(cls, indices: Any, values: Any, length: int) -> Contribution:
        """Copies what it needs. Raises InvalidArgument."""
        length = whole("length", length, 0, _sparse.LENGTH_MAX)
        borrowed = arrays.borrow(values, False, "values")
        if borrowed.dtype in _REFUSED:
            raise InvalidArgument(f"values are {_native.dtype_name(borrowed.dtype)}, which have no sparse sum")
        places = _whole_numbers(indices)
        if len(places) != borrowed.elements or values.ndim != 1:
            raise InvalidArgument(f"there are {len(places)} indices and {arrays.describe(borrowed)} values")
        if len(places) > 1 and not (places[1:] > places[:-1]).all():
            order = np.argsort(places, kind="stable")
            places, values = places[order], sparse.pick(values, order)
        if len(places) > 0 and not 0 <= places[0] <= places[-1] < length:
            raise InvalidArgument(f"indices go from {places[0]} to {places[-1]}, and length is {length}")
        twice = np.flatnonzero(places[1:] == places[:-1])
        if len(twice) > 0:
            raise InvalidArgument(f"indices must be distinct, and {places[twice[0]]} comes twice")
        encoded = _sparse.encode(places.view(np.uint64), length)
        notice = Notice(SPARSE, borrowed.dtype, length, len(places), len(encoded))
        part = np.zeros(notice.size, np.uint8)
        part[: notice.value_bytes] = sparse.raw(values)
        part[notice.value_bytes :][: len(encoded)] = encoded
        return cls(notice, part, values[:0])


def all_reduce(given: Contribution, tag: int, timeout: float | None, modes: Modes, group: Members) -> Steps:
    """Returns a SparseSum. Raises what `judge` finds, and ProtocolError."""
    ours = np.frombuffer(given.notice.write(), np.uint8)
    rows = np.empty((group.size, _NOTICE.size), np.uint8)
    told = yield own(request.all_gather(ours, rows, tag, 0, timeout, modes, group))
    failed = judge(rows)
    if failed is not None:
        raise failed
    notices = [Notice.read(row) for row in rows]
    sizes = [it.size for it in notices]
    memory = np.empty(sum(sizes), np.uint8)
    moved = yield own(parts.all_gather(given.part, memory, sizes, tag, timeout, modes, group))
    total = _sparse.add(given.notice.dtype, list(_entries(notices, memory)), given.notice.length)
    tx_bytes, rx_bytes = told.tx_bytes + moved.tx_bytes, told.rx_bytes + moved.rx_bytes
    info = moved._replace(tx_bytes=tx_bytes, rx_bytes=rx_bytes)
    values = sparse.cooked(total.values, given.like)
    return SparseSum(total.indices.view(np.int64), values, given.notice.length, info)


def _entries(notices: Sequence[Notice], memory: Bytes) -> Iterator[Entries]:
    """Of each rank's part."""
    start = 0
    for rank, it in enumerate(notices):
        values = memory[start:][: it.value_bytes]
        encoded = memory[start + it.value_bytes :][: it.index_bytes]
        start += it.size
        try:
            yield Entries(_sparse.decode(encoded, it.entries, it.length), values)
        except ProtocolError as failure:
            raise ProtocolError(f"what rank {rank} sent: {failure}") from None


def _whole_numbers(indices: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
    found = indices.detach().cpu().numpy() if arrays.is_tensor(indices) else np.asarray(indices)
    if found.ndim != 1 or (found.dtype.kind not in "iu" and found.size > 0):
        raise InvalidArgument(f"indices must be one row of whole numbers, not {found.dtype} of shape {found.shape}")
    if found.dtype == np.uint64 and found.size > 0 and found.max() > _sparse.LENGTH_MAX:
        raise InvalidArgument(f"indices go up to {found.max()}, more than {_sparse.LENGTH_MAX}")
    return np.ascontiguousarray(found, np.int64)
