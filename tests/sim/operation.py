# SPDX-License-Identifier: MIT
"""One collective, send or receive of a simulated user, and how far its peer's engine is with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pccl.errors import Status
from pccl.protocol.verdict import NOT_STARTED

Key = tuple[Any, ...]
Name = tuple[int, int, int]
"""Scope, tag, sequence."""
PeerId = bytes


@dataclass(slots=True)
class Operation:
    """What the user started. `key` says which of the program's operations it is, and `kind` what is called for it, on
    which all members must agree; `done` is called once: (key, None, epoch, members) after success,
    (key, status, epoch, ()) otherwise. A `commit` settles the `deferred` operations before it. `scope` names the ranks
    of a send and its receive; one `from_any` gets scope and key from the send that it takes. `team`: the ranks of a
    subgroup, whose scope it has. What is `bound` runs in that epoch only."""

    key: Key
    tag: int
    kind: int
    done: Callable[[Key, Status | None, int, tuple[PeerId, ...]], None]
    deferred: bool = False
    commit: bool = False
    scope: int = 0
    team: tuple[int, ...] = ()
    from_any: bool = False
    bound: int = 0
    fated: bool = False
    sequence: int = -1
    state: int = NOT_STARTED
    settles: int = 0
    round: int = 0
    heard: dict[PeerId, bool] = field(default_factory=dict)
    bars: dict[int | PeerId, bool] = field(default_factory=dict)
    progress_at: float = 0.0

    @property
    def paired(self) -> bool:
        return self.scope != 0 and not self.team

    @property
    def stepwise(self) -> bool:
        return self.deferred or self.commit
