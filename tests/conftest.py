# SPDX-License-Identifier: MIT
"""What all tests share: the flag that rewrites golden traces, hypothesis without a clock (a busy machine is no bug) and
with as many examples as one likes, and Ctrl-C, which what a shell runs in the background ignores, and so its children.
"""

from __future__ import annotations

import signal

import pytest
from hypothesis import settings


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write golden traces anew instead of comparing them")
    parser.addoption("--examples", type=int, default=100, help="examples of each property (make fuzz)")


def pytest_configure(config: pytest.Config) -> None:
    settings.register_profile("pccl", deadline=None, max_examples=config.getoption("--examples"))
    settings.load_profile("pccl")
    signal.signal(signal.SIGINT, signal.default_int_handler)
