# SPDX-License-Identifier: MIT
"""The master's journal: records to bytes, bytes to the state of the run.

What for: what a restarted master must know. Must not know: files, fsync, peers' connections, votes in progress.

The one idea: the durable part of the master's state *is* a `Past`, changed only by `apply(past, record)`, both live and
in replay. A frame is [payload bytes: u32 LE][CRC32 of the payload: u32 LE][CRC32 of these eight bytes: u32 LE][msgpack
payload]. A crash can tear only the last frame, since each one is synced before the next is begun; a bad frame with more
behind it is damage, and refused. The head has a CRC of its own, lest a damaged length pass for a torn end and take good
records with it.
"""

from __future__ import annotations

import dataclasses
import struct
import zlib
from typing import Any

import msgpack

from pccl.errors import ProtocolError
from pccl.messages import Census, Member, OperationName, Prices
from pccl.protocol.types import Admission, Answer, Change, GroupView, Memory, Past, Record, Settings

JOURNAL_VERSION = 6
MAX_RECORD_BYTES = 64 * 1024 * 1024
SECRET_BYTES = 16
_HEAD = struct.Struct("<III")
_CHECKED = struct.Struct("<II")
_SETTINGS, _CHANGE = 1, 2


def encode(record: Record) -> bytes:
    """One frame: append it, then fsync."""
    payload: bytes = msgpack.packb(_pack(record))
    checked = _CHECKED.pack(len(payload), zlib.crc32(payload))
    return checked + zlib.crc32(checked).to_bytes(4, "little") + payload


def replay(data: bytes) -> tuple[Past, int]:
    """(state, length of the valid prefix). A torn last frame is not an error: the shell truncates the file to that
    length before it appends. Raises ProtocolError if `data` is no journal of this version, or damaged before its
    end."""
    past, offset = Past(), 0
    while offset < len(data):
        payload = _frame(data, offset)
        if payload is None:
            if _torn(data, offset):
                break
            raise ProtocolError(f"the journal is damaged at byte {offset}, before its last record")
        record = _unpack(payload, offset)
        if (offset == 0) != isinstance(record, Settings):
            raise ProtocolError("not a journal: it does not begin with its settings")
        try:
            _check_order(past, record)
            apply(past, record)
        except (TypeError, AttributeError) as error:
            raise ProtocolError(f"unreadable record at byte {offset}: {error}") from None
        offset += _HEAD.size + len(payload)
    if offset == 0 and not _may_begin(data):
        raise ProtocolError("not a journal: it does not begin with one's settings")
    return past, offset


def _may_begin(data: bytes) -> bool:
    """Whether a file without one whole record may be what a crash left of the first: each byte of the head's length,
    which is always the same, was written or was not."""
    length = encode(Settings(bytes(SECRET_BYTES)))[:4]
    return all(byte in (0, wanted) for byte, wanted in zip(data, length, strict=False))


def _check_order(past: Past, record: Record) -> None:
    """A group's epochs rise. Raises ProtocolError where a record stands twice, or at another's place."""
    for view in record.views if isinstance(record, Change) else ():
        before = past.views.get(view.group)
        if before is not None and view.epoch <= before.epoch:
            raise ProtocolError(f"the journal is damaged: epoch {view.epoch} comes after epoch {before.epoch}")


def apply(past: Past, record: Record) -> None:
    """Changes `past` by one record."""
    if isinstance(record, Settings):
        past.run_secret = record.run_secret
        return
    for admission in record.admissions:
        past.admissions[admission.id] = admission
    for view in record.views:
        _apply_view(past, view)
    for answer in record.answers:
        if answer.peer in past.admissions:
            past.answers[answer.peer] = answer
    for memory in record.memories:
        past.memories[memory.group] = memory.body


def _apply_view(past: Past, view: GroupView) -> None:
    before = past.views.pop(view.group, None)
    stays = dict.fromkeys(view.members, True)
    for peer in before.members if before else ():
        if peer not in stays:
            past.admissions.pop(peer, None)
            past.answers.pop(peer, None)
    if view.members:
        past.views[view.group] = view
    past.epoch = max(past.epoch, view.epoch)


def snapshot(past: Past) -> list[Record]:
    """The shortest journal that replays to `past`."""
    views = list(past.views.values())
    if past.epoch > max((view.epoch for view in views), default=0):
        # The newest epoch belonged to a group that has ended; its number must not come again.
        views.insert(0, GroupView(past.epoch, 0, 0 if 0 not in past.views else _unused(past), (), (), (), (), 0, ""))
    memories = tuple(Memory(group, body) for group, body in past.memories.items())
    whole = Change(tuple(past.admissions.values()), tuple(views), tuple(past.answers.values()), memories)
    return [Settings(past.run_secret), whole]


def _unused(past: Past) -> int:
    """A group number that no view has."""
    return next(number for number in range(len(past.views) + 1) if number not in past.views)


def _frame(data: bytes, offset: int) -> bytes | None:
    """The payload of the frame at `offset`, None if it is not whole."""
    if offset + _HEAD.size > len(data):
        return None
    length, checksum, _ = _HEAD.unpack_from(data, offset)
    payload = data[offset + _HEAD.size : offset + _HEAD.size + length]
    if not _head_is_sound(data, offset) or len(payload) < length or zlib.crc32(payload) != checksum:
        return None
    return payload


def _head_is_sound(data: bytes, offset: int) -> bool:
    length, _, check = _HEAD.unpack_from(data, offset)
    return 0 < int(length) <= MAX_RECORD_BYTES and int(check) == zlib.crc32(data[offset : offset + _CHECKED.size])


def _torn(data: bytes, offset: int) -> bool:
    """Whether the bad frame at `offset` can be the unfinished last write: its head is not whole (what follows are zeros
    that were never filled in), or nothing stands behind the end that its head tells."""
    if len(data[offset:].rstrip(b"\0")) < _HEAD.size:
        return True
    length = int(_HEAD.unpack_from(data, offset)[0])
    return _head_is_sound(data, offset) and offset + _HEAD.size + length >= len(data)


def _pack(record: Record) -> list[Any]:
    if isinstance(record, Settings):
        return [_SETTINGS, JOURNAL_VERSION, record.run_secret]
    admissions = [
        [it.id, it.secret, it.group, it.member.address, it.member.port, it.member.host_id, it.member.cores]
        for it in record.admissions
    ]
    views = [
        [
            it.epoch,
            it.previous,
            it.group,
            it.members,
            it.ring,
            it.admitted,
            [(name.tag, name.sequence, name.scope) for name in it.commits],
            it.cause,
            it.text,
            it.shape,
            it.parents,
            it.avoided,
            dataclasses.astuple(it.prices),
            dataclasses.astuple(it.census),
        ]
        for it in record.views
    ]
    answers = [
        [it.peer, it.call, int(it.status), it.text, it.flag, it.body, it.epoch, dataclasses.astuple(it.census)]
        for it in record.answers
    ]
    return [_CHANGE, admissions, views, answers, [[it.group, it.body] for it in record.memories]]


def _unpack(payload: bytes, offset: int) -> Record:
    """The record in a payload whose checksum is right. What does not parse then was written by another version."""
    try:
        kind, *parts = msgpack.unpackb(payload, max_map_len=0, max_ext_len=0)
        if kind == _SETTINGS:
            version, secret = parts
            if version != JOURNAL_VERSION:
                raise ProtocolError(f"journal of version {version}; this master reads version {JOURNAL_VERSION}")
            return Settings(secret)
        if kind == _CHANGE:
            return _unpack_change(*parts)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise ProtocolError(f"unreadable record at byte {offset}: {error}") from None
    raise ProtocolError(f"unknown record kind {kind} at byte {offset}")


def _unpack_change(admissions: list[Any], views: list[Any], answers: list[Any], memories: list[Any]) -> Change:
    return Change(
        tuple(
            Admission(peer, secret, group, Member(peer, address, port, host, cores))
            for peer, secret, group, address, port, host, cores in admissions
        ),
        tuple(
            GroupView(
                epoch,
                previous,
                group,
                tuple(members),
                tuple(ring),
                tuple(admitted),
                tuple(OperationName(tag, sequence, scope) for tag, sequence, scope in commits),
                cause,
                text,
                shape,
                tuple(parents),
                tuple((low, high) for low, high in avoided),
                Prices(*prices),
                Census(*census),
            )
            for (
                epoch,
                previous,
                group,
                members,
                ring,
                admitted,
                commits,
                cause,
                text,
                shape,
                parents,
                avoided,
                prices,
                census,
            ) in views
        ),
        tuple(
            Answer(peer, call, status, text, flag, body, epoch, Census(*census))
            for peer, call, status, text, flag, body, epoch, census in answers
        ),
        tuple(Memory(*memory) for memory in memories),
    )
