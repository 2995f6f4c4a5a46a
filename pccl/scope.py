# SPDX-License-Identifier: MIT
"""Who takes part in an operation, as its name says: the whole group (0), or the two of a send and its receive.

The one idea: one number, that of `pccl_scope` in csrc/pccl.h, so that names stay comparable and small.
"""

from __future__ import annotations


def of_pair(source: int, target: int) -> int:
    """The scope of what rank `source` sends to rank `target`."""
    return (source + 1) << 32 | (target + 1)


def pair(scope: int) -> tuple[int, int] | None:
    """Source and target; None for the whole group. What is no scope at all names ranks that no group has."""
    return ((scope >> 32) - 1, (scope & 0xFFFFFFFF) - 1) if scope else None


def has(scope: int, rank: int) -> bool:
    """Whether `rank` takes part."""
    return scope == 0 or rank in (pair(scope) or ())


def words(scope: int, before: str = " ") -> str:
    """As " from rank 1 to rank 0"; nothing for the whole group."""
    two = pair(scope)
    return "" if two is None else f"{before}from rank {two[0]} to rank {two[1]}"
