# SPDX-License-Identifier: MIT
"""Collectives of Python objects among several members: right objects at the right rank, one outcome for all."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import pccl
from tests.process.local import Local, at_once, close, joined

pytestmark = pytest.mark.process

VALUES: list[Any] = [None, {}, "", b"", 0, [1, 2.5, ("a", b"b")], {"lr": 0.1, 7: [True, None]}]


def own(rank: int) -> dict[str, Any]:
    """Tells whose it is, in another size on each rank."""
    return {"rank": rank, "name": "x" * 100 * rank, "shape": (rank, 2)}


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("commit", ["each", "deferred"])
def test_every_call_gives_each_rank_what_is_its_own(size: int, commit: str) -> None:
    """B18, B86: every root, objects of any size, also none."""

    def call(comm: pccl.Communicator) -> None:
        rank, everyone = comm.rank, [own(r) for r in range(size)]
        for root in range(size):
            assert comm.broadcast_object(own(rank), root) == own(root)
            assert comm.gather_object(own(rank), root) == (everyone if rank == root else None)
            assert comm.scatter_object(everyone if rank == root else None, root) == own(rank)
        assert comm.all_gather_object(own(rank)) == everyone
        for value in VALUES:
            assert comm.broadcast_object(value if rank == size - 1 else None, size - 1) == value
            assert comm.all_gather_object(value) == [value] * size
        if commit == "deferred":
            comm.commit()

    with Local(size, commit=commit) as local:
        local.all(call)


def test_fifty_megabytes() -> None:
    """B86: from one to all, and beside an empty one by every call; by default an object may have 1 GiB."""
    large = {"weights": bytes(range(256)) * 4096 * 50}

    def call(comm: pccl.Communicator) -> None:
        assert comm.broadcast_object(large if comm.rank == 1 else None, 1) == large
        each = [{}, large, 3]
        assert comm.all_gather_object(each[comm.rank]) == each
        assert comm.gather_object(each[comm.rank], 2) == (each if comm.rank == 2 else None)
        assert comm.scatter_object(each, 0) == each[comm.rank]

    with Local(3) as local:
        local.all(call)


def test_ranks_are_those_of_the_group() -> None:
    """B86: two groups of one run, whose members have other places in the run than in their groups."""
    with pccl.MasterNode("127.0.0.1:0") as node:
        node.run()
        comms = joined(node.address, [0, 7, 0, 7], 2)

        def call(comm: pccl.Communicator) -> bool:
            own, other = ("rank", comm.rank), ("rank", 1 - comm.rank)
            assert comm.scatter_object([("rank", r) for r in range(2)], 1) == own
            assert comm.broadcast_object(own, 1) == ("rank", 1)
            assert comm.gather_object(own, 1) == ([other, own] if comm.rank == 1 else None)
            return comm.all_gather_object(own) == [("rank", 0), ("rank", 1)]

        assert all(at_once([partial(call, comm) for comm in comms]))
        close(comms)


def outcomes(local: Local, calls: list[Callable[[pccl.Communicator], object]]) -> list[str]:
    """What each raised: class and text; then that all is well."""

    def caught(call: Callable[[pccl.Communicator], object]) -> Callable[[pccl.Communicator], str]:
        def act(comm: pccl.Communicator) -> str:
            with pytest.raises(pccl.PCCLError) as failure:
                call(comm)
            return f"{type(failure.value).__name__}: {failure.value}"

        return act

    found = local.each([caught(call) for call in calls])
    assert local.all(lambda comm: comm.all_gather_object(comm.rank)) == [list(range(len(calls)))] * len(calls)
    return found


def test_what_one_cannot_pack_is_an_error_on_all() -> None:
    with Local(3) as local:
        for call in (
            lambda comm: comm.all_gather_object({"a": {1}} if comm.rank == 1 else "fine"),
            lambda comm: comm.gather_object({"a": {1}} if comm.rank == 1 else "fine", 2),
            lambda comm: comm.broadcast_object({"a": {1}}, 1),
            lambda comm: comm.scatter_object([1, {"a": {1}}, 3], 1),
        ):
            first, second, third = outcomes(local, [call] * 3)
            assert second == "InvalidArgument: value['a'] is a set; plain data only, or pickle=True"
            assert first == third
            assert first.startswith("ObjectError: rank 1 has nothing to hand over: value['a'] is a set")


def test_what_is_too_large_for_one_is_an_error_on_all() -> None:
    with Local(3) as local:
        limits = [1000, 50, 1000]
        texts = outcomes(local, [lambda comm: comm.all_gather_object("x" * 60, max_bytes=limits[comm.rank])] * 3)
        assert texts[1].startswith("InvalidArgument: value takes 62 bytes, and max_bytes is 50")
        assert texts[0] == texts[2]
        texts = outcomes(local, [lambda comm: comm.broadcast_object("x" * 60, 2, max_bytes=limits[comm.rank])] * 3)
        assert set(texts) == {"ObjectError: rank 2 has an object of 62 bytes, rank 1 takes 50 at most"}


class Bomb:
    """Goes off when it is unpickled."""

    went_off = False

    def __reduce__(self) -> tuple[Any, ...]:
        return (setattr, (Bomb, "went_off", True))


def test_nothing_is_unpickled_unless_all_ask_for_it() -> None:
    with Local(3) as local:
        asks = [False, True, False]
        for call in (
            lambda comm: comm.broadcast_object(Bomb() if comm.rank == 1 else None, 1, pickle=asks[comm.rank]),
            lambda comm: comm.all_gather_object(Bomb() if comm.rank == 1 else 0, pickle=asks[comm.rank]),
            lambda comm: comm.scatter_object([Bomb()] * 3, 1, pickle=asks[comm.rank]),
            lambda comm: comm.gather_object(Bomb() if comm.rank == 1 else 0, 0, pickle=asks[comm.rank]),
        ):
            texts = outcomes(local, [call] * 3)
            assert len(set(texts)) == 1
            assert texts[0].startswith("CollectiveMismatch: rank 0 calls ")
            assert "(pickle" in texts[0]
        packed = pickle.dumps(Bomb())
        assert local.all(lambda comm: comm.broadcast_object(packed)) == [packed] * 3, "bytes are bytes"
        assert not Bomb.went_off
        array = np.arange(5)
        for found in local.all(lambda comm: comm.all_gather_object({"array": array * comm.rank}, pickle=True)):
            assert [it["array"].tolist() for it in found] == [[0] * 5, [0, 1, 2, 3, 4], [0, 2, 4, 6, 8]]


def test_calls_that_differ_are_a_mismatch_on_all() -> None:
    with Local(2) as local:
        calls: list[Callable[[pccl.Communicator], object]] = [
            lambda comm: comm.broadcast_object(1, 0),
            lambda comm: comm.gather_object(1, 0),
        ]
        assert len(set(texts := outcomes(local, calls))) == 1
        assert texts[0].startswith("CollectiveMismatch: rank 0 calls broadcast_object")
        assert len(set(outcomes(local, [lambda comm: comm.broadcast_object(1, comm.rank)] * 2))) == 1


def test_what_returns_at_once_comes_in_the_order_of_calls() -> None:
    """Many with one tag beside arrays of that tag, blocking ones in between, waited for from the last to the first; the
    value may be changed meanwhile."""

    def call(comm: pccl.Communicator) -> None:
        rank, size = comm.rank, comm.world_size
        jobs, handles = [], []
        for step in range(10):
            value = [step, rank]
            jobs.append(comm.all_gather_object_async(value))
            value.append("changed")
            handles.append(comm.all_reduce_async(np.full(3, rank), np.zeros(3, int)))
            if step % 4 == rank:
                jobs[-1].wait()
        assert comm.broadcast_object(rank, 1) == 1
        for step, job in reversed(list(enumerate(jobs))):
            assert job.wait() == [[step, r] for r in range(size)]
        for handle in handles:
            assert handle.wait().world_size == size

    with Local(3) as local:
        local.all(call)


def test_in_asyncio() -> None:
    def call(comm: pccl.Communicator) -> list[Any]:
        async def together() -> list[Any]:
            return await asyncio.gather(
                comm.all_gather_object_async(comm.rank),
                comm.broadcast_object_async("b", 1),
                comm.scatter_object_async(["a", "b"], 0, tag=5),
                comm.gather_object_async("g", 0, tag=6),
            )

        return asyncio.run(together())

    with Local(2) as local:
        assert local.all(call) == [[[0, 1], "b", "a", ["g", "g"]], [[0, 1], "b", "b", None]]


def test_arguments(comm_of_one: pccl.Communicator) -> None:
    comm = comm_of_one
    for name, text in (({"tag": -1}, "tag"), ({"timeout": 0}, "timeout"), ({"max_bytes": 0}, "max_bytes")):
        for form in (comm.broadcast_object, comm.broadcast_object_async):
            with pytest.raises(pccl.InvalidArgument, match=text):
                form(1, **name)
    with pytest.raises(pccl.InvalidArgument, match="pickle is True or False"):
        comm.all_gather_object(1, pickle=1)  # type: ignore[arg-type]
    with pytest.raises(pccl.InvalidArgument, match="root"):
        comm.gather_object(1, 5)
    with pytest.raises(pccl.PeerLost, match="call again"):
        comm.scatter_object([1], epoch=comm.epoch + 1)
    original = {"a": [1]}
    copy = comm.broadcast_object(original)
    assert copy == original
    assert copy is not original


@pytest.fixture
def comm_of_one() -> Any:
    with Local(1) as local:
        yield local.comms[0]
