# SPDX-License-Identifier: MIT
"""Sizes as people write them: "4", "64K", "1M", lists "4,1K", ranges "4..64M" (each four times the one before)."""

from __future__ import annotations

SUFFIXES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
RANGE_FACTOR = 4


def parse(text: str) -> list[int]:
    """Bytes, in the order written. Raises ValueError that names the part which is wrong."""
    sizes: list[int] = []
    for part in text.split(","):
        first, dots, last = part.partition("..")
        if not dots:
            sizes.append(_one(part))
            continue
        size, end = _one(first), _one(last)
        if size > end:
            raise ValueError(f"not a range: {part!r} (it begins with the smaller size)")
        while size <= end:
            sizes.append(size)
            size *= RANGE_FACTOR
    return sizes


def show(size: int) -> str:
    """The shortest exact form: 65536 is "64K"."""
    for suffix, unit in reversed(SUFFIXES.items()):
        if size >= unit and size % unit == 0:
            return f"{size // unit}{suffix}"
    return str(size)


def _one(text: str) -> int:
    digits = text.strip().upper().removesuffix("B").removesuffix("I")
    suffix = digits[-1:] if digits[-1:] in SUFFIXES else ""
    number = digits.removesuffix(suffix) if suffix else digits
    if not number.isdecimal() or int(number) == 0:
        raise ValueError(f"not a size: {text!r} (write 4, 64K, 1M, lists with commas, ranges as 4..64M)")
    return int(number) * SUFFIXES[suffix]
