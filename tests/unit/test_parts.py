# SPDX-License-Identifier: MIT
"""Counts of uneven parts are held against arrays and world size."""

from __future__ import annotations

import numpy as np
import pytest

from pccl import Collective, DataType, InvalidArgument, parts, request
from pccl._native import NULL, constants

MODES = request.Modes.of(deferred=False, preserve_input=True)
GROUP = request.Members(epoch=9, size=3, rank=0)
PART, PARTS, COUNTS = np.zeros(2, np.int32), np.zeros(7, np.int32), [3, 2, 2]
FITTING = np.zeros(3, np.int32)


def test_own_part_must_be_as_long_as_its_count() -> None:
    with pytest.raises(InvalidArgument, match=r"send has 2 int32, but recv_counts\[0\] is 3"):
        parts.all_gather(PART, PARTS, COUNTS, 0, None, MODES, GROUP)
    with pytest.raises(InvalidArgument, match=r"recv has 2 int32, but send_counts\[0\] is 3"):
        parts.reduce_scatter(PARTS, COUNTS, PART, 0, 0, None, MODES, GROUP)
    with pytest.raises(InvalidArgument, match=r"send has 2 int32, but recv_counts\[0\] is 3"):
        parts.gather(PART, PARTS, COUNTS, 0, 0, None, MODES, GROUP)
    with pytest.raises(InvalidArgument, match=r"recv has 2 int32, but send_counts\[0\] is 3"):
        parts.scatter(PARTS, COUNTS, PART, 0, 0, None, MODES, GROUP)


def test_counts_go_with_the_buffers_that_hold_all_parts() -> None:
    at_root = parts.gather(FITTING, PARTS, COUNTS, 0, 0, None, MODES, GROUP).call
    assert (at_root.collective, at_root.flags, at_root.expected_epoch) == (Collective.GATHER, constants.PCCL_UNEVEN, 9)
    assert at_root.input_counts == NULL
    assert [at_root.output_counts[rank] for rank in range(3)] == COUNTS
    for elsewhere in (
        parts.gather(PART, None, None, 1, 0, None, MODES, GROUP),
        parts.scatter(None, None, PART, 1, 0, None, MODES, GROUP),
    ):
        assert (elsewhere.call.count, elsewhere.call.dtype) == (2, DataType.INT32), "the root alone knows more"
        assert elsewhere.call.input_counts == elsewhere.call.output_counts == NULL
    both = parts.all_to_all(PARTS, COUNTS, PARTS.copy(), [1, 1, 5], 0, None, MODES, GROUP).call
    assert [both.input_counts[rank] for rank in range(3)] == COUNTS
    assert [both.output_counts[rank] for rank in range(3)] == [1, 1, 5]


@pytest.mark.parametrize("counts", [[3, 2], [3, 2, 2, 0], [3, 2, 1], [3, 4, -1], 7, [3, 2, 2.0]])
def test_counts_that_do_not_fit(counts: list[int]) -> None:
    with pytest.raises(InvalidArgument, match="recv_counts"):
        parts.all_gather(FITTING, PARTS, counts, 0, None, MODES, GROUP)


def test_the_root_needs_them() -> None:
    with pytest.raises(InvalidArgument, match="needs recv and recv_counts"):
        parts.gather(PART, PARTS, None, 0, 0, None, MODES, GROUP)
    with pytest.raises(InvalidArgument, match="needs send and send_counts"):
        parts.scatter(None, COUNTS, PART, 0, 0, None, MODES, GROUP)
    with pytest.raises(InvalidArgument, match="send has 7 int64 and recv has 3 int32"):
        parts.scatter(PARTS.astype(np.int64), COUNTS, FITTING, 0, 0, None, MODES, GROUP)
