# SPDX-License-Identifier: MIT
"""The sum of sparse vectors, as the steps that it takes.

As for objects (`exchange.py`): every member first tells all others what it calls and how much it brings, so that all
come to the same judgement. Then all parts move to all members, in the same epoch, and each adds them up by itself, in
the order of ranks: the same bytes in the same order give the same bits.

A part is the values (or what quantization makes of them), the encoded indices (csrc/kernel/indices.c), and zeros up to
a multiple of 8 bytes. Everybody gets everybody's part: with n entries of b bytes from each of W members that is
(W - 1) * n * b for each, where the ring over a dense vector of N floats takes about 8 * N. So it is for few entries,
and not for very many members.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pccl import _native, _sparse, arrays, parts, request, sparse
from pccl._sparse import Bytes, Entries
from pccl.arguments import whole
from pccl.enums import DataType
from pccl.errors import CollectiveMismatch, InvalidArgument, PCCLError, ProtocolError, QuantizationError
from pccl.exchange import SPARSE, Steps, own
from pccl.exchange import Notice as ObjectNotice
from pccl.request import Members, Modes
from pccl.sparse import SparseSum
from pccl.sparse_coding import Coding

_NOTICE = struct.Struct("<BBB5xQQQQ88s")
"""As long as that of objects, so that either can tell the other."""

_REFUSED = (DataType.BOOL, DataType.COMPLEX64, DataType.COMPLEX128, DataType.FLOAT8_E4M3FN, DataType.FLOAT8_E5M2)


class Notice(NamedTuple):
    """What a member calls, and what it brings."""

    call: int
    dtype: int
    failed: bool
    length: int
    entries: int
    index_bytes: int
    coding: int
    """Another number for each way to quantize values; 0 for none."""

    text: bytes = b""
    """How values are quantized; where that has failed, why."""

    @classmethod
    def read(cls, raw: Any) -> Notice:
        """Any bytes of that size are one."""
        one = cls(*_NOTICE.unpack(raw))
        return one._replace(failed=bool(one.failed), text=one.text.rstrip(b"\0"))

    def write(self) -> bytes:
        """Always of one size; a long text is cut."""
        return _NOTICE.pack(*self)

    def describe(self) -> str:
        """The call, more or less as it was written."""
        how = f", {self.text.decode(errors='replace')}" if self.coding and not self.failed else ""
        return f"all_reduce_sparse({_native.dtype_name(self.dtype)}, length={self.length}{how})"


def judge(rows: Iterable[Any]) -> PCCLError | None:
    """Why what these rows announce cannot be added up; the same for all, since all have the same rows."""
    notices = [Notice.read(row) for row in rows]
    calls = [
        it.describe() if it.call == SPARSE else ObjectNotice.read(row).describe()
        for it, row in zip(notices, rows, strict=True)
    ]
    first = notices[0]
    for rank, it in enumerate(notices):
        if (it.call, it.dtype, it.length, it.coding) != (first.call, first.dtype, first.length, first.coding):
            return CollectiveMismatch(f"rank 0 calls {calls[0]}, rank {rank} calls {calls[rank]}")
    for rank, it in enumerate(notices):
        if it.failed:
            return QuantizationError(f"what rank {rank} gives cannot be sent: {it.text.decode(errors='replace')}")
        most = _sparse.most_bytes(it.entries, it.length) if it.entries <= it.length <= _sparse.LENGTH_MAX else -1
        if not -(-it.entries // 8) <= it.index_bytes <= most:  # an index takes a bit at least
            return ProtocolError(f"rank {rank} announces {it.entries} indices of {it.length} in {it.index_bytes} bytes")
    return None


@dataclass(frozen=True)
class Contribution:
    """One member's vector, checked and encoded."""

    notice: Notice
    part: Bytes
    coding: Coding
    like: Any
    """Of the kind and dtype that the sum is to have."""

    @classmethod
    def of(
        cls, indices: Any, values: Any, length: int, options: Any = None, errors: Any = None, rank: int = 0
    ) -> Contribution:
        """Copies what it needs. Writes to `errors`, where there are indices. Raises InvalidArgument; what cannot be
        quantized is told in the notice."""
        length = whole("length", length, 0, _sparse.LENGTH_MAX)
        dtype = arrays.borrow(values, False, "values").dtype
        if dtype in _REFUSED:
            raise InvalidArgument(f"values are {_native.dtype_name(dtype)}, which have no sparse sum")
        coding = Coding.of(options, dtype)
        taken = None if errors is None else arrays.float32("errors", errors, length)
        places, values = _sorted(indices, values, length)
        encoded = _sparse.encode(places.view(np.uint64), length)
        notice = Notice(SPARSE, dtype, False, length, len(places), len(encoded), coding.number, coding.text.encode())
        try:
            coded = coding.encode(values, rank)
        except QuantizationError as failure:
            notice = notice._replace(failed=True, text=str(failure).encode())
            return cls(notice, encoded[:0], coding, values[:0])
        part = np.zeros(_part_bytes(notice, coding), np.uint8)
        part[: len(coded)] = coded
        part[len(coded) :][: len(encoded)] = encoded
        if taken is not None:
            sent = sparse.cooked(coding.decode(coded, values, len(places), rank), values)
            taken[places] = arrays.as_numpy(values) - arrays.as_numpy(sent)
        return cls(notice, part, coding, values[:0])


def all_reduce(given: Contribution, tag: int, timeout: float | None, modes: Modes, group: Members) -> Steps:
    """Returns a SparseSum. Raises what `judge` finds, and ProtocolError."""
    ours = np.frombuffer(given.notice.write(), np.uint8)
    rows = np.empty((group.size, _NOTICE.size), np.uint8)
    told = yield own(request.all_gather(ours, rows, tag, 0, timeout, modes, group))
    failed = judge(rows)
    if failed is not None:
        raise failed
    notices = [Notice.read(row) for row in rows]
    sizes = [_part_bytes(it, given.coding) for it in notices]
    memory = np.empty(sum(sizes), np.uint8)
    moved = yield own(parts.all_gather(given.part, memory, sizes, tag, timeout, modes, group))
    each = np.split(memory, np.cumsum(sizes)[:-1])
    vectors = [_entries(given, rank, it, part) for rank, (it, part) in enumerate(zip(notices, each, strict=True))]
    total = _sparse.add(given.notice.dtype, vectors, given.notice.length)
    tx_bytes, rx_bytes = told.tx_bytes + moved.tx_bytes, told.rx_bytes + moved.rx_bytes
    info = moved._replace(tx_bytes=tx_bytes, rx_bytes=rx_bytes)
    values = sparse.cooked(total.values, given.like)
    return SparseSum(total.indices.view(np.int64), values, given.notice.length, info)


def _part_bytes(notice: Notice, coding: Coding) -> int:
    return -(-(coding.bytes(notice.entries, notice.dtype) + notice.index_bytes) // 8) * 8


def _entries(given: Contribution, rank: int, notice: Notice, part: Bytes) -> Entries:
    """What is in a rank's part."""
    coded = given.coding.bytes(notice.entries, notice.dtype)
    try:
        indices = _sparse.decode(part[coded:][: notice.index_bytes], notice.entries, notice.length)
    except ProtocolError as failure:
        raise ProtocolError(f"what rank {rank} sent: {failure}") from None
    return Entries(indices, given.coding.decode(part[:coded], given.like, notice.entries, rank))


def _sorted(indices: Any, values: Any, length: int) -> tuple[NDArray[np.int64], Any]:
    """Both in the order of indices. Raises InvalidArgument."""
    places = _whole_numbers(indices)
    if len(places) != len(values) or values.ndim != 1:
        raise InvalidArgument(f"there are {len(places)} indices, and values of the shape {tuple(values.shape)}")
    if len(places) > 1 and not (places[1:] > places[:-1]).all():
        order = np.argsort(places, kind="stable")
        places, values = places[order], sparse.pick(values, order)
    if len(places) > 0 and not 0 <= places[0] <= places[-1] < length:
        raise InvalidArgument(f"indices go from {places[0]} to {places[-1]}, and length is {length}")
    twice = np.flatnonzero(places[1:] == places[:-1])
    if len(twice) > 0:
        raise InvalidArgument(f"indices must be distinct, and {places[twice[0]]} comes twice")
    return places, values


def _whole_numbers(indices: Any) -> NDArray[np.int64]:
    found = indices.detach().cpu().numpy() if arrays.is_tensor(indices) else np.asarray(indices)
    if found.ndim != 1 or (found.dtype.kind not in "iu" and found.size > 0):
        raise InvalidArgument(f"indices must be one row of whole numbers, not {found.dtype} of shape {found.shape}")
    if found.dtype == np.uint64 and found.size > 0 and found.max() > _sparse.LENGTH_MAX:
        raise InvalidArgument(f"indices go up to {found.max()}, more than {_sparse.LENGTH_MAX}")
    return np.ascontiguousarray(found, np.int64)
