# SPDX-License-Identifier: MIT
"""The master's journal on disk: one file, one owner, every append durable before it returns.

What the records mean is `pccl.protocol.journal`'s matter. The one idea: the file is only ever appended to, or replaced
as a whole by a shorter one that says the same (written aside, synced, renamed); so at every moment there is a valid
journal under its name, with at most a torn last record, which replay cuts off.
"""

from __future__ import annotations

import os
import stat
import threading
import weakref
from collections.abc import Iterable
from io import FileIO
from pathlib import Path

from pccl import system
from pccl.errors import InvalidArgument
from pccl.protocol import journal
from pccl.protocol.types import Past, Record

REWRITE_BYTES = 4 * 1024 * 1024
"""A journal is rewritten when it has grown by so much."""

_FIRST_RECORD_BYTES = 64
"""More than the first record takes: a longer file without a whole one was never a journal, and is not touched."""

_held: weakref.WeakSet[FileIO] = weakref.WeakSet()
"""All journals of this process, also those that are about to take another's place: a forked child inherits them with
their locks, and whoever comes after us could not have them as long as it lives."""
_guard = threading.RLock()
"""Held while that set does not say what is open, and during a fork. The garbage collector may close a master's journal
in the middle of that."""


class JournalFile:
    """An open, locked journal. `past` is what it said when it was opened."""

    def __init__(self, path: Path) -> None:
        """Opens or creates it. Raises InvalidArgument when another master has it or it is no journal, OSError."""
        self._path = path
        self._file = _open_locked(path)
        try:
            data = self._file.read()
            self.past, valid_bytes = journal.replay(data)
            if valid_bytes == 0 and len(data) > _FIRST_RECORD_BYTES:
                raise InvalidArgument(f"{path} is no journal")
        except BaseException:
            _give_back(self._file)
            raise
        self._file.truncate(valid_bytes)
        self._file.seek(valid_bytes)
        _sync_folder(path)
        self._grown_bytes = 0

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self._file.tell()

    @property
    def wants_rewrite(self) -> bool:
        """Whether it has grown enough since the last rewrite."""
        return self._grown_bytes > REWRITE_BYTES

    def append(self, record: Record) -> None:
        """Blocks until the record is on disk. Raises OSError; the journal must not be used any more then."""
        data = journal.encode(record)
        _write(self._file, data)
        self._grown_bytes += len(data)

    def rewrite(self, records: Iterable[Record]) -> bool:
        """Replaces all that it says by `records`. Blocks until they are on disk. False when they cannot be written, for
        want of room: then it stays as it is, and can be used. Raises OSError like `append`."""
        self._grown_bytes = 0
        aside = self._path.with_name(self._path.name + ".new")
        data = b"".join(journal.encode(record) for record in records)
        try:
            replacement = _take(aside, os.O_TRUNC)
        except OSError:
            return False
        try:
            os.fchmod(replacement.fileno(), stat.S_IMODE(os.fstat(self._file.fileno()).st_mode))
            if not system.lock_file(replacement):
                raise InvalidArgument(f"journal {aside} is in use by another process")
            if not _can_write(replacement, data):
                aside.unlink()
                _give_back(replacement)
                return False
            os.replace(aside, self._path)
        except BaseException:
            _give_back(replacement)
            raise
        _give_back(self._file)
        self._file = replacement
        _sync_folder(self._path)
        return True

    def close(self) -> None:
        """Gives the file and its lock back."""
        _give_back(self._file)


def _take(path: Path, flags: int = 0) -> FileIO:
    with _guard:
        file = FileIO(os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o600), "r+")
        _held.add(file)
        return file


def _give_back(file: FileIO) -> None:
    with _guard:
        _held.discard(file)
        file.close()


def _forked() -> None:
    """In a forked child: the files and their locks are the parent's alone."""
    for file in list(_held):
        system.blind(file.fileno())
    _guard.release()


os.register_at_fork(before=_guard.acquire, after_in_parent=_guard.release, after_in_child=_forked)


def _write(file: FileIO, data: bytes) -> None:
    """All of it, on disk. Without a buffer, so that nothing of what failed is written at some later time."""
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]
    os.fsync(file.fileno())


def _can_write(file: FileIO, data: bytes) -> bool:
    try:
        _write(file, data)
    except OSError:
        return False
    return True


def _open_locked(path: Path) -> FileIO:
    """The file under `path`, locked. Repeated when a rewrite by its last owner replaced it meanwhile."""
    while True:
        file = _take(path)
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            _give_back(file)
            raise InvalidArgument(f"journal {path} is not a regular file")
        if not system.lock_file(file):
            _give_back(file)
            raise InvalidArgument(f"journal {path} is in use by another master")
        if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
            return file
        _give_back(file)


def _sync_folder(path: Path) -> None:
    """Makes the file's name durable."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


__all__ = ["JournalFile", "Past"]
