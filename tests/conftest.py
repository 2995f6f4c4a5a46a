# SPDX-License-Identifier: MIT
"""What all tests share: the flag that rewrites golden traces, and hypothesis without a clock (a busy machine is no
bug)."""

from __future__ import annotations

import pytest
from hypothesis import settings

settings.register_profile("pccl", deadline=None)
settings.register_profile("long", deadline=None, max_examples=20_000)  # make fuzz
settings.load_profile("pccl")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write golden traces anew instead of comparing them")
