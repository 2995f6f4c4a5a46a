# SPDX-License-Identifier: MIT
"""Collectives that only some members of a group make: right for them, and none of the others' business."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import pccl
from tests.process.local import Local, at_once

pytestmark = pytest.mark.process

RANKS = (3, 0, 2)
"""In an order of their own; rank 1 has no part in it."""


def values(rank: int, count: int = 6) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.arange(count, dtype=np.int64) + 100 * rank


def collectives(comm: pccl.Communicator) -> None:
    """Asserts what each of some collectives brings."""
    if comm.rank not in RANKS:
        return
    sub = comm.subgroup(RANKS)
    assert (sub.rank, sub.world_size, sub.ranks) == (RANKS.index(comm.rank), 3, RANKS)
    assert repr(sub) == f"<pccl.Subgroup of ranks [3, 0, 2] in epoch {comm.epoch}: rank {sub.rank}>"
    total = values(3) + values(0) + values(2)
    x = values(comm.rank)
    info = sub.all_reduce(x)
    assert np.array_equal(x, total)
    assert (info.world_size, info.rank) == (3, sub.rank)
    gathered = np.zeros((3, 6), np.int64)
    sub.all_gather(values(comm.rank), gathered)
    assert np.array_equal(gathered, [values(rank) for rank in RANKS])
    x = values(comm.rank)
    sub.broadcast(x, root=1)
    assert np.array_equal(x, values(0)), "the root is a rank of the subgroup"
    part = np.zeros(2, np.int64)
    sub.reduce_scatter(values(comm.rank), part)
    assert np.array_equal(part, total[2 * sub.rank : 2 * sub.rank + 2])
    sent, got = np.repeat(values(comm.rank, 3), [1, 2, 3]), np.full(3 * (sub.rank + 1), -1, np.int64)
    sub.all_to_all_v(sent, [1, 2, 3], got, [sub.rank + 1] * 3)
    assert np.array_equal(got, np.repeat([100 * rank + sub.rank for rank in RANKS], sub.rank + 1))
    assert sub.all_gather_object({"rank": comm.rank}) == [{"rank": rank} for rank in RANKS]
    handle = sub.all_reduce_async(average := values(comm.rank).astype(np.float64), op=pccl.ReduceOp.AVG)
    handle.wait()
    assert np.array_equal(average, total / 3)
    sub.barrier()


@pytest.mark.parametrize("commit", ["each", "deferred"])
def test_every_kind_of_collective(commit: str) -> None:
    with Local(4, commit=commit) as local:
        local.all(collectives)
        if commit == "deferred":
            local.all(lambda comm: comm.commit())
        local.all(lambda comm: comm.barrier())


def test_several_and_the_group_at_a_time() -> None:
    """One tag for all: what is called in another order elsewhere does not clash."""
    with Local(3) as local:

        def work(comm: pccl.Communicator) -> None:
            pairs = [comm.subgroup(pair) for pair in [(0, 1), (1, 2), (0, 2)] if comm.rank in pair]
            arrays = [values(comm.rank, 10_000) for _ in [*pairs, comm]]
            ordered = [*pairs, comm] if comm.rank % 2 else [comm, *reversed(pairs)]
            lists = arrays if comm.rank % 2 else [arrays[2], arrays[1], arrays[0]]
            handles = [each.all_reduce_async(x) for each, x in zip(ordered, lists, strict=True)]
            told = [each.all_gather_object_async(comm.rank) for each in ordered]
            for handle in handles:
                handle.wait()
            for each, job in zip(ordered, told, strict=True):
                assert job.wait() == list(getattr(each, "ranks", range(3)))
            for pair, x in zip([*pairs, None], arrays, strict=True):
                assert x[0] == 100 * sum(pair.ranks if pair else range(3))

        local.all(work)


def test_it_lasts_as_long_as_its_members() -> None:
    with Local(4) as local:
        before = local.all(lambda comm: comm.subgroup(RANKS) if comm.rank in RANKS else None)
        local.all(lambda comm: comm.optimize_topology())
        subs = [sub for sub in before if sub is not None]
        at_once([partial(sub.barrier) for sub in subs])

        leaver = local.comms.pop(2)
        waiting = [sub for comm, sub in zip(local.comms, [*before[:2], before[3]], strict=True) if sub is not None]
        handles = [sub.all_reduce_async(values(sub.rank)) for sub in waiting]
        leaver.close()
        for handle in handles:
            with pytest.raises(pccl.PeerLost, match=r"all_reduce.* of subgroup [0-9a-f]{8} of epoch"):
                handle.wait()
        for sub in waiting:
            with pytest.raises(pccl.PeerLost, match="the group changed"):
                sub.barrier()
        local.comms.sort(key=lambda comm: comm.rank)
        ends = [comm for comm in local.comms if comm.rank != 1]
        anew = [comm.subgroup((2, 0)) for comm in ends]
        at_once([partial(sub.all_reduce, values(sub.rank)) for sub in anew])


def test_it_names_what_is_wrong() -> None:
    with Local(2) as local:
        comm = local.comms[0]
        for ranks, text in [
            ([0, 0], "rank 0 is named twice"),
            ([1], "rank 0, which is this peer, is not among the 1 ranks"),
            ([0, 2], r"ranks\[1\] must be a whole number from 0 to 1, not 2"),
            ([], "at least one rank"),
            (7, "ranks is a int, not a sequence of ranks"),
        ]:
            with pytest.raises(pccl.InvalidArgument, match=text):
                comm.subgroup(ranks)  # type: ignore[arg-type]
        with pytest.raises(pccl.InvalidArgument, match="root"):
            comm.subgroup([0]).broadcast(values(0), root=1)


def test_a_mismatch_is_told_to_its_members_alone() -> None:
    with Local(3) as local:

        def work(comm: pccl.Communicator) -> None:
            if comm.rank < 2:
                sub = comm.subgroup([0, 1])
                with pytest.raises(pccl.CollectiveMismatch, match=r"rank 0 called all_reduce.*rank 1 called barrier"):
                    sub.all_reduce(values(0)) if comm.rank == 0 else sub.barrier()
                sub.barrier()
            comm.barrier()

        local.all(work)


def test_who_votes_instead_is_to_blame_and_who_has_no_part_is_not() -> None:
    with Local(3) as local:

        def work(comm: pccl.Communicator) -> None:
            call = comm.subgroup([0, 1]).barrier if comm.rank == 0 else comm.update_topology
            with pytest.raises(pccl.CallMismatch, match="rank 1 called update_topology while rank 0 waits"):
                call()

        local.all(work)
        local.all(lambda comm: comm.barrier())
