# SPDX-License-Identifier: MIT
"""The list of failures agrees with the C header and with itself."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pccl import errors
from pccl.errors import ERROR_CLASSES, LocalError, PCCLError, RemoteError, Status, error_for

HEADER = Path(__file__).resolve().parents[2] / "csrc" / "pccl.h"


def test_the_numbers_are_those_of_the_header() -> None:
    listed = re.search(r"typedef enum pccl_status \{(.*?)\} pccl_status;", HEADER.read_text(), re.DOTALL)
    assert listed is not None
    in_header = {name: int(number) for name, number in re.findall(r"PCCL_(\w+) = (\d+)", listed[1])}
    assert in_header == {status.name: int(status) for status in Status if status < 100}


def test_each_status_that_a_call_ends_with_has_a_class_that_names_it() -> None:
    assert set(ERROR_CLASSES) == set(Status) - {Status.OK, Status.PEER_DIED}
    for status, cls in ERROR_CLASSES.items():
        assert cls.status is status
        assert issubclass(cls, LocalError) != issubclass(cls, RemoteError)


def test_error_for_keeps_the_text_and_survives_foreign_numbers() -> None:
    error = error_for(Status.PEER_LOST, "rank 2 left")
    assert isinstance(error, errors.PeerLost)
    assert str(error) == "rank 2 left"
    strange = error_for(77, "what")
    assert type(strange) is PCCLError
    assert "77" in str(strange)


@pytest.mark.parametrize(
    ("cls", "builtin"),
    [
        (errors.InvalidArgument, ValueError),
        (errors.OperationTimeout, TimeoutError),
        (errors.OutOfMemory, MemoryError),
        (errors.SystemFailure, OSError),
        (errors.Unsupported, NotImplementedError),
    ],
)
def test_errors_that_python_has_a_word_for_are_caught_by_it(cls: type[PCCLError], builtin: type[Exception]) -> None:
    with pytest.raises(builtin):
        raise cls("text")
