# SPDX-License-Identifier: MIT
"""What happens when torch asks for a group of the backend "pccl". How it learns of that name: `pccl_autoload`."""

from __future__ import annotations

import os
from typing import Any

from pccl.arguments import choice
from pccl.errors import PCCLError
from pccl.torch import errors
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
    return ProcessGroup(runtime, group, options, asked.store)


def asked_form() -> str:
    """The form of the backend that the user asked for."""
    return choice(FORM, os.environ.get(FORM) or "auto", ("auto", "native", "python"))
