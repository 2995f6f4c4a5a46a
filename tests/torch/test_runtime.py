# SPDX-License-Identifier: MIT
"""The life of what groups share: made again and again, forked, left in every way."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import pccl
from pccl.torch import Options, cause
from tests.torch.ranks import LIMIT_S, ROOT, Rank, Ranks

pytestmark = pytest.mark.process


def _usage() -> tuple[int, int]:
    gc.collect()
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


# ---------------------------------------------------------------------------------------------- again


def _tcp_store(rank: Rank, meeting: dist.Store) -> dist.TCPStore:
    """One for all ranks, served by rank 0."""
    if rank.rank == 0:
        served = dist.TCPStore("127.0.0.1", 0, rank.world, is_master=True, wait_for_workers=False)
        meeting.set("port", str(served.port))
        return served
    return dist.TCPStore("127.0.0.1", int(meeting.get("port")), rank.world, is_master=False)


def again_and_again(rank: Rank, count: int) -> None:
    """Through one store, as with torchrun, without a pause."""
    meeting = dist.FileStore(str(rank.folder / "meeting"), rank.world)
    store = _tcp_store(rank, meeting)
    usage = []
    for number in range(count):
        dist.init_process_group("pccl", store=store, rank=rank.rank, world_size=rank.world)
        x = torch.tensor([float(number)])
        work = dist.all_reduce(x, async_op=True)
        work.get_future().wait()
        if rank.rank == 1 and number % 10 == 0:
            dist.barrier()
        elif number % 10 == 0:
            dist.barrier(async_op=True)  # nobody waits for it
        dist.destroy_process_group()
        assert x.item() == rank.world * number
        if number in (5, count - 1):
            usage.append(_usage())
    meeting.set(f"{rank.rank} is done", "yes")
    meeting.wait([f"{it} is done" for it in range(rank.world)])  # the store's own connections count, too
    assert usage[0] == usage[1], usage


def test_groups_may_be_made_again_and_again(ranks: Ranks, form: str) -> None:
    """B63."""
    ranks.run(again_and_again, 2, form, 100)


def after_an_abort(rank: Rank) -> None:
    for number in range(3):
        rank.init(name=f"store {number}")
        x = torch.ones(4)
        dist.all_reduce(x)
        stuck = dist.all_reduce(x, async_op=True) if rank.rank == 0 else None
        if stuck is not None:
            dist.distributed_c10d._abort_process_group()
            with pytest.raises(dist.DistBackendError) as raised:
                stuck.wait()
            assert isinstance(cause(raised.value), pccl.Aborted | pccl.Closed), raised.value
        else:
            with pytest.raises(dist.DistBackendError) as raised:
                dist.recv(x, 0)
            assert isinstance(cause(raised.value), pccl.PeerLost), raised.value
            dist.destroy_process_group()


def test_an_aborted_group_may_be_made_again(ranks: Ranks, form: str) -> None:
    ranks.run(after_an_abort, 2, form)


def destroyed_in_the_middle(rank: Rank) -> None:
    """What ended well on one rank does so on all, however soon that one leaves."""
    for number in range(20):
        with rank.group(name=f"store {number}"):
            x = torch.full((50_000,), float(rank.rank))
            dist.broadcast(x, 0)
        assert (x == 0).all()


def test_who_leaves_first_takes_nothing_from_others(ranks: Ranks, form: str) -> None:
    ranks.run(destroyed_in_the_middle, 3, form)


# ---------------------------------------------------------------------------------------------- never


def too_few_ranks(rank: Rank) -> str:
    with pytest.raises(dist.DistBackendError) as raised:
        dist.init_process_group(
            "pccl",
            store=dist.FileStore(str(rank.folder / "store"), 3),
            rank=rank.rank,
            world_size=3,
            timeout=timedelta(seconds=0.5),
        )
    assert isinstance(cause(raised.value), pccl.OperationTimeout | pccl.MasterLost)
    return str(raised.value)


def test_who_waits_for_ranks_in_vain_is_told_so(ranks: Ranks, form: str) -> None:
    texts = ranks.run(too_few_ranks, 2, form)
    assert "2 of 3 are here" in texts[0]


def given_master(rank: Rank, address: str) -> None:
    with rank.group(pg_options=Options(master=address)):
        x = torch.tensor([float(rank.rank)])
        dist.all_reduce(x)
        assert x.item() == 1.0


def test_a_given_master_needs_to_know_how_many_ranks_there_are(ranks: Ranks, form: str) -> None:
    with pccl.MasterNode("127.0.0.1:0", founders=2) as node:
        node.run()
        ranks.run(given_master, 2, form, node.address)
        ranks.run(given_master, 2, form, node.address)
    with pccl.MasterNode("127.0.0.1:0") as node:
        node.run()
        statuses, folder = ranks.end_of(given_master, 1, form, node.address)
        assert statuses == [0] or (folder / "outcome.0").exists()


# ---------------------------------------------------------------------------------------------- forks


def forks(rank: Rank) -> None:
    with rank.group():
        x = torch.ones(1)
        dist.all_reduce(x)
        child = os.fork()
        if child == 0:
            try:
                dist.all_reduce(x)
            except (dist.DistBackendError, pccl.Closed):
                os._exit(7)
            finally:
                os._exit(8)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        child = os.fork()
        if child == 0:
            dist.destroy_process_group()
            os._exit(9)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        for number in range(100):
            y = torch.full((3,), float(number))
            dist.all_reduce(y)
            assert y[0] == number * rank.world


def test_a_forked_child_is_refused_and_disturbs_nobody(ranks: Ranks, form: str) -> None:
    """B64."""
    ranks.run(forks, 2, form)


# ---------------------------------------------------------------------------------------------- exits

PROGRAM = """
import sys, torch, torch.distributed as dist
import pccl.torch
rank = int(sys.argv[2])
dist.init_process_group("pccl", init_method="file://" + sys.argv[1], rank=rank, world_size=2)
x = torch.ones(1000)
dist.all_reduce(x)
"""
ENDS = {
    "well": ("dist.all_reduce(x); assert x[0] == 4", 0),
    "unfinished": ("works = [dist.all_reduce(x.clone(), async_op=True) for _ in range(5)] if rank == 0 else []", 0),
    "futures": ("works = [dist.all_reduce(x.clone(), async_op=True).get_future() for _ in range(5 * (1 - rank))]", 0),
    "sys.exit": ("sys.exit(3)", 3),
    "exception": ("raise ValueError('enough')", 1),
}
EXIT_LIMIT_S = 5.0


@pytest.mark.alone
@pytest.mark.parametrize("how", ENDS)
def test_programs_that_destroy_nothing_keep_their_exit_code(tmp_path: Path, form: str, how: str) -> None:
    """B65. Both end so, each on its own; the time that imports take is not counted."""
    last, code = ENDS[how]
    program = PROGRAM + "print('ends', flush=True); sys.stdin.readline()\n" + last + "\n"
    environment = {**os.environ, "PCCL_TORCH_BACKEND": form, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    children = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", program, str(tmp_path / "store"), str(rank)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for it in children:
        assert it.stdout is not None
        assert it.stdout.readline() == "ends\n", it.communicate()
    begun = time.monotonic()
    for it in children:  # only now: who raises does not wait for those that are behind
        assert it.stdin is not None
        it.stdin.write("\n")
        it.stdin.flush()
    for it in children:
        _, errors = it.communicate(timeout=LIMIT_S)
        assert it.returncode == code, errors
    assert time.monotonic() - begun < EXIT_LIMIT_S


def _reduce_for_ever(x: torch.Tensor) -> None:
    while True:
        dist.all_reduce(x)


def a_rank_dies(rank: Rank, which: int) -> str:
    rank.init(timeout=timedelta(minutes=5))
    x = torch.ones(1000)
    dist.all_reduce(x)
    if rank.rank == which:
        os.kill(os.getpid(), signal.SIGKILL)
    begun = time.monotonic()
    with pytest.raises(dist.DistBackendError) as raised:
        _reduce_for_ever(x)
    assert isinstance(cause(raised.value), pccl.PeerLost | pccl.MasterLost)
    assert time.monotonic() - begun < 5
    with pytest.raises(dist.DistBackendError, match="this process group has ended: destroy it and make another"):
        dist.barrier()
    dist.destroy_process_group()
    return str(raised.value)


@pytest.mark.parametrize("which", [0, 1])
def test_the_death_of_a_rank_is_an_error_for_all_others(ranks: Ranks, form: str, which: int) -> None:
    """Also of the one that carries the master."""
    statuses, folder = ranks.end_of(a_rank_dies, 3, form, which)
    expected = [signal.SIGKILL if it == which else 0 for it in range(3)]
    assert statuses == expected, (folder / "log").read_text()


def threads_of_groups(rank: Rank) -> None:
    with rank.group():
        groups = [dist.new_group() for _ in range(4)]
        failures: list[BaseException] = []

        def work(number: int) -> None:
            try:
                for step in range(100):
                    x = torch.full((64,), float(number * 1000 + step))
                    dist.all_reduce(x, group=groups[number])
                    assert (x == rank.world * (number * 1000 + step)).all()
            except BaseException as failure:
                failures.append(failure)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(len(groups))]
        for it in threads:
            it.start()
        for it in threads:
            it.join()
        assert not failures, failures


def test_threads_may_have_groups_of_their_own(ranks: Ranks, form: str) -> None:
    """B71."""
    ranks.run(threads_of_groups, 2, form)
