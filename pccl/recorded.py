# SPDX-License-Identifier: MIT
"""An operation as the engine's flight recorder has it, as one that the trace knows. It needs no engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pccl.trace.record import Operation, Wait


class Words(NamedTuple):
    """The names behind the numbers of csrc/pccl.h, and the bytes of each dtype."""

    collectives: Sequence[str]
    dtypes: Sequence[str]
    dtype_bytes: Sequence[int]
    ops: Sequence[str]
    algorithms: Sequence[str]


def operation(raw: Any, peer: str, text: str, words: Words) -> Operation:
    """From a `pccl_record`; `peer` and `text` are those of it."""
    collective = words.collectives[raw.collective]
    has_data = collective not in ("barrier", "commit")
    waits = [raw.waits[index] for index in range(min(raw.waits_count, len(raw.waits)))]
    return Operation(
        epoch=raw.epoch,
        tag=raw.name.tag,
        sequence=raw.name.sequence,
        scope=raw.name.scope,
        collective=collective,
        dtype=words.dtypes[raw.dtype],
        op=words.ops[raw.op] if raw.op < len(words.ops) else "?",  # nobody looks at that of a broadcast
        algorithm=words.algorithms[raw.algorithm],
        deferred=bool(raw.deferred),
        count=raw.count,
        payload_bytes=raw.count * words.dtype_bytes[raw.dtype] if has_data else 0,
        world_size=raw.world_size,
        rank=raw.rank,
        status=raw.status,
        called_ns=raw.called_ns,
        started_ns=raw.started_ns,
        data_done_ns=raw.data_done_ns,
        ended_ns=raw.at_ns,
        tx_bytes=raw.tx_bytes,
        rx_bytes=raw.rx_bytes,
        last_peer=peer,
        absent=bool(raw.absent),
        waits_count=raw.waits_count,
        waits=tuple(Wait(wait.rank, wait.heard_ns) for wait in waits),
        text=text,
    )
