# SPDX-License-Identifier: MIT
"""Members that call different things under one name: an error on all that names both, and the next call works."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

import pccl
from tests.process.local import Local

pytestmark = pytest.mark.process

Call = Callable[[pccl.Communicator], object]


def reduces(comm: pccl.Communicator) -> bool:
    comm.barrier()
    x = np.full(5, comm.rank + 1.0)
    comm.all_reduce(x)
    return bool((x == sum(range(1, comm.group_world_size + 1))).all())


def mismatched(calls: list[Call]) -> list[str]:
    """The texts of CollectiveMismatch on all members, by rank. Afterwards everything works."""
    with Local(len(calls)) as local:
        texts = local.refused(calls, pccl.CollectiveMismatch)
        assert all(local.all(reduces))
    return texts


@pytest.mark.parametrize("odd", [0, 2])
def test_another_count_on_one_of_four(odd: int) -> None:
    """B22: 12 elements against 1. Every rank is told of both sizes and of the ranks."""
    sizes = [12 if rank == odd else 1 for rank in range(4)]

    def call(comm: pccl.Communicator) -> object:
        return comm.all_reduce(np.ones(sizes[comm.rank], np.float32))

    for text in mismatched([call] * 4):
        assert "float32[12]" in text
        assert "float32[1]" in text
        assert f"rank {odd}" in text
        assert text.count("rank ") >= 2


X = np.ones(8, np.float32)


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        (lambda comm: comm.all_reduce(X.copy()), lambda comm: comm.broadcast(X.copy()), ("all_reduce", "broadcast")),
        (
            lambda comm: comm.all_reduce(X.copy(), op=pccl.ReduceOp.SUM),
            lambda comm: comm.all_reduce(X.copy(), op=pccl.ReduceOp.MAX),
            ("op=sum", "op=max"),
        ),
        (lambda comm: comm.broadcast(X.copy(), 0), lambda comm: comm.broadcast(X.copy(), 1), ("root=0", "root=1")),
    ],
)
def test_another_order_op_or_root(one: Call, other: Call, words: tuple[str, str]) -> None:
    """B24: the error names the calls, their number and both ranks."""
    calls: list[Call] = [one, other, one]
    with Local(len(calls)) as local:
        for turn in (calls, [other, one, other]):  # each makes both, in different order
            for text in local.refused(turn, pccl.CollectiveMismatch):
                assert all(word in text for word in words), text
                assert re.search(r"#\d+", text), text
                assert "rank 1" in text
                assert "rank 0" in text or "rank 2" in text
        assert all(local.all(reduces))


@pytest.mark.parametrize("collective", ["all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"])
def test_another_trailing_shape_on_one_of_four(collective: str) -> None:
    """B25: (4, 4) on three ranks, (4, 3) on the last: an error on all four, and the inputs are what they were."""

    def call(comm: pccl.Communicator) -> None:
        block = np.ones((4, 3 if comm.rank == 3 else 4), np.float32)
        whole = np.full((4, *block.shape), 2, np.float32)
        send, recv = (block, whole) if collective.endswith("gather") else (whole, block)
        if collective == "all_to_all":
            recv = None
        try:
            getattr(comm, collective)(send, recv)
        finally:
            assert (send == send.flat[0]).all(), "the input has changed"

    for text in mismatched([call] * 4):
        assert "[16]" in text
        assert "[12]" in text
        assert "rank 3" in text
