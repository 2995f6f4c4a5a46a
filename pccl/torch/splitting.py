# SPDX-License-Identifier: MIT
"""What torch asks of backends that can be split, and has for its own ones only.

Where a device is bound to the default group, `new_group` tells those that are not in the new group to take part in a
split all the same, as NCCL wants it; and `split_group` copies the options of the group that is split. A backend in C++
that is not torch's has neither in Python. Ours needs neither: a part of a group costs no traffic, and gets its options
from the whole.
"""

from __future__ import annotations

from typing import Any

from torch._C import _distributed_c10d


def complete() -> None:
    """Gives torch's class of backends what it lacks, where this torch lacks it. Idempotent."""
    backend: Any = _distributed_c10d.Backend
    if not hasattr(backend, "perform_nocolor_split"):
        backend.perform_nocolor_split = _take_no_part
    if not hasattr(backend, "options"):
        backend.options = None


def _take_no_part(backend: Any, device: Any) -> None:
    """For who is in no part."""
