# SPDX-License-Identifier: MIT
"""How one field of a message is checked and packed.

What for: messages.py says with annotations what a field may hold; here such an annotation becomes the two functions
that pack the field and that read it back from untrusted values. Must not know: any message.

Decoders take what msgpack made of the bytes and return it (a list becomes a tuple, a list of fields an object), or
raise ProtocolError with the name of the field.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable
from typing import Annotated, Any

from pccl.errors import ProtocolError


@dataclasses.dataclass(frozen=True)
class Limit:
    """Bounds of a field: the value of an int, the length of a str or bytes, the count of a tuple. `step` divides it."""

    low: int
    high: int
    step: int = 1


Decoder = Callable[[Any], Any]


def encoder(hint: Any, name: str) -> Callable[[Any], Any]:
    """How to read field `name` of an object as msgpack primitives."""
    pack = _packer(hint)
    if pack is None:
        return lambda obj: getattr(obj, name)
    return lambda obj: pack(getattr(obj, name))


def _packer(hint: Any) -> Callable[[Any], Any] | None:
    """What makes msgpack primitives of a value; None: it is one."""
    item = _tuple_item(hint)
    if item is not None:
        pack = _packer(item)
        return None if pack is None else lambda entries: [pack(entry) for entry in entries]
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint, include_extras=True)
        parts = [encoder(hints[field.name], field.name) for field in dataclasses.fields(hint)]
        return lambda value: [read(value) for read in parts]
    return None


def _tuple_item(hint: Any) -> Any:
    """The element type of `tuple[X, ...]` (annotated or not), else None."""
    base = typing.get_args(hint)[0] if typing.get_origin(hint) is Annotated else hint
    if typing.get_origin(base) is tuple:
        return typing.get_args(base)[0]
    return None


def decoder(hint: Any, where: str) -> Decoder:
    """A function that checks one msgpack value against `hint` and returns it, or raises ProtocolError."""
    if dataclasses.is_dataclass(hint):
        return _struct_decoder(hint, where)
    if hint is bool:
        return _flag_decoder(where)
    base, limit = typing.get_args(hint)
    if base is int:
        return _int_decoder(limit, where)
    if base is str or base is bytes:
        return _sized_decoder(base, limit, where)
    return _tuple_decoder(decoder(_tuple_item(base), where), limit, where)


def _flag_decoder(where: str) -> Decoder:
    def decode_flag(value: Any) -> Any:
        if type(value) is not bool:
            raise ProtocolError(f"{where}: not a flag")
        return value

    return decode_flag


def _int_decoder(limit: Limit, where: str) -> Decoder:
    low, high = limit.low, limit.high

    def decode_int(value: Any) -> Any:
        if type(value) is not int or not low <= value <= high:
            raise ProtocolError(f"{where}: not an integer from {low} to {high}")
        return value

    return decode_int


def _sized_decoder(base: Any, limit: Limit, where: str) -> Decoder:
    low, high, step = limit.low, limit.high, limit.step

    def decode_sized(value: Any) -> Any:
        if type(value) is not base or not low <= len(value) <= high or len(value) % step:
            raise ProtocolError(f"{where}: not {base.__name__} of length {low} to {high}")
        return value

    return decode_sized


def _tuple_decoder(item: Decoder, limit: Limit, where: str) -> Decoder:
    def decode_tuple(value: Any) -> Any:
        if type(value) is not list or not limit.low <= len(value) <= limit.high:
            raise ProtocolError(f"{where}: not a list of {limit.low} to {limit.high} elements")
        return tuple([item(entry) for entry in value])

    return decode_tuple


def _struct_decoder(cls: Any, where: str) -> Decoder:
    hints = typing.get_type_hints(cls, include_extras=True)
    fields = [decoder(hints[field.name], f"{where}.{field.name}") for field in dataclasses.fields(cls)]

    def decode_struct(value: Any) -> Any:
        if type(value) is not list or len(value) != len(fields):
            raise ProtocolError(f"{where}: not {len(fields)} fields")
        return cls(*[decode_field(entry) for decode_field, entry in zip(fields, value, strict=True)])

    return decode_struct
