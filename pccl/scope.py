# SPDX-License-Identifier: MIT
"""Who takes part in an operation, as its name says: the whole group (0), the two of a send and its receive, or the
members of a subgroup.

The one idea: one number, that of `pccl_scope` or `pccl_scope_of` in csrc/pccl.h, so that names stay comparable and
small. That of a subgroup is a hash of its ranks, which are told beside it where they matter.
"""

from __future__ import annotations

from collections.abc import Collection

OF_RANKS = 1 << 63


def of_pair(source: int, target: int) -> int:
    """The scope of what rank `source` sends to rank `target`."""
    return (source + 1) << 32 | (target + 1)


def pair(scope: int) -> tuple[int, int] | None:
    """Source and target; None for a group and for a subgroup. What is no scope at all names ranks that no group has."""
    return None if scope == 0 or is_subgroup(scope) else ((scope >> 32) - 1, (scope & 0xFFFFFFFF) - 1)


def is_subgroup(scope: int) -> bool:
    """Whether it is that of a subgroup."""
    return bool(scope & OF_RANKS)


def has(scope: int, rank: int, members: Collection[int]) -> bool:
    """Whether `rank` takes part; `members` are those of a subgroup."""
    if is_subgroup(scope):
        return rank in members
    return scope == 0 or rank in (pair(scope) or ())


def words(scope: int, before: str = " ") -> str:
    """As " from rank 1 to rank 0" or " of subgroup 9f3a12bc"; nothing for the whole group."""
    if is_subgroup(scope):
        return f"{before}of subgroup {scope >> 32:08x}"
    two = pair(scope)
    return "" if two is None else f"{before}from rank {two[0]} to rank {two[1]}"
