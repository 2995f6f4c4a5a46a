# SPDX-License-Identifier: MIT
"""What `request.py` does for one array, for many that are reduced in one operation, as if they stood behind one another
in one. Which of them overlap is found out by the engine, which looks at all of them anyway."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pccl import _native, arrays
from pccl.arrays import Borrowed
from pccl.enums import Collective, PremulSum
from pccl.errors import InvalidArgument
from pccl.request import Modes, Request, build


def all_reduce(
    tensors: Iterable[Any],
    out: Iterable[Any] | None,
    op: int | PremulSum,
    tag: int,
    algorithm: int,
    timeout: float | None,
    modes: Modes,
) -> Request:
    """In place without `out`, and where an array of it is its counterpart. Raises InvalidArgument."""
    given = _listed("tensors", tensors)
    wanted = given if out is None else _listed("out", out)
    if len(given) != len(wanted):
        raise InvalidArgument(f"there are {len(given)} tensors, but {len(wanted)} in out")
    if not given:
        raise InvalidArgument("there is nothing to reduce: tensors is empty")
    pairs = [_pair(index, source, target) for index, (source, target) in enumerate(zip(given, wanted, strict=True))]
    first = pairs[0][0]
    for index, (source, _) in enumerate(pairs):
        if source.dtype != first.dtype:
            raise InvalidArgument(
                f"tensors[{index}] has {arrays.describe(source)} and tensors[0] has {arrays.describe(first)}; "
                "all must be of one dtype"
            )
    in_place = all(source.address == target.address for source, target in pairs)
    memory = Borrowed(0, first.dtype, 0, pairs)
    flags = modes.in_place if in_place else modes.out_of_place
    one = build(Collective.ALL_REDUCE, flags, memory, memory, 0, tag, timeout, op=op, algorithm=algorithm)
    listed = _native.tensors((source.address, target.address, source.elements) for source, target in pairs)
    one.call.tensors, one.call.tensors_count = listed, len(pairs)
    one.owner = (pairs, listed)
    return one


def _listed(name: str, arrays_given: Iterable[Any]) -> list[Any]:
    """An array is iterable too, but its rows are hardly meant."""
    if not isinstance(arrays_given, Iterable) or hasattr(arrays_given, "dtype"):
        raise InvalidArgument(f"{name} is a {type(arrays_given).__name__}, not a list of arrays")
    return list(arrays_given)


def _pair(index: int, given: Any, wanted: Any) -> tuple[Borrowed, Borrowed]:
    """Two arrays of one layout, or one that is both."""
    if wanted is given:
        both = arrays.borrow(given, True, f"tensors[{index}]")
        return both, both
    source = arrays.borrow(given, False, f"tensors[{index}]")
    target = arrays.borrow(wanted, True, f"out[{index}]")
    if source.dtype != target.dtype or source.elements != target.elements:
        raise InvalidArgument(
            f"tensors[{index}] has {arrays.describe(source)} and out[{index}] has {arrays.describe(target)}; "
            "they must be alike"
        )
    return source, target
