# SPDX-License-Identifier: MIT
"""What happens when torch asks for a group of the backend "pccl". How it learns of that name: `pccl_autoload`."""

from __future__ import annotations

import os
import sys
from functools import partial
from types import FrameType
from typing import Any

import torch.distributed as dist

from pccl.arguments import choice
from pccl.errors import PCCLError, Unsupported
from pccl.torch import errors, native
from pccl.torch.members import ElasticRuntime
from pccl.torch.options import checked
from pccl.torch.process_group import ProcessGroup
from pccl.torch.runtime import Runtime, runtime_for

FORM = "PCCL_TORCH_BACKEND"


def create(asked: Any, pg_options: Any) -> Any:
    """What torch calls on each member of a group: a backend, or in the Python form up to torch 2.13 the group itself.

    `asked` is a DistributedBackendOptions. Raises InvalidArgument, DistBackendError.
    """
    options, _ = checked(pg_options), asked_form()
    ranks = tuple(asked.global_ranks_in_group) or tuple(range(asked.group_size))
    timeout_s = asked.timeout.total_seconds()
    try:
        make = partial(ElasticRuntime, options=options, timeout_s=timeout_s) if options.elastic else Runtime
        runtime = runtime_for(asked.store, ranks, asked.group_rank, timeout_s, options, make)
        group = runtime.group(asked.group_id, ranks, asked.group_rank, timeout_s, options)
    except PCCLError as failure:
        raise errors.translated(failure) from failure
    made = chosen()
    if made is None:
        whole = ProcessGroup(runtime, group, options, asked.store)
        runtime.attach(group, whole.rebind)
        return whole
    runtime.at_close(made.close)
    runtime.attach(group, made.rebind)
    backend = made.backend(
        group,
        runtime.engine_address,
        lambda aborted: runtime.release(group.name, abort=aborted),
        deterministic=options.deterministic,
    )
    return made.group(group, asked.store) if _is_alone() else backend


def _is_alone() -> bool:
    """Whether the group that torch is making has no other backend: then it may be one of ours. Torch does not say, so
    its function that calls us is asked. Where torch is to wrap the backend for debugging, it cannot be."""
    if dist.distributed_c10d.get_debug_level() == dist.distributed_c10d.DebugLevel.DETAIL:
        return False
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        config = frame.f_locals.get("backend_config")
        if isinstance(config, dist.distributed_c10d.BackendConfig):
            return len(set(config.get_device_backend_map().values())) == 1
        frame = frame.f_back
    return False


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
