# SPDX-License-Identifier: MIT
"""Arguments become operations, or are refused before anything is sent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pccl import (
    Algorithm,
    Collective,
    DataType,
    InvalidArgument,
    PeerLost,
    QuantizationAlgorithm,
    QuantizationOptions,
    Recv,
    ReduceDescriptor,
    ReduceOp,
    ReduceOpDescriptor,
    ReduceOperandDescriptor,
    Send,
    parts,
    request,
)
from pccl._native import NULL, address, constants

MODES = request.Modes.of(deferred=False, preserve_input=False)
PREFIXES = (Collective.SCAN, Collective.EXSCAN)
GROUP = request.Members(epoch=9, size=3, rank=0)


def test_modes_become_flags() -> None:
    assert request.Modes.of(deferred=False, preserve_input=True) == (0, 0, False)
    deferred = constants.PCCL_DEFERRED
    assert request.Modes.of(deferred=True, preserve_input=True) == (deferred, deferred, False)
    assert MODES == (constants.PCCL_DISCARD_INPUT, 0, False)


def test_only_what_reduces_is_deterministic() -> None:
    fixed, other = constants.PCCL_DETERMINISTIC, constants.PCCL_DISCARD_INPUT
    always = request.Modes.of(deferred=False, preserve_input=False, deterministic=True)
    assert (always.in_place, always.out_of_place) == (other, 0)
    for modes in (always.reducing(None), MODES.reducing(True)):
        assert (modes.in_place, modes.out_of_place) == (other | fixed, fixed)
    assert MODES.reducing(None) == MODES.reducing(False) == MODES
    assert always.reducing(False) == always
    with pytest.raises(InvalidArgument, match="deterministic is True or False"):
        MODES.reducing(1)  # type: ignore[arg-type]
    for kind in Collective:
        reduces = kind in (*PREFIXES, Collective.ALL_REDUCE, Collective.REDUCE, Collective.REDUCE_SCATTER)
        assert request.question(kind, None, 0, 0, None, always, GROUP).call.flags == (fixed if reduces else 0)


def test_a_priority_is_a_whole_number_within_bounds() -> None:
    one = request.barrier(0, None, MODES)
    assert one.call.priority == 0
    for priority in (-3, 3, np.int64(1)):
        request.prefer(one, priority)  # type: ignore[arg-type]
        assert one.call.priority == priority
    for wrong in (-4, 4, 0.5, None):
        with pytest.raises(InvalidArgument, match="priority must be a whole number from -3 to 3"):
            request.prefer(one, wrong)  # type: ignore[arg-type]


def test_all_reduce_in_place_and_out_of_place() -> None:
    x, y = np.ones(5, np.float32), np.zeros(5, np.float32)
    for recv in (None, x):
        one = request.all_reduce(x, recv, ReduceOp.AVG, 7, 0, 1.5, MODES).call
        assert one.input == one.output
        assert (one.collective, one.dtype, one.op) == (Collective.ALL_REDUCE, DataType.FLOAT32, ReduceOp.AVG)
        assert (one.count, one.tag, one.flags, one.timeout_ms) == (5, 7, constants.PCCL_DISCARD_INPUT, 1500)
    two = request.all_reduce(x, y, ReduceOp.SUM, 0, 0, None, MODES)
    assert two.call.input != two.call.output
    assert (two.call.flags, two.call.expected_epoch, two.call.timeout_ms) == (0, 0, 0)
    source, target = two.owner
    assert source.owner is x
    assert target.owner is y


def test_blocks_must_fit_the_world_they_are_checked_against() -> None:
    long, block = np.zeros(12, np.int32), np.zeros(4, np.int32)
    for one in (
        request.reduce_scatter(long, block, ReduceOp.SUM, 0, 0, None, MODES, GROUP),
        request.all_gather(block, long, 0, 0, None, MODES, GROUP),
        request.scatter(long, block, 0, 0, 0, None, MODES, GROUP),
    ):
        assert (one.call.count, one.call.expected_epoch, one.call.dtype) == (4, 9, DataType.INT32)
    for wrong in (np.zeros(13, np.int32), np.zeros(12, np.int64)):
        with pytest.raises(InvalidArgument, match=r"with 3 peers send must hold 3 times as many"):
            request.reduce_scatter(wrong, block, ReduceOp.SUM, 0, 0, None, MODES, GROUP)
        with pytest.raises(InvalidArgument, match=r"with 3 peers recv must hold 3 times as many"):
            request.all_gather(block, wrong, 0, 0, None, MODES, GROUP)


def test_a_group_is_that_of_one_epoch() -> None:
    assert GROUP.within(0) is GROUP.within(9) is GROUP.within(np.int64(9)) is GROUP
    for other in (8, 10):
        with pytest.raises(PeerLost, match=f"is in epoch 9 .3 members., not in {other}: call again") as caught:
            GROUP.within(other)
        assert caught.value.epoch == other
    for wrong in (-1, 2**64, 1.5, None):
        with pytest.raises(InvalidArgument, match="epoch must be"):
            GROUP.within(wrong)  # type: ignore[arg-type]
    assert GROUP.root(2) == 2
    for outside in (-1, 3, None):
        with pytest.raises(InvalidArgument, match="root must be a whole number from 0 to 2"):
            GROUP.root(outside)  # type: ignore[arg-type]


def test_operations_without_memory() -> None:
    barrier, commit = request.barrier(3, None, MODES).call, request.commit(2).call
    assert (barrier.collective, barrier.tag, barrier.input) == (Collective.BARRIER, 3, NULL)
    assert (commit.collective, commit.timeout_ms, commit.flags) == (Collective.COMMIT, 2000, 0)


def test_broadcast_reads_and_writes_one_array() -> None:
    x = np.ones((2, 2))
    one = request.broadcast(x, 2, 0, 0, None, MODES, GROUP).call
    assert (one.root, one.expected_epoch, one.count) == (2, 9, 4)
    assert one.input == one.output
    x.flags.writeable = False
    with pytest.raises(InvalidArgument, match="x is read-only"):
        request.broadcast(x, 0, 0, 0, None, MODES, GROUP)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"tag": -1}, "tag must be a whole number"),
        ({"tag": 2**63}, "tag must be a whole number"),
        ({"tag": 1.5}, "tag must be a whole number"),
        ({"timeout": 0}, "timeout must be a positive number"),
        ({"timeout": -1.0}, "timeout must be a positive number"),
        ({"timeout": float("nan")}, "timeout must be a positive number"),
        ({"timeout": 1e9}, "timeout must be a positive number"),
    ],
)
def test_numbers_out_of_range(arguments: dict[str, float], text: str) -> None:
    values = {"tag": 0, "timeout": None, **arguments}
    with pytest.raises(InvalidArgument, match=text):
        request.barrier(values["tag"], values["timeout"], MODES)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("op", "algorithm", "timeout", "text"),
    [
        ("median", 0, None, "op must be of ReduceOp"),
        (None, 0, None, "op must be of ReduceOp"),
        (0, "ring", None, "algorithm must be of Algorithm"),
        (0, 0, "soon", "timeout must be a positive number"),
    ],
)
def test_arguments_of_a_wrong_type(op: Any, algorithm: Any, timeout: Any, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        request.all_reduce(np.ones(3, np.float32), None, op, 0, algorithm, timeout, MODES)


NO_QUANTIZATION = QuantizationOptions(algorithm=QuantizationAlgorithm.NONE)


def descriptor(
    count: int = 3,
    tag: int = 5,
    dtype: DataType = DataType.FLOAT,
    options: QuantizationOptions = NO_QUANTIZATION,
) -> ReduceOpDescriptor:
    reduction = ReduceDescriptor(count, ReduceOp.MAX, tag, ReduceOperandDescriptor(dtype), options)
    return ReduceOpDescriptor.from_numpy(np.ones(3, np.float32), np.ones(3, np.float32), reduction)


def test_several_reductions_get_tags_of_their_own() -> None:
    arrays = [np.ones(count) for count in (1, 2, 3)]
    several = request.all_reduces([*arrays, descriptor(tag=50)], ReduceOp.SUM, 10, None, MODES)
    assert [one.call.tag for one in several] == [10, 11, 12, 50]
    assert [one.call.op for one in several] == [ReduceOp.SUM] * 3 + [ReduceOp.MAX]
    with pytest.raises(InvalidArgument, match="tags of their own"):
        request.all_reduces([*arrays, descriptor(tag=11)], ReduceOp.SUM, 10, None, MODES)
    with pytest.raises(InvalidArgument, match="nothing to reduce"):
        request.all_reduces([], ReduceOp.SUM, 0, None, MODES)


def test_descriptors_that_contradict_their_arrays() -> None:
    with pytest.raises(InvalidArgument, match="4 elements, its array has 3"):
        request.all_reduces([descriptor(count=4)], ReduceOp.SUM, 0, None, MODES)
    with pytest.raises(InvalidArgument, match="FLOAT64, but send holds FLOAT32"):
        request.all_reduces([descriptor(dtype=DataType.DOUBLE)], ReduceOp.SUM, 0, None, MODES)


def test_what_is_quantized_says_so() -> None:
    x = np.ones(3, np.float32)
    one = request.all_reduce(x, None, ReduceOp.SUM, 0, Algorithm.AUTO, None, MODES)
    assert request.quantize(one, None).call.quantization.format == constants.PCCL_EXACT
    none = QuantizationOptions(DataType.FLOAT, QuantizationAlgorithm.NONE)
    assert request.quantize(one, none).call.quantization.format == constants.PCCL_EXACT
    errors = np.ones(3, np.float32)
    request.quantize(one, QuantizationOptions("int4", block=64), errors)
    assert one.call.quantization.format == constants.PCCL_INT4_BLOCK
    assert one.call.quantization.block == 64
    assert address(one.call.errors) == errors.ctypes.data
    several = request.all_reduces([descriptor(options=QuantizationOptions())], ReduceOp.SUM, 0, None, MODES)
    assert several[0].call.quantization.format == constants.PCCL_UINT8_MIN_MAX


def test_quantization_that_does_not_fit() -> None:
    x = np.ones(3, np.float32)
    one = request.all_reduce(x, None, ReduceOp.SUM, 0, Algorithm.AUTO, None, MODES)
    wrong: Any = "int8"
    with pytest.raises(InvalidArgument, match="is a str, not a QuantizationOptions"):
        request.quantize(one, wrong)
    with pytest.raises(InvalidArgument, match="pass quantization_options, too"):
        request.quantize(one, None, x)
    with pytest.raises(InvalidArgument, match="array of 3 float32"):
        request.quantize(one, QuantizationOptions(), np.ones(4, np.float32))


def test_errors_are_as_long_as_what_is_passed() -> None:
    group, x = request.Members(1, 3, 1), np.ones(6, np.float32)
    one = request.reduce_scatter(x, x[:2], ReduceOp.SUM, 0, Algorithm.AUTO, None, MODES, group)
    request.quantize(one, QuantizationOptions(), np.ones(6, np.float32), group)
    uneven = parts.reduce_scatter(x, [1, 5, 0], np.ones(5, np.float32), ReduceOp.SUM, 0, None, MODES, group)
    request.quantize(uneven, QuantizationOptions(), np.ones(6, np.float32), group)
    gathered = parts.all_gather(x[:2], np.ones(6, np.float32), [3, 2, 1], 0, None, MODES, group)
    request.quantize(gathered, QuantizationOptions(), np.ones(2, np.float32), group)
    with pytest.raises(InvalidArgument, match="array of 2 float32"):
        request.quantize(gathered, QuantizationOptions(), x, group)
    alone = request.Members(1, 1, 0)
    uneven = parts.reduce_scatter(x, [6], np.ones(6, np.float32), ReduceOp.SUM, 0, None, MODES, alone)
    request.quantize(uneven, QuantizationOptions(), np.ones(6, np.float32), alone)


Place = tuple[int, int] | tuple[int, int, int, int]


def placed(*places: Place) -> list[Any]:
    """Of each (first, end) an array that is reduced in place; of four numbers, an input and a result."""
    memory = np.zeros(100, np.float32)
    items: list[Any] = []
    for tag, place in enumerate(places):
        send, recv = memory[place[0] : place[1]], memory[place[-2] : place[-1]]
        reduction = ReduceDescriptor(len(send), ReduceOp.SUM, tag, ReduceOperandDescriptor(DataType.FLOAT))
        items.append(ReduceOpDescriptor.from_numpy(send, recv, reduction))
    return items


@pytest.mark.parametrize(
    "places",
    [
        [(0, 50), (49, 99)],
        [(0, 50), (0, 50)],
        [(0, 10), (20, 30), (5, 25)],
        [(0, 50, 50, 100), (0, 100)],  # one reads where the other writes
        [(0, 20, 40, 60), (30, 50, 60, 80)],
        [(0, 90), (10, 20)],
    ],
)
def test_arrays_of_one_call_that_overlap_are_refused(places: list[Place]) -> None:
    with pytest.raises(InvalidArgument, match="overlap"):
        request.all_reduces(placed(*places), ReduceOp.SUM, 0, None, MODES)


@pytest.mark.parametrize(
    "places",
    [
        [(0, 50), (50, 100)],
        [(0, 20, 40, 60), (10, 30, 60, 80)],  # inputs may be shared
        [(0, 20, 40, 60), (0, 20, 60, 80), (0, 20, 80, 100)],
        [(60, 60), (0, 100)],
    ],
)
def test_arrays_of_one_call_that_touch_are_taken(places: list[Place]) -> None:
    assert len(request.all_reduces(placed(*places), ReduceOp.SUM, 0, None, MODES)) == len(places)


def test_what_goes_to_another_names_it_and_its_epoch() -> None:
    x = np.arange(5, dtype=np.int32)
    there = request.send(x, np.int64(2), 7, 2.0, MODES, GROUP).call  # type: ignore[arg-type]
    assert (there.collective, there.dtype, there.root, there.count) == (Collective.SEND, DataType.INT32, 2, 5)
    assert (there.tag, there.expected_epoch, there.timeout_ms, there.output) == (7, 9, 2000, NULL)
    back = request.recv(x, 1, 0, 0, None, MODES, GROUP).call
    assert (back.collective, back.dtype, back.root, back.count) == (Collective.RECV, DataType.INT32, 1, 5)
    assert (back.expected_epoch, back.input, back.flags) == (9, NULL, 0)
    any_source = request.recv(x, None, 0, 0, None, MODES, GROUP).call
    assert (any_source.root, any_source.expected_epoch) == (constants.PCCL_ANY_SOURCE, 0)
    assert request.recv(x, None, 0, 9, None, MODES, GROUP).call.expected_epoch == 9
    deferred = request.Modes.of(deferred=True, preserve_input=False)
    assert request.send(x, 1, 0, None, deferred, GROUP).call.flags == constants.PCCL_DEFERRED


@pytest.mark.parametrize("rank", [0, 3, -1, 1.0, None])
def test_a_send_needs_another_rank(rank: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"to (is rank 0, which is this peer|must be a whole number from 0 to 2)"):
        request.send(np.ones(3), rank, 0, None, MODES, GROUP)


def test_a_batch_is_checked_as_a_whole() -> None:
    x, y = np.ones(8), np.ones(8)
    there, back = request.batch([Send(x, 1), Recv(y, 2, 4)], 0, None, MODES, GROUP)
    assert (there.call.collective, back.call.collective, back.call.tag) == (Collective.SEND, Collective.RECV, 4)
    assert len(request.batch([Send(x, 1), Send(x[2:6], 2)], 0, None, MODES, GROUP)) == 2, "read by both"
    assert request.batch([], 0, None, MODES, GROUP) == []
    for items in ([Send(x, 1), Recv(x)], [Recv(x), Recv(x[4:])], [Recv(x[:4]), Send(x[3:], 1)]):
        with pytest.raises(InvalidArgument, match="overlap"):
            request.batch(items, 0, None, MODES, GROUP)
    with pytest.raises(InvalidArgument, match="a batch holds Send and Recv, not a ndarray"):
        request.batch([x], 0, None, MODES, GROUP)
    with pytest.raises(InvalidArgument, match="a list of Send and Recv is needed, not a Send"):
        request.batch(Send(x, 1), 0, None, MODES, GROUP)  # type: ignore[arg-type]
