# SPDX-License-Identifier: MIT
"""The documented errors of sums are those that this build measures: they are the same bits on every CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import quantized_sums_table

pytestmark = pytest.mark.process

DOCUMENT = Path(__file__).parents[2] / "docs" / "quantization.md"


def test_the_document_has_the_table() -> None:
    lines = quantized_sums_table.table()
    assert len(lines) == 2 + len(quantized_sums_table.ROWS)
    assert "\n".join(lines) in DOCUMENT.read_text()
