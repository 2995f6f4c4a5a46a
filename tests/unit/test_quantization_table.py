# SPDX-License-Identifier: MIT
"""The documented errors are those that this build measures: they are the same bits on every CPU."""

from __future__ import annotations

from pathlib import Path

from tests import quantization_table

DOCUMENT = Path(__file__).parents[2] / "docs" / "quantization.md"


def test_the_document_has_the_table() -> None:
    lines = quantization_table.table()
    assert len(lines) == 2 + len(quantization_table.ROWS)
    assert "\n".join(lines) in DOCUMENT.read_text()
