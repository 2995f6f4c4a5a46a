# SPDX-License-Identifier: MIT
"""What happens when torch asks for a group of the backend "pccl". How it learns of that name: `pccl_autoload`."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from functools import partial
from types import FrameType
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from pccl.arguments import choice
from pccl.errors import PCCLError, Unsupported
from pccl.torch import elastic, errors, native, splitting
from pccl.torch.group import Group, Part
from pccl.torch.members import ElasticRuntime
from pccl.torch.options import Options, checked
from pccl.torch.process_group import ProcessGroup
from pccl.torch.runtime import Runtime, runtime_for

FORM = "PCCL_TORCH_BACKEND"


def create(asked: Any, pg_options: Any) -> Any:
    """What torch calls on each member of a group: a backend, or in the Python form up to torch 2.13 the group itself.

    `asked` is a DistributedBackendOptions. Raises InvalidArgument, DistBackendError.
    """
    options, _ = checked(pg_options), asked_form()
    if getattr(asked, "enable_reconfigure", False):
        options = replace(options, elastic=True)
    ranks = tuple(asked.global_ranks_in_group) or tuple(range(asked.group_size))
    timeout_s = asked.timeout.total_seconds()
    try:
        make = partial(ElasticRuntime, options=options, timeout_s=timeout_s) if options.elastic else Runtime
        runtime = runtime_for(asked.store, ranks, asked.group_rank, timeout_s, options, make)
        group = runtime.group(asked.group_id, ranks, asked.group_rank, timeout_s, options)
    except PCCLError as failure:
        raise errors.translated(failure) from failure
    made, wanted = chosen(), _wanted()
    if made is None:
        whole: Any = _in_python(runtime, group, options, asked.store)
    else:
        backend = _in_cpp(made, runtime, group, options)
        if not wanted.alone:
            return backend
        whole = made.group(group, asked.store)
    if wanted.device is not None:
        whole.bound_device_id = wanted.device  # as torch's own group has, in whose place it is
    return whole


def _in_python(runtime: Runtime, group: Group, options: Options, store: Any) -> ProcessGroup:
    def split(part: Part, store: Any) -> ProcessGroup:
        return _in_python(runtime, runtime.part(part, options), options, store)

    whole = ProcessGroup(runtime, group, options, store, split)
    runtime.attach(group, whole.rebind)
    return whole


def _in_cpp(made: native.Native, runtime: Runtime, group: Group, options: Options) -> Any:
    def split(part: Part) -> None:
        _in_cpp(made, runtime, runtime.part(part, options), options)

    meet = elastic.meet if isinstance(runtime, ElasticRuntime) else None
    splitting.complete()
    runtime.at_close(made.close)
    runtime.attach(group, made.rebind)
    return made.backend(
        group,
        runtime.engine_address,
        native.Wishes(lambda aborted: runtime.release(group.name, abort=aborted), split, meet),
        deterministic=options.deterministic,
    )


class _Wanted(NamedTuple):
    """`alone`: the group that torch is making has no other backend, so it may be one of ours. `device` is the one that
    is bound to it."""

    alone: bool
    device: torch.device | None


def _wanted() -> _Wanted:
    """Torch does not say, so its function that calls us is asked. What it is to wrap for debugging is not alone."""
    debugs = dist.distributed_c10d.get_debug_level() == dist.distributed_c10d.DebugLevel.DETAIL
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        config = frame.f_locals.get("backend_config")
        if isinstance(config, dist.distributed_c10d.BackendConfig):
            alone = len(set(config.get_device_backend_map().values())) == 1
            return _Wanted(alone and not debugs, frame.f_locals.get("device_id"))
        frame = frame.f_back
    return _Wanted(False, None)


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
