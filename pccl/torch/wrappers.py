# SPDX-License-Identifier: MIT
"""Wrapped models after a change of members, or after a backward pass that ended in the middle.

The one idea: what torch's wrappers know of a pass lies in objects that they make when they wrap. Those are made anew,
in the way in which unpickling makes them; parameters, hooks and settings stay.
"""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.distributed import _register_comm_hook  # type: ignore[attr-defined]
from torch.nn.parallel import DistributedDataParallel


def rebuild(model: nn.Module) -> None:
    """See `pccl.torch.rebuild`."""
    for parameter in model.parameters():
        parameter.grad = None
    for module in model.modules():
        if isinstance(module, DistributedDataParallel):
            _rebuild_ddp(module)


def _rebuild_ddp(module: Any) -> None:
    """A new reducer: buckets as at first, so that all ranks, new ones too, rebuild them after the same pass."""
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
