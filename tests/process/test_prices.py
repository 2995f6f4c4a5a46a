# SPDX-License-Identifier: MIT
"""What links cost is assumed until members have measured it, and then the same for all of them."""

from __future__ import annotations

import itertools
from typing import TypeVar

import numpy as np
import pytest

import pccl
from pccl import Algorithm, Collective
from tests.process.local import Local

pytestmark = pytest.mark.process

T = TypeVar("T")

COUNTS = (1, 300, 40_000, 2_000_000)


def exchange(comm: pccl.Communicator) -> list[Algorithm]:
    """All reduces of several sizes: by which algorithm each of them went."""
    chosen = []
    for count in COUNTS:
        x = np.full(count, comm.rank + 1, np.int32)
        chosen.append(comm.all_reduce(x).algorithm)
        assert (x == sum(range(1, comm.world_size + 1))).all()
    return chosen


def explain(comm: pccl.Communicator) -> list[str]:
    return [comm.explain_call(Collective.ALL_REDUCE, np.zeros(count)) for count in COUNTS]


def one(said: list[T]) -> T:
    """What all members say."""
    assert said == said[:1] * len(said)
    return said[0]


def prices(local: Local) -> str:
    """What all members say of them."""
    said: str = one(local.all(explain))[0].rpartition("; at ")[2]
    return said.partition("; in full it takes ")[0]


def optimize(local: Local) -> None:
    local.all(lambda comm: comm.optimize_topology())


def test_members_measure_their_links_and_choose_alike() -> None:
    with Local(3, shm="off") as local:
        assert prices(local).endswith("a link (assumed)")
        one(local.all(exchange))
        optimize(local)
        assert prices(local).endswith("measured)")
        one(local.all(exchange))


def test_what_nobody_can_measure_stays_assumed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two members on one host and two on another, as far as they know: those of one share memory."""
    spread = itertools.cycle((1, 2))
    monkeypatch.setattr("pccl.system.host_id", lambda: next(spread))
    with Local(4) as local:
        one(local.all(exchange))
        optimize(local)
        inside, between = prices(local).split(", ")
        assert inside.endswith("inside a host (assumed)")
        assert between.endswith("measured)")
        one(local.all(exchange))


def test_where_nothing_was_measured_there_is_no_new_epoch() -> None:
    with Local(2) as local:
        one(local.all(exchange))
        epoch = one(local.all(lambda comm: comm.epoch))
        optimize(local)
        assert one(local.all(lambda comm: comm.epoch)) == epoch
        assert prices(local).endswith("(assumed)")
