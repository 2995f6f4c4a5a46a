# SPDX-License-Identifier: MIT
"""Single values that a user hands in, checked: numbers, seconds, words. Each check returns the value in the form that
is counted with, or raises InvalidArgument, whose text names the argument, what it may be, and what it was."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from enum import IntEnum
from numbers import Real

from pccl.errors import InvalidArgument

SECONDS_MAX = 4_000_000
"""The longest timeout; in milliseconds it fits 32 bits."""


def whole(name: str, value: int, low: int, high: int) -> int:
    """A whole number (also one of numpy's) within bounds."""
    if value.__class__ is int and low <= value <= high:
        return value
    try:
        number = operator.index(value)
    except TypeError:
        number = low - 1
    if not low <= number <= high:
        raise InvalidArgument(f"{name} must be a whole number from {low} to {high}, not {value!r}")
    return number


def named(name: str, value: int, kind: type[IntEnum]) -> int:
    """A member of `kind`, or its number. The text lists them."""
    if value.__class__ is kind:
        return value
    try:
        return kind(operator.index(value))
    except (TypeError, ValueError):
        names = ", ".join(it.name for it in kind)
        raise InvalidArgument(f"{name} must be of {kind.__name__} ({names}), not {value!r}") from None


def truth(name: str, value: bool) -> bool:
    """True or False, and nothing that only counts as one of them."""
    if value is not True and value is not False:
        raise InvalidArgument(f"{name} is True or False, not {value!r}")
    return value


def patience(timeout: float | None) -> float:
    """The seconds that a wait may take at most, also none or less; infinity without a limit."""
    if timeout is None:
        return math.inf
    if not isinstance(timeout, Real) or math.isnan(timeout):
        raise InvalidArgument(f"timeout must be a number of seconds, or None for no limit, not {timeout!r}")
    return float(timeout)


def milliseconds(name: str, seconds: float) -> int:
    """A timeout as the engine counts it, at least 1."""
    if not isinstance(seconds, Real) or not 0 < seconds <= SECONDS_MAX:
        raise InvalidArgument(f"{name} must be a positive number of seconds up to {SECONDS_MAX:,}, not {seconds!r}")
    return max(1, int(seconds * 1000))


def choice(name: str, value: str, allowed: Iterable[str]) -> str:
    """One of several words. The text lists them."""
    *others, last = (f'"{word}"' for word in allowed)
    if not isinstance(value, str) or value not in allowed:
        raise InvalidArgument(f"{name} is {', '.join(others)} or {last}, not {value!r}")
    return value
