# SPDX-License-Identifier: MIT
"""The file format of traces: JSON lines, so that any tool can read them without pccl.

What for: the only place that turns a file's bytes into records. Must not know: where files lie, what records mean.

The first line is {"pccl_trace": VERSION, ...the header's fields}; each further line is an object with one key, the
record's class ("operation", "event" or "link"), and its fields as value. Every field must be there, of its exact type
and within its bounds, and nothing else; whatever does not fit raises BadTrace with its line. A version is never used
again for another layout.
"""

from __future__ import annotations

import json
import typing
from typing import Any

from pccl.errors import InvalidArgument
from pccl.trace.record import EVENT_KINDS, Event, Header, Link, Operation, Trace

VERSION = 2
MAX_FILE_BYTES = 256 << 20
MAX_LINE_CHARACTERS = 4 << 20
MAX_TEXT_CHARACTERS = 1 << 16
MAX_ITEMS = 65_536
MAX_NUMBER = 2**64 - 1

_CLASSES: dict[str, Any] = {"operation": Operation, "event": Event, "link": Link}
_NAMES = {cls: name for name, cls in _CLASSES.items()}
_FIELDS: dict[Any, dict[str, Any]] = {}


class BadTrace(InvalidArgument):
    """A file that is no trace, or one of another version."""


def encode(trace: Trace) -> bytes:
    """The whole file."""
    lines: list[dict[str, Any]] = [{"pccl_trace": VERSION, **_plain(trace.header)}]
    records: list[Any] = [*trace.operations, *trace.events, *trace.links]
    lines += [{_NAMES[type(record)]: _plain(record)} for record in records]
    pack = json.JSONEncoder(separators=(",", ":")).encode
    return "".join([pack(line) + "\n" for line in lines]).encode()


def _plain(record: Any) -> dict[str, Any]:
    """As dataclasses.asdict, which takes ten times as long."""
    values = {name: getattr(record, name) for name in record.__slots__}
    for name, value in values.items():
        if type(value) is tuple:
            values[name] = [_plain(item) for item in value]
    return values


def decode(data: bytes) -> Trace:
    """The trace in a file's bytes. Raises BadTrace."""
    if len(data) > MAX_FILE_BYTES:
        raise BadTrace(f"{len(data)} bytes are more than a trace has ({MAX_FILE_BYTES})")
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as wrong:
        raise BadTrace(f"not a trace: {wrong.reason} at byte {wrong.start}") from None
    if lines.pop() != "":
        raise BadTrace(f"line {len(lines) + 1}: the file was cut off")
    if not lines:
        raise BadTrace("line 1: the file is empty")
    header = _header(lines[0])
    records: dict[Any, list[Any]] = {Operation: [], Event: [], Link: []}
    for number, line in enumerate(lines[1:], 2):
        record = _record(line, number)
        records[type(record)].append(record)
    return Trace(header, tuple(records[Operation]), tuple(records[Event]), tuple(records[Link]))


def _header(line: str) -> Header:
    value = _parsed(line, 1)
    version = value.pop("pccl_trace", None)
    if type(version) is not int:
        raise BadTrace("line 1: not a trace of pccl")
    if version != VERSION:
        raise BadTrace(f"line 1: a trace of version {version}; this pccl reads version {VERSION}")
    header: Header = _object(Header, value, "line 1: header")
    return header


def _record(line: str, number: int) -> Any:
    value = _parsed(line, number)
    if len(value) != 1:
        raise BadTrace(f"line {number}: not one record")
    ((name, fields),) = value.items()
    cls = _CLASSES.get(name)
    if cls is None:
        raise BadTrace(f"line {number}: unknown record {name[:40]!r}")
    record = _object(cls, fields, f"line {number}: {name}")
    if isinstance(record, Event) and record.kind not in EVENT_KINDS:
        raise BadTrace(f"line {number}: unknown event {record.kind[:40]!r}")
    return record


def _parsed(line: str, number: int) -> dict[str, Any]:
    if len(line) > MAX_LINE_CHARACTERS:
        raise BadTrace(f"line {number}: {len(line)} characters, more than {MAX_LINE_CHARACTERS}")
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        raise BadTrace(f"line {number}: not JSON") from None
    if type(value) is not dict:
        raise BadTrace(f"line {number}: not an object")
    return value


def _object(cls: Any, value: Any, where: str) -> Any:
    hints = _FIELDS.get(cls)
    if hints is None:
        hints = _FIELDS[cls] = typing.get_type_hints(cls)
    if type(value) is not dict or value.keys() != hints.keys():
        raise BadTrace(f"{where}: not its {len(hints)} fields")
    return cls(**{name: _value(hint, value[name], f"{where}.{name}") for name, hint in hints.items()})


def _value(hint: Any, value: Any, where: str) -> Any:
    if typing.get_origin(hint) is tuple:
        if type(value) is not list or len(value) > MAX_ITEMS:
            raise BadTrace(f"{where}: not a list of at most {MAX_ITEMS}")
        item = typing.get_args(hint)[0]
        return tuple([_object(item, entry, where) for entry in value])
    if type(value) is not hint:
        raise BadTrace(f"{where}: not {hint.__name__}")
    if hint is int and not -1 <= value <= MAX_NUMBER:
        raise BadTrace(f"{where}: not a number from -1 to {MAX_NUMBER}")
    if hint is str and len(value) > MAX_TEXT_CHARACTERS:
        raise BadTrace(f"{where}: more than {MAX_TEXT_CHARACTERS} characters")
    return value
