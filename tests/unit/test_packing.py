# SPDX-License-Identifier: MIT
"""Plain data comes back as it was, of the same types; what is not plain is named; any bytes are a value or an error."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pccl import InvalidArgument, ReduceOp
from pccl.packing import Damaged, Pickled, Plain

KEYS = st.text(max_size=5) | st.integers(-(2**63), 2**64 - 1) | st.binary(max_size=5) | st.booleans() | st.none()
LEAVES = KEYS | st.floats(allow_nan=False)
PLAIN = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(KEYS | st.tuples(KEYS, KEYS), inner, max_size=4)
    ),
    max_leaves=20,
)


def same(a: Any, b: Any) -> bool:
    """Equal, and of the same types all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return same(list(a.items()), list(b.items()))
    return bool(a == b)


@given(PLAIN)
def test_plain_data_comes_back_as_it_was(value: Any) -> None:
    assert same(Plain.unpack(Plain.pack(value)), value)
    assert same(Pickled.unpack(Pickled.pack(value)), value)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_an_error(raw: bytes) -> None:
    assert isinstance(repr(value_of(raw)), str)


@given(PLAIN, st.data())
def test_damaged_bytes_are_a_value_or_an_error(value: Any, data: st.DataObject) -> None:
    raw = bytearray(Plain.pack(value))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(raw)))
    assert isinstance(repr(value_of(bytes(raw[:cut]))), str)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xc1",
        b"\xdd\xff\xff\xff\xff",  # four thousand million items that do not follow
        b"\xc6\xff\xff\xff\xff",
        b"\x91" * 100_000,
        b"\xc0\xc0",
        b"\x81\x90\xc0",  # a list as a key
        b"\xa1\xff",
        b"\xd4\x05\x00",  # an extension that nobody knows
        b"\xc7\x00\x01",  # a mark of a tuple, alone, and behind something else
        b"\x92\xc0\xc7\x00\x01",
        b"\x91\xd4\x01\x00",
    ],
)
def test_bytes_that_are_nothing(raw: bytes) -> None:
    with pytest.raises(Damaged):
        Plain.unpack(raw)


def test_tuples_may_not_be_nested_without_end() -> None:
    with pytest.raises(Damaged):
        Plain.unpack(b"\x92\xc7\x00\x01" * 100_000)
    deep: Any = ()
    for _ in range(200):
        deep = (deep,)
    assert same(Plain.unpack(Plain.pack(deep)), deep)
    for _ in range(2000):
        deep = (deep,)
    with pytest.raises(InvalidArgument, match="nested too deeply"):
        Plain.pack(deep)


def value_of(raw: bytes) -> Any:
    """What bytes are: a value, or the text of the error."""
    try:
        return Plain.unpack(raw)
    except Damaged as failure:
        return str(failure)


LOOP: list[Any] = []
LOOP.append(LOOP)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({1, 2}, "value is a set"),
        ({"a": [0, {"b": object()}]}, r"value\['a'\]\[1\]\['b'\] is a object"),
        ((1, (2, 3j)), r"value\[1\]\[1\] is a complex"),
        ({frozenset(): 1}, r"key frozenset\(\) of value is a frozenset"),
        ([np.float64(1)], r"value\[0\] is a numpy.float64"),
        (np.ones(3), "value is a numpy.ndarray"),
        (ReduceOp.SUM, "value is a pccl.enums.ReduceOp"),
        (OrderedDict(), "value is a collections.OrderedDict"),
        ([2**64], r"value\[0\] is an int beyond 64 bits"),
        ("\ud800", "value holds half of a surrogate pair"),
        (LOOP, "nested too deeply, or holds itself"),
    ],
)
def test_what_is_not_plain_is_named_with_its_place(value: Any, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text + "; plain data only, or pickle=True"):
        Plain.pack(value)


def test_pickle_takes_more_and_says_what_it_does_not() -> None:
    value = {"op": ReduceOp.SUM, "set": {1}, "array": np.arange(3)}
    assert repr(Pickled.unpack(Pickled.pack(value))) == repr(value)
    with pytest.raises(InvalidArgument, match="cannot be pickled"):
        Pickled.pack(lambda: 1)
    for raw in (b"", b"junk", Pickled.pack([1, 2])[:-2]):
        with pytest.raises(Damaged, match="not unpickled: "):
            Pickled.unpack(raw)


def test_numbers_and_bytes_at_their_borders() -> None:
    assert Plain.unpack(Plain.pack(bytearray(b"ab"))) == b"ab", "as bytes"
    back = Plain.unpack(Plain.pack([math.nan, math.inf, -0.0, -(2**63), 2**64 - 1]))
    assert math.isnan(back[0])
    assert str(back[1:]) == str([math.inf, -0.0, -(2**63), 2**64 - 1])
