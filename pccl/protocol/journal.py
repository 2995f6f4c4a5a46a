# SPDX-License-Identifier: MIT
"""The master's journal: records to bytes, bytes to the state of the run."""

from __future__ import annotations

from pccl.protocol.types import Past, Record


def encode(record: Record) -> bytes:
    """One frame: length (u32 LE), CRC32 of the payload (u32 LE), msgpack payload. Append it, then fsync."""
    raise NotImplementedError


def replay(data: bytes) -> tuple[Past, int]:
    """(state, length of the valid prefix). A torn or damaged tail is not an error: the shell truncates the file to the
    returned length before it appends. Raises ProtocolError if `data` is no journal of this version."""
    raise NotImplementedError
