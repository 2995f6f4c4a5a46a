# SPDX-License-Identifier: MIT
"""Wrapped models after a change of members, or after a backward pass that ended in the middle.

The one idea: what torch's wrappers know of a pass lies in objects that they make when they wrap, or in states that they
can reset. Parameters, hooks and settings stay.
"""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.distributed import _register_comm_hook  # type: ignore[attr-defined]
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

from pccl.errors import Unsupported


def rebuild(model: nn.Module) -> None:
    """See `pccl.torch.rebuild`."""
    for parameter in model.parameters():
        parameter.grad = None
    sharded = [module for module in model.modules() if isinstance(module, FSDPModule)]
    if sharded:
        _reset_fsdp(sharded)
    for module in model.modules():
        if isinstance(module, DistributedDataParallel):
            _rebuild_ddp(module)


def _rebuild_ddp(module: Any) -> None:
    """A new reducer, as unpickling makes it: buckets as at first, so that all ranks, new ones too, rebuild them after
    the same pass."""
    module._has_rebuilt_buckets = False
    module.reducer = None
    parameters, expect_sparse = module._build_params_for_reducer()
    names = module._build_debug_param_to_name_mapping(parameters)
    module._ddp_init_helper(parameters, expect_sparse, names, module.static_graph)
    if module.static_graph:
        module.reducer._set_static_graph()
        module.logger._set_static_graph()
    for hook, state in module._comm_hooks:
        _register_comm_hook(module.reducer, state, hook)


def _reset_fsdp(sharded: list[Any]) -> None:
    """Shards again what a lost pass has gathered. Its collectives have failed, so nobody must wait for them."""
    states = [module._get_fsdp_state() for module in sharded]
    for state in states:
        for group in state._fsdp_param_groups:
            _check_shards(group.mesh_info)
            group._all_gather_result = None
    for module, state in zip(sharded, states, strict=True):
        if not state._is_root:
            continue  # or nothing has run yet
        if not hasattr(module, "reset_iter_state"):
            raise Unsupported("this torch cannot reset FSDP after a backward pass that failed: it takes 2.13")
        module.reset_iter_state()


def _check_shards(mesh: Any) -> None:
    """Parameters that lay on a rank that is gone cannot be had from anybody else."""
    if not hasattr(mesh, "shard_process_group"):
        return
    left = mesh.shard_process_group.size()
    if left != mesh.shard_mesh_size:
        raise Unsupported(
            f"of {mesh.shard_mesh_size} shards of the parameters {left} are left: end this process, so that other "
            "replicas go on, or make the model anew from a checkpoint"
        )
