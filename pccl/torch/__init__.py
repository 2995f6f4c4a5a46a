# SPDX-License-Identifier: MIT
"""pccl as a backend of torch.distributed.

    import pccl.torch
    torch.distributed.init_process_group("pccl")

Importing it makes the name known to torch; so does `import pccl` where torch is used, too.
"""

from __future__ import annotations

import pccl_autoload
import torch.distributed  # noqa: F401  the name is registered there

from pccl.torch import hooks
from pccl.torch.elastic import RankLost, commit, join, rebuild, reconfigure, step
from pccl.torch.errors import cause
from pccl.torch.inventory import Info, info
from pccl.torch.options import Options
from pccl.torch.state import State

pccl_autoload.register()

__all__ = [
    "Info",
    "Options",
    "RankLost",
    "State",
    "cause",
    "commit",
    "hooks",
    "info",
    "join",
    "rebuild",
    "reconfigure",
    "step",
]
