# SPDX-License-Identifier: MIT
"""One server of ranks for all tests of a process, and both forms of the backend for each test that takes `form`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from pccl.torch import native, toolchain
from tests.torch.ranks import Ranks


@pytest.fixture(scope="session")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    """Runs functions on several ranks."""
    with contextlib.suppress(native.Unavailable):
        native.load()  # if it must be compiled, then not in the time that a test has
    server = Ranks(Path(tmp_path_factory.mktemp("ranks")))
    yield server
    server.close()


@pytest.fixture(params=["python", "native"])
def form(request: pytest.FixtureRequest) -> str:
    """The form of the backend that the ranks use."""
    if request.param == "native":
        request.getfixturevalue("native_form")
    return str(request.param)


@pytest.fixture(scope="session")
def native_form() -> None:
    """For tests of the form in C++ alone, which needs a compiler."""
    try:
        toolchain.compiler()
    except toolchain.CannotCompile as failure:
        pytest.skip(f"no form in C++: {failure}")
