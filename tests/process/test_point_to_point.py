# SPDX-License-Identifier: MIT
"""What one member sends to another through the Python API: values, order, any source, batches, what is refused or told
to both; and members that are killed in the middle of a message."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pccl
from pccl import DataType, Recv, Send
from pccl.enums import TORCH_ONLY
from pccl.fleet import Line
from pccl.stress.relay import Relay
from tests.process.harness import Run, join
from tests.process.local import Local

pytestmark = pytest.mark.process

Array = np.ndarray[Any, Any]
Call = Callable[[pccl.Communicator], object]

COUNTS = (0, 1, 20_000, 300_000)
NOWHERE: Call = lambda comm: None  # noqa: E731 - as the others, which it stands among


def own(rank: int, count: int, dtype: str = "int64") -> Array:
    """Element i of rank r is 100 r + i."""
    return (100 * rank + np.arange(count)).astype(dtype)


def test_values_of_every_length_come_whole_and_say_from_whom() -> None:
    def sends(comm: pccl.Communicator) -> None:
        for count in COUNTS:
            info = comm.send(own(0, count), 1)
            assert (info.peer, info.tx_bytes, info.rx_bytes, info.world_size) == (1, 8 * count, 0, 3)

    def receives(comm: pccl.Communicator) -> None:
        for index, count in enumerate(COUNTS):
            x = np.full(count, -1, "int64")
            info = comm.recv(x, 0 if index % 2 else None)
            assert np.array_equal(x, own(0, count))
            assert (info.peer, info.rx_bytes, info.rank) == (0, 8 * count, 1)

    with Local(3) as local:
        local.each([sends, receives, NOWHERE])


@pytest.mark.parametrize("kind", list(DataType))
def test_every_dtype_is_moved_as_it_is(kind: DataType) -> None:
    torch = pytest.importorskip("torch")
    pattern = torch.arange(3 * 16, dtype=torch.uint8) % (2 if kind == DataType.BOOL else 251)
    sent = pattern.view(kind.to_torch_dtype()).reshape(3, -1)

    def receives(comm: pccl.Communicator) -> Any:
        x = torch.zeros_like(sent)
        comm.recv(x if kind in TORCH_ONLY else x.numpy(), 0)
        return x

    with Local(2) as local:
        got = local.each([lambda comm: comm.send(sent, 1), receives])[1]
    assert torch.equal(got.view(torch.uint8), sent.view(torch.uint8))


def test_tags_in_any_order_and_hundreds_in_flight() -> None:
    """Ten messages under each of twenty tags; received in another order, and in order under each tag."""

    def sends(comm: pccl.Communicator) -> None:
        handles = [comm.send_async(own(tag, 500 + turn), 1, tag=tag) for turn in range(10) for tag in range(20)]
        for handle in handles:
            handle.wait()

    def receives(comm: pccl.Communicator) -> None:
        arrays = {(tag, turn): np.zeros(500 + turn, "int64") for tag in reversed(range(20)) for turn in range(10)}
        handles = [comm.recv_async(x, 0, tag=tag) for (tag, _), x in arrays.items()]
        for handle in handles:
            handle.wait()
        assert all(np.array_equal(x, own(tag, 500 + turn)) for (tag, turn), x in arrays.items())

    with Local(2) as local:
        local.each([sends, receives])


def test_from_any_source_each_message_comes_once_and_in_its_senders_order() -> None:
    def sends(comm: pccl.Communicator) -> None:
        for turn in range(20):
            comm.send(np.array([comm.rank, turn]), 0, tag=7)

    def receives(comm: pccl.Communicator) -> None:
        turns: dict[int, list[int]] = {1: [], 2: [], 3: []}
        for _ in range(60):
            x = np.zeros(2, "int64")
            info = comm.recv(x, tag=7)
            assert info.peer == x[0]
            turns[info.peer].append(int(x[1]))
        assert turns == {rank: list(range(20)) for rank in (1, 2, 3)}

    with Local(4) as local:
        local.each([receives, sends, sends, sends])


def test_a_batch_goes_around_the_ring_and_meets_collectives_of_its_tag() -> None:
    def around(comm: pccl.Communicator) -> None:
        size, rank = comm.world_size, comm.rank
        for count in COUNTS:
            x, total = np.zeros(count, "int64"), np.ones(1)
            reduction = comm.all_reduce_async(total)
            infos = comm.batch_send_recv([Send(own(rank, count), (rank + 1) % size), Recv(x, (rank - 1) % size)])
            assert [it.peer for it in infos] == [(rank + 1) % size, (rank - 1) % size]
            assert np.array_equal(x, own((rank - 1) % size, count))
            reduction.wait()
            assert total[0] == size

    async def awaited(comm: pccl.Communicator) -> None:
        x = np.zeros(5, "int64")
        there, back = comm.batch_send_recv_async([Send(own(comm.rank, 5), 1 - comm.rank), Recv(x, tag=0)])
        await asyncio.gather(there, back)
        assert np.array_equal(x, own(1 - comm.rank, 5))

    with Local(3) as local:
        local.all(around)
    with Local(2) as local:
        local.all(lambda comm: asyncio.run(awaited(comm)))


def test_steps_of_sends_are_settled_by_the_commit() -> None:
    def sends(comm: pccl.Communicator) -> None:
        assert comm.send(own(0, 9), 1).tx_bytes == 72  # it has left; nobody receives yet
        comm.barrier(tag=1)
        comm.commit()

    def receives(comm: pccl.Communicator) -> None:
        comm.barrier(tag=1)
        x = np.zeros(9, "int64")
        comm.recv(x)
        comm.commit()
        assert np.array_equal(x, own(0, 9))

    with Local(2, commit="deferred") as local:
        local.each([sends, receives])


def test_both_sides_are_told_what_differs() -> None:
    calls: list[tuple[Call, Call, str, str]] = [
        (lambda comm: comm.send(own(0, 8), 1), lambda comm: comm.recv(own(0, 9), 0), "int64[8]", "int64[9]"),
        (lambda comm: comm.send(own(0, 8), 1), lambda comm: comm.recv(own(0, 8, "int32")), "int64[8]", "int32[8]"),
    ]
    with Local(3) as local:
        for sends, receives, sent, received in calls:
            for text in Local.refused(_Two(local), [sends, receives], pccl.CollectiveMismatch):
                assert f"rank 0 called send({sent})" in text
                assert f"rank 1 called recv({received})" in text
        assert local.all(lambda comm: comm.barrier().world_size) == [3, 3, 3]


class _Two:
    """The first two members of a run."""

    def __init__(self, local: Local) -> None:
        self.comms, self.each = local.comms[:2], local.each


def test_wrong_arguments_are_refused_before_anything_is_sent() -> None:
    def wrong(comm: pccl.Communicator) -> None:
        x, table = own(0, 4), np.zeros((4, 4))
        refused: list[tuple[Call, str]] = [
            (lambda comm: comm.send(table[:, 1], 1 - comm.rank), "not C-contiguous"),
            (lambda comm: comm.recv(table.T, 1 - comm.rank), "not C-contiguous"),
            (lambda comm: comm.recv(np.frombuffer(b"12345678"), None), "read-only"),
            (lambda comm: comm.send(x, comm.rank), "which is this peer itself"),
            (lambda comm: comm.recv(x, comm.rank), "which is this peer itself"),
            (lambda comm: comm.send(x, 2), "to must be a whole number from 0 to 1, not 2"),
            (lambda comm: comm.send(x, None), "to must be a whole number"),  # type: ignore[arg-type]
            (lambda comm: comm.recv(x, -1), "source must be a whole number"),
            (lambda comm: comm.send(x, 1 - comm.rank, tag=-1), "tag must be"),
            (lambda comm: comm.batch_send_recv([Recv(x), Send(x, 1 - comm.rank)]), "overlap"),
            (lambda comm: comm.batch_send_recv([x]), "a batch holds Send and Recv"),  # type: ignore[list-item]
        ]
        for call, complaint in refused:
            with pytest.raises(ValueError, match=complaint):
                call(comm)
        with pytest.raises(pccl.PeerLost, match="call again"):
            comm.send(x, 1 - comm.rank, epoch=comm.epoch + 5)
        comm.barrier()

    with Local(2) as local:
        local.all(wrong)


def test_a_receive_that_nothing_comes_for_ends_alone() -> None:
    def waits(comm: pccl.Communicator) -> None:
        epoch = comm.epoch
        with pytest.raises(pccl.OperationTimeout, match=r"from any rank .* nothing came for 50 ms"):
            comm.recv(own(0, 4), timeout=0.05)
        comm.barrier()
        assert comm.epoch == epoch

    with Local(2) as local:
        local.each([waits, lambda comm: comm.barrier()])


# ---------------------------------------------------------------------------------------------- deaths

COUNT = 1 << 20


def members(comm: pccl.Communicator, number: int) -> list[int]:
    """Who is there, by rank; asked until all survivors have answered."""
    while True:
        size = comm.world_size
        found = np.zeros(size, "int64")
        try:
            comm.all_gather(np.array([number]), found, tag=5)
        except (pccl.PeerLost, pccl.InvalidArgument):
            continue
        return [int(it) for it in found]


def exchanging(line: Line, address: str, options: str, number: str) -> None:
    """Number 0 sends to number 1 until both have succeeded or one is gone; number 2 waits for the end of the epoch.
    Then all ask who is left."""
    me = int(number)
    comm = join(address, 3, **ast.literal_eval(options))
    there = members(comm, me)
    line.send(kind="ready")
    assert line.receive()["kind"] == "go"
    x, attempts = own(0, COUNT) if me == 0 else np.zeros(COUNT, "int64"), []
    while {0, 1} <= set(there) and "succeeded" not in attempts and (me < 2 or not attempts):
        try:
            if me == 0:
                comm.send(x, there.index(1))
            elif me == 1:
                comm.recv(x, there.index(0) if len(there) == 3 else None)
            else:
                comm.barrier(tag=9)
            attempts.append("succeeded")
        except pccl.PeerLost as failure:
            attempts.append("lost")
            line.send(kind="lost", text=str(failure))
        there = members(comm, me)
    line.send(kind="outcome", attempts=attempts, good=bool(np.array_equal(x, own(0, COUNT))))
    line.receive()


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_member_killed_in_the_middle_of_a_message(tmp_path: Path, victim: int) -> None:
    """Of the two, both succeed or both fail, and retries meet; who loses the other one is told."""
    relay = Relay()
    with Run(tmp_path) as run:
        links = [relay.before_peer() for _ in range(3)]
        peers = [
            run.peer(exchanging, repr({"advertise": link.address, "shm": "off"}), str(number))
            for number, link in enumerate(links)
        ]
        for peer in peers:
            run.expect(peer, "ready")
        relay.at(COUNT * 2, peers[victim].kill)
        for peer in peers:
            peer.tell(kind="go")
        outcomes = {n: run.next_of(peer, "outcome") for n, peer in enumerate(peers) if n != victim}
    relay.close()
    if victim == 2:
        assert outcomes[0]["attempts"] == outcomes[1]["attempts"]
    if victim != 0:
        assert outcomes[0]["attempts"][-1] == ("lost" if victim == 1 else "succeeded")
    if victim != 1:
        assert outcomes[1]["good"] == (outcomes[1]["attempts"][-1] == "succeeded")
