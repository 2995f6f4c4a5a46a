# SPDX-License-Identifier: MIT
"""Operations that are repeated, made anew for another group, or take another way, in a group without bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pccl
from pccl import InvalidArgument, PeerLost, ReduceInfo, TooFewPeers, Unsupported
from pccl.stress import values
from pccl.stress.operation import Operation
from pccl.stress.program import Task
from pccl.stress.values import SLOTS
from pccl.stress.workload import FILL, Memory

NUMBER, STEP, INDEX = 5, 3, 2
End = Callable[["Group"], ReduceInfo]


class Group:
    """As a Communicator of one member that is believed to be several. Calls end as the script says, in turn; each is
    kept with its arguments. One that `is_late` comes when the group for which it was made is no more."""

    def __init__(self, *script: End, size: int = 3) -> None:
        self.epoch, self.rank, self.group_world_size = 7, 0, size
        self.script = list(script)
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.is_late = False

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def start(*arguments: Any, **options: Any) -> Pending:
            self.calls.append((name.removesuffix("_async"), arguments, options))
            if self.is_late:
                self.is_late = False
                self.shrink()
            if options.get("epoch", self.epoch) != self.epoch:
                raise PeerLost("the group changed")
            return Pending(self)

        def call(*arguments: Any, **options: Any) -> ReduceInfo:
            return start(*arguments, **options).wait()

        return start if name.endswith("_async") else call

    def shrink(self) -> None:
        """One is gone."""
        self.epoch, self.group_world_size = self.epoch + 1, self.group_world_size - 1


class Pending:
    """As a Handle."""

    def __init__(self, group: Group) -> None:
        self._group = group

    def wait(self) -> ReduceInfo:
        """As the script says."""
        return self._group.script.pop(0)(self._group)


def good(group: Group) -> ReduceInfo:
    """As if all others had given nothing."""
    return ReduceInfo(group.group_world_size, 0, 0, group.rank, group.epoch, 0)


def lost(group: Group) -> ReduceInfo:
    group.shrink()
    raise PeerLost("one is gone")


def refused(group: Group) -> ReduceInfo:
    raise Unsupported("links are down")


def made(group: Group, collective: str, **more: Any) -> tuple[Operation, list[str]]:
    told: list[str] = []
    task = Task(collective, 6 * 4 * (SLOTS + 1), **more)
    operation = Operation(
        group,  # type: ignore[arg-type]
        task,
        NUMBER,
        STEP,
        INDEX,
        Memory(),
        lambda index, why: told.append(f"{index}: {why}"),
    )
    return operation, told


def test_the_same_arrays_serve_again_where_no_rank_or_part_has_a_meaning() -> None:
    group = Group(lost, good)
    operation, told = made(group, "all_reduce", in_place=True)
    with pytest.raises(PeerLost):
        operation.start().wait()
    assert told == ["2: one is gone"]
    assert operation.start().wait().world_size == 2
    (first, before, options), (second, after, _) = group.calls
    assert first == second == "all_reduce"
    assert options == {"tag": INDEX}
    assert before[0] is after[0]
    assert operation.report()["members"] == [NUMBER]
    assert operation.faults == []


def test_arrays_are_made_for_the_group_that_is_left() -> None:
    group = Group(lost, good)
    operation, _ = made(group, "all_gather")
    with pytest.raises(PeerLost):
        operation.start().wait()
    operation.start().wait()
    lengths = [len(recv) for _, (_, recv), _ in group.calls]
    assert lengths == [3 * 2 * (SLOTS + 1), 2 * 3 * (SLOTS + 1)]


def test_a_call_for_a_group_that_is_no_more_is_made_again() -> None:
    group = Group(good)
    group.is_late = True
    operation, told = made(group, "all_gather")
    with pytest.raises(PeerLost):
        operation.start()
    operation.start().wait()
    assert [len(recv) for _, (_, recv), _ in group.calls] == [6 * (SLOTS + 1)] * 2
    assert [len(send) for _, (send, _), _ in group.calls] == [2 * (SLOTS + 1), 3 * (SLOTS + 1)]
    assert [options["epoch"] for *_, options in group.calls] == [7, 8]
    assert told == []


@pytest.mark.parametrize("failure", [InvalidArgument("no"), TooFewPeers("alone")])
def test_other_failures_are_the_callers(failure: pccl.PCCLError) -> None:
    def fail(group: Group) -> ReduceInfo:
        raise failure

    operation, told = made(Group(fail), "all_reduce")
    with pytest.raises(type(failure)):
        operation.start().wait()
    assert told == []


def test_where_links_are_down_a_broadcast_takes_its_place_in_that_epoch() -> None:
    group = Group(refused, good)
    operation, told = made(group, "all_to_all_v", dtype="int64")
    operation.start().wait()
    (first, *_), (second, (x, root), options) = group.calls
    assert (first, second, root) == ("all_to_all_v", "broadcast", 0)
    assert (options["epoch"], options["tag"]) == (7, INDEX)
    assert values.is_contribution(x, NUMBER, STEP, INDEX)
    said = operation.report()
    assert (said["collective"], said["members"], said["source"]) == ("broadcast", None, [NUMBER])
    assert told == operation.faults == []


def test_in_the_next_epoch_it_is_tried_as_it_was_meant() -> None:
    group = Group(refused, lost, good)
    operation, told = made(group, "scatter_v")
    with pytest.raises(PeerLost):
        operation.start().wait()
    group.group_world_size = 3
    operation.start().wait()
    assert [name for name, *_ in group.calls] == ["scatter_v", "broadcast", "scatter_v"]
    assert told == ["2: one is gone"]


def test_nobody_goes_another_way_in_an_epoch_that_did_not_refuse() -> None:
    def late(group: Group) -> ReduceInfo:
        group.shrink()
        raise Unsupported("links were down")

    group = Group(late, good)
    operation, told = made(group, "all_reduce", deterministic=True)
    with pytest.raises(PeerLost):
        operation.start().wait()
    assert told == ["2: epoch 7, in which links were missing, is over"]
    operation.start().wait()
    assert [name for name, *_ in group.calls] == ["all_reduce", "all_reduce"]
    assert group.calls[1][2] == {"tag": INDEX, "deterministic": True}


def test_what_went_wrong_is_said() -> None:
    def spoil(group: Group) -> ReduceInfo:
        group.calls[-1][1][0][-1] += 1
        raise PeerLost("one is gone")

    operation, _ = made(Group(spoil), "all_reduce", in_place=True)
    with pytest.raises(PeerLost):
        operation.start().wait()
    assert operation.faults == ["tensor 2 (all_reduce): the input did not survive a failure"]

    def empty(group: Group) -> ReduceInfo:
        group.calls[-1][1][0][0] = 9
        return good(group)

    operation, _ = made(Group(empty), "all_reduce")
    operation.start().wait()
    assert operation.report()["members"] is None
    assert operation.faults == [
        "tensor 2 (all_reduce): a contribution is in it twice, or none that is whole",
        "tensor 2 (all_reduce): the input has changed",
    ]


def test_memory_is_used_again_and_what_nobody_wrote_to_shows() -> None:
    memory = Memory()
    first = memory.output(1000, "float64")
    first[:] = 1
    again = memory.output(500, "int32")
    assert np.shares_memory(first, again)
    assert (again.view(np.uint8) == FILL).all()
    assert not np.shares_memory(memory.input(10, "int8"), again)
    assert len(memory.output(5000, "uint32")) == 5000
