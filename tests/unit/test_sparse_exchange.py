# SPDX-License-Identifier: MIT
"""Sums of sparse vectors: what members tell each other, how they judge it, and what comes of any bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pccl import CollectiveMismatch, DataType, InvalidArgument, PCCLError, ProtocolError, ReduceInfo, SparseSum
from pccl import sparse_exchange as exchange
from pccl.errors import QuantizationError
from pccl.exchange import OWN_TAGS, SPARSE
from pccl.exchange import Notice as ObjectNotice
from pccl.quantization import QuantizationAlgorithm, QuantizationOptions
from pccl.request import Members, Modes, Request
from pccl.sparse_exchange import Contribution, Notice, judge

SIZE = exchange._NOTICE.size
GOOD = Notice(SPARSE, DataType.FLOAT32, False, 1000, 8, 12, 0)
CODED = GOOD._replace(coding=3, text=b"int8 BLOCK of 1024")
OBJECT = ObjectNotice(1, 1, False, 0, 10, 100)
LENGTH = 1000


def steps(given: Contribution, peers: int = 3) -> Any:
    modes = Modes.of(deferred=False, preserve_input=True)
    return exchange.all_reduce(given, 5, None, modes, Members(9, peers, 0))


def of(one: Request) -> tuple[Any, Any]:
    """What an all_gather sends, and where it receives."""
    owner: Any = one.owner
    source, target = owner if len(owner) == 2 else owner[0]  # with counts beside it
    return source.owner, target.owner


def gathered(one: Request, everyone: list[Any]) -> ReduceInfo:
    """As if the all_gather had ended so."""
    _, memory = of(one)
    memory.reshape(-1)[:] = np.concatenate([np.frombuffer(bytes(it), np.uint8) for it in everyone])
    return ReduceInfo(len(everyone), 10, 20, 0, 9, 1)


def outcome(all_: list[Contribution]) -> SparseSum:
    """What the first of them gets."""
    begun = steps(all_[0], len(all_))
    told = gathered(next(begun), [it.notice.write() for it in all_])
    moved = gathered(begun.send(told), [it.part for it in all_])
    with pytest.raises(StopIteration) as end:
        begun.send(moved)
    result: SparseSum = end.value.value
    return result


CONTRIBUTIONS = st.lists(
    st.dictionaries(st.integers(0, LENGTH - 1), st.floats(-1e6, 1e6, width=32), max_size=300), min_size=1, max_size=5
)


@given(CONTRIBUTIONS)
def test_sums_are_those_of_dense_vectors_in_order_of_ranks(members: list[dict[int, float]]) -> None:
    """Whatever their order was: a dictionary's."""
    got = outcome([Contribution.of(list(it), np.float32(list(it.values())), LENGTH) for it in members])
    dense = np.zeros(LENGTH, np.float32)
    for it in members:
        for index, value in it.items():
            dense[index] += np.float32(value)
    assert got.indices.tolist() == sorted(set().union(*members))
    np.testing.assert_array_equal(got.dense(), dense)
    assert (got.info.tx_bytes, got.info.rx_bytes, got.length) == (20, 40, LENGTH)


INT8 = QuantizationOptions("int8", QuantizationAlgorithm.BLOCK)


@given(CONTRIBUTIONS)
def test_what_quantization_took_and_what_came_are_all_that_was_given(members: list[dict[int, float]]) -> None:
    """And one's own values are what others got of them."""
    kept = [np.full(LENGTH, 7, np.float32) for _ in members]
    given = [
        Contribution.of(list(it), np.float32(list(it.values())), LENGTH, INT8, errors, rank)
        for rank, (it, errors) in enumerate(zip(members, kept, strict=True))
    ]
    got = outcome(given).dense()
    total = np.zeros(LENGTH)
    for it, errors in zip(members, kept, strict=True):
        places = list(it)
        assert (np.delete(errors, places) == 7).all()
        sent = np.float32(list(it.values())) - errors[places]
        assert np.abs(errors[places]).max(initial=0) <= np.abs(list(it.values())).max(initial=0) / 127
        total[places] += sent
    np.testing.assert_allclose(got, total, rtol=1e-5, atol=1)


def test_what_cannot_be_quantized_is_told_to_all() -> None:
    ours = Contribution.of([1, 5], np.float32([1, np.nan]), LENGTH, INT8)
    begun = steps(ours, 2)
    theirs = Contribution.of([1], np.float32([1]), LENGTH, INT8)
    told = gathered(next(begun), [ours.notice.write(), theirs.notice.write()])
    with pytest.raises(QuantizationError, match=r"what rank 0 gives cannot be sent: .*int8_block"):
        begun.send(told)
    let_pass = QuantizationOptions("int8", QuantizationAlgorithm.BLOCK, nan="propagate")
    got = outcome([Contribution.of([1, 5], np.float32([1, np.nan]), LENGTH, let_pass)])
    assert np.isnan(got.values).all(), "the whole block"


@pytest.mark.parametrize(
    ("notices", "kind", "text"),
    [
        ([GOOD, GOOD._replace(length=9)], CollectiveMismatch, r"rank 0 calls .*length=1000\), rank 1 calls .*length=9"),
        ([GOOD, GOOD, GOOD._replace(dtype=0)], CollectiveMismatch, r"sparse\(float32, .*rank 2 calls .*\(int8, "),
        ([GOOD, OBJECT], CollectiveMismatch, "rank 1 calls all_gather_object"),
        ([OBJECT, GOOD], CollectiveMismatch, "rank 0 calls all_gather_object.*rank 1 calls all_reduce_sparse"),
        ([GOOD, GOOD._replace(entries=1001, index_bytes=200)], ProtocolError, "rank 1 announces 1001 indices of 1000"),
        ([GOOD, GOOD._replace(index_bytes=0)], ProtocolError, "rank 1 announces 8 indices of 1000 in 0 bytes"),
        ([GOOD, GOOD._replace(index_bytes=2**63)], ProtocolError, "rank 1 announces 8 indices"),
        ([GOOD, GOOD._replace(entries=0)], ProtocolError, "rank 1 announces 0 indices of 1000 in 12 bytes"),
        ([GOOD._replace(length=2**63)] * 2, ProtocolError, "rank 0 announces"),
        ([GOOD, CODED], CollectiveMismatch, r"=1000\), rank 1 calls .*length=1000, int8 BLOCK of 1024\)"),
        ([CODED, CODED._replace(coding=4, text=b"int4")], CollectiveMismatch, r"BLOCK of 1024\), rank 1 .*int4\)"),
        ([CODED, CODED._replace(failed=True, text=b"nan")], QuantizationError, "what rank 1 gives cannot be sent: nan"),
    ],
)
def test_what_does_not_fit_together_is_said_to_all(notices: list[Any], kind: type[PCCLError], text: str) -> None:
    with pytest.raises(kind, match=text):
        raise judge([it.write() for it in notices]) or AssertionError
    assert judge([GOOD.write(), GOOD._replace(entries=0, index_bytes=0).write()]) is None


def test_others_are_told_what_it_is_not() -> None:
    assert ObjectNotice.read(GOOD.write()).describe().startswith("all_reduce_sparse")


@given(st.lists(st.binary(min_size=SIZE, max_size=SIZE), min_size=2, max_size=4))
def test_any_notices_are_judged(raw: list[bytes]) -> None:
    assert repr(judge(raw)) == repr(judge(raw))
    assert judge([GOOD.write(), *raw]) is None or str(judge([GOOD.write(), *raw]))


@given(st.integers(0, 40), st.binary(max_size=60))
def test_a_peer_that_tells_what_fits_may_send_anything(entries: int, sent: bytes) -> None:
    ours = Contribution.of([3, 999], np.float32([1, 2]), LENGTH)
    theirs = GOOD._replace(entries=entries, index_bytes=max(-(-entries // 8), min(entries, 17)))
    begun = steps(ours, 2)
    told = gathered(next(begun), [ours.notice.write(), theirs.write()])
    size = -(-(theirs.entries * 4 + theirs.index_bytes) // 8) * 8
    moved = gathered(begun.send(told), [ours.part, sent[:size].ljust(size, b"\0")])
    with pytest.raises((ProtocolError, StopIteration)) as end:
        begun.send(moved)
    if isinstance(end.value, StopIteration):
        assert set(end.value.value.indices) >= {3, 999}
        assert end.value.value.indices.max() < LENGTH
    else:
        assert "what rank 1 sent" in str(end.value)


@pytest.mark.parametrize(
    ("indices", "values", "length", "text"),
    [
        ([1, 2], np.float32([1]), 9, r"there are 2 indices, and values of the shape \(1,\)"),
        ([1, 9], np.float32([1, 2]), 9, "indices go from 1 to 9, and length is 9"),
        ([-1, 3], np.float32([1, 2]), 9, "indices go from -1 to 3"),
        ([4, 2, 4], np.float32([1, 2, 3]), 9, "indices must be distinct, and 4 comes twice"),
        ([1.5, 2], np.float32([1, 2]), 9, "indices must be one row of whole numbers, not float64"),
        ([[1], [2]], np.float32([1, 2]), 9, "indices must be one row"),
        ([1, 2], np.float32([[1], [2]]), 9, r"there are 2 indices, and values of the shape \(2, 1\)"),
        (np.array([2**63 + 1], np.uint64), np.float32([1]), 2**56, "indices go up to 9223372036854775809"),
        ([1, 2], np.array([True, False]), 9, "values are bool, which have no sparse sum"),
        ([1, 2], np.complex64([1, 2]), 9, "values are complex64"),
        ([1, 2], [1.0, 2.0], 9, "values is a list"),
        ([1], np.float32([1]), 2**56 + 1, "length must be"),
    ],
)
def test_what_is_no_sparse_vector_is_refused(indices: Any, values: Any, length: int, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        Contribution.of(indices, values, length)


@pytest.mark.parametrize(
    ("values", "options", "errors", "text"),
    [
        (np.int32([1]), INT8, None, "values are int32, which cannot be quantized"),
        (np.float32([1]), INT8, np.zeros(1, np.float32), "errors must be a contiguous, writable array of 1000 float32"),
    ],
)
def test_what_is_no_quantization_is_refused(values: Any, options: Any, errors: Any, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        Contribution.of([1], values, LENGTH, options, errors)


def test_arguments_are_refused_before_anything_is_sent() -> None:
    modes, given = Modes.of(deferred=False, preserve_input=True), Contribution.of([], np.float32([]), 0)
    for tag, timeout, text in ((-1, None, "tag"), (OWN_TAGS, None, "tag"), (0, 0.0, "timeout")):
        with pytest.raises(InvalidArgument, match=text):
            next(exchange.all_reduce(given, tag, timeout, modes, Members(9, 3, 0)))


def test_all_that_moves_is_of_one_epoch_and_of_its_own_tags() -> None:
    ours = Contribution.of([1], np.float32([1]), LENGTH)
    begun = steps(ours, 2)
    first = next(begun)
    second = begun.send(gathered(first, [ours.notice.write()] * 2))
    assert [it.call.tag - OWN_TAGS for it in (first, second)] == [5, 5]
    assert [it.call.expected_epoch for it in (first, second)] == [9, 9]
