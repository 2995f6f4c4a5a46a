# SPDX-License-Identifier: MIT
"""Objects of every size, between ranks counted in both ways."""

from __future__ import annotations

from typing import Any

import pytest
import torch.distributed as dist

from tests.torch.ranks import Rank, Ranks

pytestmark = pytest.mark.process

LARGE = 50 << 20


def sizes(rank: Rank) -> None:
    """In a group of ranks 1 and 3."""
    large = b"\x5a" * LARGE
    with rank.group():
        group = dist.new_group([1, 3])
        if rank.rank in (1, 3):
            last = rank.rank == 3
            for thing in (None, "", b"", [], large):
                one = [thing if last else "something else"]
                dist.broadcast_object_list(one, src=3, group=group)
                assert one[0] == thing
                part: list[Any] = [None]
                dist.scatter_object_list(part, ["first", thing] if last else None, group_src=1, group=group)
                assert part[0] == (thing if last else "first")
                into: list[Any] | None = [None, None] if not last else None
                dist.gather_object(thing if last else "first", into, group_dst=0, group=group)
                assert into is None or into == ["first", thing]
                every: list[Any] = [None, None]
                dist.all_gather_object(every, thing if last else 1, group=group)
                assert every == [1, thing]
        dist.barrier()


def test_objects_of_no_size_and_of_fifty_megabytes(ranks: Ranks, form: str) -> None:
    """B86."""
    ranks.run(sizes, 4, form)
