# SPDX-License-Identifier: MIT
"""What all tests share: the flag that rewrites golden traces."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write golden traces anew instead of comparing them")
