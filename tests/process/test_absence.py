# SPDX-License-Identifier: MIT
"""Members that do not come: whoever waits is told who they are."""

from __future__ import annotations

import re

import numpy as np
import pytest

import pccl
from tests.process.local import Local

pytestmark = pytest.mark.process


def test_an_operation_that_times_out_lists_the_absent() -> None:
    """B93: two of five never call. Every rank that did is told which, in what, and for how long it waited."""

    def call(comm: pccl.Communicator) -> str:
        if comm.rank >= 3:
            return ""
        with pytest.raises(pccl.OperationTimeout) as caught:
            comm.all_reduce(np.ones(1000, np.float32), timeout=0.5)
        return str(caught.value)

    with Local(5) as local:
        for text in local.all(call)[:3]:
            assert "all_reduce" in text
            assert "#0" in text
            assert re.search(r"\d+ ms", text)
            for rank in (3, 4):
                assert f"rank {rank}" in text or re.search(rf"ranks [^:;]*\b{rank}\b", text), text
