# SPDX-License-Identifier: MIT
"""What happens when torch asks for a group of the backend "pccl". How it learns of that name: `pccl_autoload`."""

from __future__ import annotations

import os
from typing import Any

from pccl.arguments import choice
from pccl.errors import PCCLError, Unsupported
from pccl.torch import errors, native
from pccl.torch.options import checked
from pccl.torch.process_group import ProcessGroup
from pccl.torch.runtime import runtime_for

FORM = "PCCL_TORCH_BACKEND"


def create(asked: Any, pg_options: Any) -> Any:
    """What torch calls on each member of a group: a backend, or in the Python form up to torch 2.13 the group itself.

    `asked` is a DistributedBackendOptions. Raises InvalidArgument, DistBackendError.
    """
    options, _ = checked(pg_options), asked_form()
    ranks = tuple(asked.global_ranks_in_group) or tuple(range(asked.group_size))
    timeout_s = asked.timeout.total_seconds()
    try:
        runtime = runtime_for(asked.store, ranks, asked.group_rank, timeout_s, options)
        group = runtime.group(asked.group_id, ranks, asked.group_rank, timeout_s, options)
    except PCCLError as failure:
        raise errors.translated(failure) from failure
    made = chosen()
    if made is None:
        return ProcessGroup(runtime, group, options, asked.store)
    runtime.at_close(made.close)
    return made.backend(
        group,
        runtime.engine_address,
        lambda aborted: runtime.release(group.name, abort=aborted),
        deterministic=options.deterministic,
    )


def chosen() -> native.Native | None:
    """What makes backends in C++; None: the Python form is taken. Raises Unsupported where the user insists on the
    former and cannot have it."""
    form = asked_form()
    if form == "python":
        return None
    try:
        return native.load()
    except native.Unavailable as failure:
        if form == "native":
            raise Unsupported(f"{FORM}=native: {failure}") from failure
        return None


def asked_form() -> str:
    """The form of the backend that the user asked for."""
    return choice(FORM, os.environ.get(FORM) or "auto", ("auto", "native", "python"))
