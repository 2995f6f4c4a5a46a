# SPDX-License-Identifier: MIT
"""Parts of groups, made by the groups themselves."""

from __future__ import annotations

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from tests.torch.ranks import Rank, Ranks

pytestmark = pytest.mark.process


def parts(rank: Rank) -> None:
    with rank.group():
        whole = dist.group.WORLD
        assert whole is not None
        for ranks in ([3, 0], [0, 1, 3]):  # one after the other; who is in none calls it, too
            part = whole.split_group(ranks, timeout=timedelta(seconds=7))
            assert (part is None) == (rank.rank not in ranks)
            if part is None:
                continue
            assert part.name() == "pccl"
            assert part.size() == len(ranks)
            assert part.rank() in (sorted(ranks).index(rank.rank), ranks.index(rank.rank))  # up to 2.13 torch sorts
            x = torch.tensor([float(rank.rank)])
            part.allreduce([x]).wait()
            assert x.item() == sum(ranks)
            if nested := part.split_group([0, 1]):
                y = torch.tensor([float(part.rank())])
                nested.allreduce([y]).wait()
                assert y.item() == 1.0
        for wrong in ([0, 4], [1, 1]):
            with pytest.raises((ValueError, RuntimeError)):
                whole.split_group(wrong)
        part = whole.split_group([0, 1], timeout=timedelta(milliseconds=200))
        if rank.rank == 0:
            with pytest.raises(dist.DistBackendError, match="no progress for 200 ms"):
                part.barrier().wait()
            whole.get_group_store().set("tried", "")
        whole.get_group_store().wait(["tried"])


def bound_to_a_device(rank: Rank) -> None:
    """As on a host with an accelerator; torch splits no groups on another. Names that torch makes up differ then."""
    torch.accelerator.is_available = lambda: True
    torch.accelerator.device_count = lambda: 1
    torch.accelerator.current_accelerator = lambda *_: torch.device("cuda:0")
    with rank.group(device_id=torch.device("cuda:0")):
        apart = dist.new_group([1, 2])
        part = dist.split_group(split_ranks=[[0, 2], [1]])
        if rank.rank in (0, 1, 2):
            assert part is not None
            assert dist.get_process_group_ranks(part) == ([1] if rank.rank == 1 else [0, 2])
            x = torch.tensor([float(rank.rank)])
            dist.all_reduce(x, group=part)
            assert x.item() == (1.0 if rank.rank == 1 else 2.0)
        else:
            assert part is None or part is dist.GroupMember.NON_GROUP_MEMBER
        if rank.rank in (1, 2):
            y = torch.tensor([float(rank.rank)])
            dist.all_reduce(y, group=apart)
            assert y.item() == 3.0
        dist.all_reduce(torch.ones(1))


def test_parts_of_a_group(ranks: Ranks, form: str) -> None:
    ranks.run(parts, 4, form)


def test_groups_that_are_bound_to_a_device_are_split(ranks: Ranks, form: str) -> None:
    if form == "python" and hasattr(dist, "_reconfigure"):
        pytest.skip("from 2.14 on torch takes no group in Python for what another one is split from")
    ranks.run(bound_to_a_device, 4, form)
