# SPDX-License-Identifier: MIT
"""The journal on disk: kept, cut, replaced, locked."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any

import pytest

from pccl import InvalidArgument, PCCLError, journal_file
from pccl.journal_file import JournalFile
from pccl.protocol.types import Change, Memory, Settings

SETTINGS = Settings(b"s" * 16)


def _memory(group: int, body: bytes) -> Change:
    return Change(memories=(Memory(group, body),))


def remembered(path: Path) -> dict[int, bytes]:
    journal = JournalFile(path)
    try:
        assert journal.past.run_secret == SETTINGS.run_secret
        return dict(journal.past.memories)
    finally:
        journal.close()


def test_what_was_appended_is_there_again(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = JournalFile(path)
    assert journal.past.run_secret == b""
    journal.append(SETTINGS)
    journal.append(_memory(1, b"one"))
    journal.append(_memory(2, b"two"))
    assert path.read_bytes(), "append returns when the bytes are in the file"
    journal.close()
    assert remembered(path) == {1: b"one", 2: b"two"}
    assert path.stat().st_mode & 0o077 == 0, "it holds the run's secret"


def test_a_torn_record_is_cut_off_and_written_over(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = JournalFile(path)
    journal.append(SETTINGS)
    whole = path.stat().st_size
    journal.append(_memory(1, b"one"))
    journal.close()
    for size in range(whole + 1, path.stat().st_size):
        torn = tmp_path / f"torn{size}"
        torn.write_bytes(path.read_bytes()[:size])
        again = JournalFile(torn)
        assert (again.past.memories, torn.stat().st_size) == ({}, whole)
        again.append(_memory(2, b"two"))
        again.close()
        assert remembered(torn) == {2: b"two"}


def test_a_rewrite_replaces_all_and_keeps_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_file, "REWRITE_BYTES", 1000)
    path = tmp_path / "journal"
    journal = JournalFile(path)
    journal.append(SETTINGS)
    while not journal.wants_rewrite:
        journal.append(_memory(1, b"x" * 100))
    grown = path.stat().st_size
    assert journal.rewrite([SETTINGS, _memory(1, b"y")])
    assert not journal.wants_rewrite
    assert path.stat().st_mode & 0o077 == 0, "it holds the run's secret"
    assert path.stat().st_size < grown
    with pytest.raises(InvalidArgument, match="in use by another master"):
        JournalFile(path)
    journal.append(_memory(2, b"z"))
    journal.close()
    assert remembered(path) == {1: b"y", 2: b"z"}
    assert sorted(file.name for file in tmp_path.iterdir()) == ["journal"]


@contextlib.contextmanager
def room(size: int) -> Iterator[None]:
    """No file of this process can grow beyond `size` bytes, as if the disk were full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("left", [0, 1, 30])
def test_a_record_that_finds_no_room_is_not_written_later(tmp_path: Path, left: int) -> None:
    path = tmp_path / "journal"
    journal = JournalFile(path)
    journal.append(SETTINGS)
    journal.append(_memory(1, b"one"))
    size = path.stat().st_size
    with room(size + left), pytest.raises(OSError, match="large"):
        journal.append(_memory(2, b"two" * 100))
    journal.close()
    assert path.stat().st_size == size + left
    assert remembered(path) == {1: b"one"}


def test_a_child_that_is_forked_amid_a_rewrite_does_not_keep_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal"
    (wait, end), (ready, begun) = os.pipe(), os.pipe()
    children: list[int] = []

    def fork_then_write(file: FileIO, data: bytes) -> bool:
        children.append(os.fork())
        if children[0] == 0:
            os.close(end)
            os.write(begun, b"x")
            os.read(wait, 1)
            os._exit(0)
        return file.write(data) == len(data)

    monkeypatch.setattr(journal_file, "_can_write", fork_then_write)
    journal = JournalFile(path)
    assert journal.rewrite([SETTINGS, _memory(1, b"one")])
    journal.close()
    assert os.read(ready, 1) == b"x"
    assert remembered(path) == {1: b"one"}, "while the child lives"
    for descriptor in (wait, end, ready, begun):
        os.close(descriptor)
    assert os.waitpid(children[0], 0)[1] == 0


def test_a_journal_may_be_closed_while_another_one_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the garbage collector does it: at any step, on the same thread."""
    one = JournalFile(tmp_path / "one")
    open_file = os.open

    def collect_then_open(*arguments: Any) -> int:
        one.close()
        return open_file(*arguments)

    monkeypatch.setattr(journal_file.os, "open", collect_then_open)
    JournalFile(tmp_path / "two").close()
    monkeypatch.undo()
    JournalFile(tmp_path / "one").close()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["one", "two"]


def test_a_rewrite_that_finds_no_room_leaves_everything_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = JournalFile(path)
    journal.append(SETTINGS)
    with room(path.stat().st_size):
        assert not journal.rewrite([SETTINGS, _memory(1, b"one")])
    assert sorted(file.name for file in tmp_path.iterdir()) == ["journal"]
    journal.append(_memory(2, b"two"))
    assert journal.rewrite([SETTINGS, _memory(2, b"two")])
    journal.close()
    assert remembered(path) == {2: b"two"}


def test_what_is_no_journal_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_bytes(b"my thesis, the only copy" * 100)
    with pytest.raises(PCCLError):
        JournalFile(path)
    assert path.read_bytes() == b"my thesis, the only copy" * 100


@pytest.mark.parametrize("content", [b"vm\n", b"\x7fELF", b"{", b"#!/bin/sh\necho precious\n", b"x" * 63, b"\n" * 5])
def test_a_foreign_file_is_refused_and_not_touched_however_short(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "precious"
    path.write_bytes(content)
    with pytest.raises(PCCLError, match="journal"):
        JournalFile(path)
    assert path.read_bytes() == content


def test_a_first_record_that_was_torn_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = JournalFile(path)
    journal.append(SETTINGS)
    journal.close()
    whole = path.read_bytes()
    for size in (0, 1, 4, 11, 12, len(whole) - 1):
        for torn in (whole[:size], whole[:size] + bytes(len(whole) - size), bytes(size)):
            path.write_bytes(torn)
            again = JournalFile(path)
            again.append(SETTINGS)
            again.close()
            assert remembered(path) == {}
