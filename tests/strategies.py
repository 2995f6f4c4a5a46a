# SPDX-License-Identifier: MIT
"""Hypothesis strategies for messages, made from the limits in their fields."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

from hypothesis import strategies as st


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Legal values of a field."""
    if hint is bool:
        return st.booleans()
    if dataclasses.is_dataclass(hint):
        return objects(hint)
    base, limit = typing.get_args(hint)
    if base is int:
        return st.integers(limit.low, limit.high)
    high = min(limit.high, limit.low + 8) // limit.step
    if base is bytes:
        lengths = [limit.step * count for count in range(-(-limit.low // limit.step), max(high, 1) + 1)]
        fitting = [length for length in lengths if limit.low <= length <= limit.high]
        return st.sampled_from(fitting).flatmap(lambda length: st.binary(min_size=length, max_size=length))
    if base is str:
        return st.text(min_size=limit.low, max_size=min(limit.high, limit.low + 20))
    item = typing.get_args(base)[0]
    return st.lists(values(item), min_size=limit.low, max_size=limit.low + 3).map(tuple)


def objects(cls: Any) -> st.SearchStrategy[Any]:
    """Legal messages of a class."""
    hints = typing.get_type_hints(cls, include_extras=True)
    return st.builds(cls, **{field.name: values(hints[field.name]) for field in dataclasses.fields(cls)})
