# SPDX-License-Identifier: MIT
"""Single values are taken as they are meant, or refused by name."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pccl import InvalidArgument, ReduceOp, arguments


def test_numbers_of_any_library_are_whole() -> None:
    assert [arguments.whole("n", it, 0, 9) for it in (3, np.uint8(3), True)] == [3, 3, 1]
    for wrong in (-1, 10, 3.0, "3", None):
        with pytest.raises(InvalidArgument, match="n must be a whole number from 0 to 9, not"):
            arguments.whole("n", wrong, 0, 9)  # type: ignore[arg-type]


def test_names_may_be_numbers() -> None:
    assert arguments.named("op", ReduceOp.MAX, ReduceOp) == arguments.named("op", int(ReduceOp.MAX), ReduceOp)
    with pytest.raises(InvalidArgument, match=r"op must be of ReduceOp \(SUM, AVG, .*\), not 99"):
        arguments.named("op", 99, ReduceOp)


def test_seconds() -> None:
    assert arguments.milliseconds("timeout", 1e-9) == 1, "the shortest timeout is not none"
    assert arguments.milliseconds("timeout", np.float32(1.5)) == 1500
    assert (arguments.patience(None), arguments.patience(-2)) == (math.inf, -2.0)
    with pytest.raises(InvalidArgument, match="timeout"):
        arguments.patience(math.nan)


def test_words_and_truths() -> None:
    assert arguments.choice("shm", "off", ("auto", "off")) == "off"
    with pytest.raises(InvalidArgument, match='shm is "auto" or "off", not 1'):
        arguments.choice("shm", 1, ("auto", "off"))  # type: ignore[arg-type]
    assert arguments.truth("flag", False) is False
    with pytest.raises(InvalidArgument, match="flag is True or False, not 0"):
        arguments.truth("flag", 0)
