# SPDX-License-Identifier: MIT
"""The C++ form by itself: what the tests of both forms do not show."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

import pccl
from pccl.torch import cause, native
from tests.torch.ranks import Rank, Ranks

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("native_form")]

ENDS_S = 20


def cpu() -> torch.device:
    return torch.device("cpu")


def names(rank: Rank) -> None:
    with rank.group():
        group = dist.group.WORLD
        assert group is not None
        assert group.name() == group._get_backend(cpu()).name() == "pccl"
        assert type(group) is dist.ProcessGroup, "what torch checks in places"
        assert (group.rank(), group.size()) == (rank.rank, rank.world)
        before = group._get_sequence_number_for_group()
        dist.barrier()
        assert group._get_sequence_number_for_group() == before + 1


def test_it_says_what_it_is(ranks: Ranks) -> None:
    ranks.run(names, 2, "native")


def works(rank: Rank) -> None:
    with rank.group():
        x = torch.ones(3)
        work = dist.all_reduce(x, async_op=True)
        future = work.get_future()
        assert work.get_future() is not None, "it may be asked for again"
        assert torch.equal(future.wait()[0], torch.full((3,), 2.0))
        assert work.is_completed()
        assert work.is_success()
        assert torch.equal(work.result()[0], x)

        called = threading.Event()
        found: list[Any] = []

        def callback(done: torch.futures.Future[Any]) -> None:
            y = done.value()[0] * 2
            dist.all_reduce(y)  # from the thread that completes futures
            found.append(y)
            called.set()

        dist.all_reduce(torch.ones(2), async_op=True).get_future().add_done_callback(callback)
        assert called.wait(ENDS_S)
        assert torch.equal(found[0], torch.full((2,), 8.0))
        assert dist.all_reduce(x, async_op=True).get_future().then(lambda it: it.value()[0].sum()).wait() == 12


def test_futures_are_completed_with_the_lists_of_results(ranks: Ranks) -> None:
    ranks.run(works, 2, "native")


def dropped(rank: Rank) -> None:
    """Its memory, too: what the engine has not sent yet stays where it is."""
    with rank.group():
        if rank.rank == 0:
            x = torch.arange(1_000_000, dtype=torch.float32)
            kept = weakref.ref(x.untyped_storage())
            dist.isend(x, 1)
            del x
            gc.collect()
            dist.barrier()
            del kept
        else:
            dist.barrier()
            y = torch.empty(1_000_000)
            dist.recv(y, 0)
            assert torch.equal(y, torch.arange(1_000_000, dtype=torch.float32))
        z = torch.zeros(2, 3).t()  # staged: it is copied when nobody holds the work any more
        dist.broadcast(torch.ones(3, 2) if rank.rank == 0 else z, 0, async_op=True)
        dist.barrier()
        while rank.rank == 1 and not torch.equal(z, torch.ones(3, 2)):
            dist.distributed_c10d._get_default_group()


def test_works_may_be_dropped(ranks: Ranks) -> None:
    ranks.run(dropped, 2, "native")


def ended_under_way(rank: Rank) -> None:
    rank.init()
    works = [dist.irecv(torch.empty(4), 1 - rank.rank, tag=it) for it in range(3)]
    futures = [it.get_future() for it in works]
    dist.barrier()
    dist.distributed_c10d._abort_process_group()
    for work, future in zip(works, futures, strict=True):
        for wait in (work.wait, future.wait):
            with pytest.raises(dist.DistBackendError) as raised:
                wait()
            assert isinstance(cause(raised.value), pccl.PCCLError), raised.value
    rank.init(name="again")
    dist.barrier()
    dist.destroy_process_group()


def test_what_is_under_way_ends_with_the_group(ranks: Ranks) -> None:
    ranks.run(ended_under_way, 2, "native")


def calls_of_a_child(rank: Rank) -> None:
    with rank.group():
        work = dist.all_reduce(torch.ones(1), async_op=True)
        child = os.fork()
        if child == 0:
            try:
                dist.all_reduce(torch.ones(1))
            except dist.DistBackendError as failure:
                del work
                os._exit(7 if "parent" in str(failure) else 8)
            os._exit(9)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        work.wait()


def test_a_forked_child_has_no_part_in_it(ranks: Ranks) -> None:
    """B64."""
    ranks.run(calls_of_a_child, 2, "native")


def renumbered(rank: Rank) -> None:
    with rank.group():
        group = dist.group.WORLD
        plain = dist.ProcessGroup(group.get_group_store(), rank.rank, rank.world)
        torch.ops.pccl_torch.renumber(plain.boxed(), 5, 9)
        assert (plain.rank(), plain.size()) == (5, 9)


def test_a_group_may_get_another_rank_and_size(ranks: Ranks) -> None:
    ranks.run(renumbered, 2, "native")


# ---------------------------------------------------------------------------------------------- the cache


def test_a_cache_that_others_can_write_to_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o777)
    monkeypatch.setenv("PCCL_CACHE", str(tmp_path))
    with pytest.raises(native.Unavailable, match="can write"):
        native.cache_folder()
    tmp_path.chmod(0o700)
    assert native.cache_folder() == tmp_path


def test_the_object_tells_its_sources() -> None:
    loaded = native.load()
    assert native._digest_of(loaded.path) == native.Sources.beside(Path(native.__file__).parents[1]).digest()
    assert native.load() is loaded
