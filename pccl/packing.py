# SPDX-License-Identifier: MIT
"""Python objects as bytes, and back.

Plain data (None, bool, int of 64 bits, float, str, bytes, list, tuple, dict) goes as msgpack, and comes back equal and
of the same types (a bytearray as bytes). Anything else is refused by name, also subclasses and numpy's numbers, which
would come back as something else. Bytes from another peer may be anything: they become a value or an error, and run no
code. Pickle does run what its bytes say, so it is used only by those who ask for it.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import msgpack

from pccl.errors import InvalidArgument

_TUPLE = 1
"""The msgpack extension that comes first in a list which stands for a tuple. (One that held the packed items would be
unpacked by recursion, as deep as a stranger likes.)"""

_PLAIN = (type(None), bool, int, float, str, bytes)


class Damaged(ValueError):
    """Bytes that are no object."""


class Plain:
    """As msgpack."""

    name = "plain data"
    number = 1

    @staticmethod
    def pack(value: Any) -> bytes:
        """Raises InvalidArgument that names the part which is not plain."""
        try:
            packed: bytes = msgpack.packb(value, default=_list, strict_types=True)
        except (TypeError, ValueError, OverflowError, RecursionError) as failure:
            fault = next(_faults(value, "value", 0), f"value cannot be packed: {failure}")
            raise InvalidArgument(f"{fault}; plain data only, or pickle=True") from None
        return packed

    @staticmethod
    def unpack(packed: Any) -> Any:
        """Raises Damaged."""
        marks = _Marks()
        try:
            value = msgpack.unpackb(packed, ext_hook=marks.mark, list_hook=marks.tuple, strict_map_key=False)
        except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as failure:
            raise Damaged(f"not packed data: {failure or type(failure).__name__}") from None
        if marks.open:
            raise Damaged("not packed data: a mark of a tuple at a wrong place")
        return value


class _Marks:
    """Turns lists that begin with a mark into tuples."""

    def __init__(self) -> None:
        self.open = 0

    def mark(self, number: int, content: bytes) -> Any:
        if number != _TUPLE or content:
            raise ValueError(f"extension {number}")
        self.open += 1
        return self

    def tuple(self, items: list[Any]) -> Any:
        if not items or items[0] is not self:
            return items
        self.open -= 1
        return tuple(items[1:])


class Pickled:
    """As pickle. `unpack` may run any code: for those who trust every member."""

    name = "pickle"
    number = 2

    @staticmethod
    def pack(value: Any) -> bytes:
        """Raises InvalidArgument."""
        try:
            return pickle.dumps(value, protocol=4)  # what the oldest Python that pccl runs on can read
        except Exception as failure:
            raise InvalidArgument(f"value cannot be pickled: {failure}") from failure

    @staticmethod
    def unpack(packed: Any) -> Any:
        """Raises Damaged, whatever the bytes make pickle raise."""
        try:
            return pickle.loads(packed)
        except Exception as failure:
            raise Damaged(f"not unpickled: {type(failure).__name__}: {failure}") from failure


Packer = type[Plain] | type[Pickled]


def _list(value: Any) -> list[Any]:
    if type(value) is tuple:
        return [msgpack.ExtType(_TUPLE, b""), *value]
    raise TypeError(type(value).__name__)


_DEPTH = 200
"""How deep a value is searched for what is not plain."""


def _faults(value: Any, place: str, depth: int) -> Iterator[str]:
    """What cannot be packed, and where; the first is enough."""
    kind = type(value)
    if depth > _DEPTH:
        yield "value is nested too deeply, or holds itself"
    elif kind is dict:
        for key, item in value.items():
            yield from _faults(key, f"key {key!r:.40} of {place}", depth + 1)
            yield from _faults(item, f"{place}[{key!r:.40}]", depth + 1)
    elif kind in (list, tuple):
        for index, item in enumerate(value):
            yield from _faults(item, f"{place}[{index}]", depth + 1)
    elif kind not in _PLAIN:
        yield f"{place} is a {kind.__module__}.{kind.__qualname__}".replace("builtins.", "")
    elif kind is int and not -(2**63) <= value < 2**64:
        yield f"{place} is an int beyond 64 bits"
    elif kind is str and not _is_text(value):
        yield f"{place} holds half of a surrogate pair"


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
