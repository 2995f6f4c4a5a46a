# SPDX-License-Identifier: MIT
"""Makes torch know the name "pccl" before anybody has asked for it, without importing torch or pccl.

Torch calls `register` when it is imported (entry point `torch.backends`), so `init_process_group("pccl")` works in a
program that imports nothing of pccl. `import pccl` calls `watch`, for a torch that does not look for entry points
(before 2.5, or told not to). A package of its own, and no more than this: whatever is wrong with pccl, `import torch`
goes on.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

NAME = "pccl"
DEVICES = ["cpu", "cuda"]
_C10D = "torch.distributed.distributed_c10d"


def register() -> None:
    """Registers the name, once, if this torch has torch.distributed."""
    c10d = sys.modules.get(_C10D)
    if c10d is not None and NAME.upper() not in c10d.Backend._plugins:
        c10d.Backend.register_backend(NAME, _create, extended_api=True, devices=DEVICES)


def watch() -> None:
    """Registers the name now or, if torch is not there yet, when it comes."""
    if _C10D in sys.modules:
        register()
    elif not any(isinstance(it, _Finder) for it in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _create(asked: Any, pg_options: Any) -> Any:
    from pccl.torch.registration import create

    return create(asked, pg_options)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module, as whoever finds it anyway does, and is told when it has been executed."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != _C10D:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(importlib.abc.Loader):
    """Another one's loader, and then `register`."""

    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        spec = module.__spec__
        if spec is not None:
            spec.loader = module.__loader__ = self._loader
        register()
