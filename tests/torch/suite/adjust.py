# SPDX-License-Identifier: MIT
"""Makes torch's test module treat a backend as others that it knows: in memory, before any test is made.

Guards such as `BACKEND == "gloo"` compare with a name that equals all it is to be like; what reaches
`init_process_group` is the real one. `pretend_cuda` lets tests that want a GPU for each rank run on CPU tensors: those
that need streams or device memory fail then, on every backend, and the comparison sets them apart.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
import unittest
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

SMALL_WORLD = 3
"""Ranks from which subgroup tests run. Upstream wants eight, to spare its GPUs; they use ranks 1 and 2."""


@dataclass(frozen=True)
class Setup:
    """What a worker is told. `folder` is where tests meet."""

    backend: str
    imports: tuple[str, ...]
    likes: tuple[str, ...]
    world: int
    timeout_s: int
    pretend_cuda: bool
    folder: str


class LikeName(str):
    """A backend's name that also equals those in `likes`."""

    likes: frozenset[str] = frozenset()

    @classmethod
    def of(cls, name: str, likes: frozenset[str]) -> LikeName:
        made = cls(name)
        made.likes = likes - {name}
        return made

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other) is True or (isinstance(other, str) and str(other) in self.likes)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        """That of one of them, so that it is found in sets and dicts that have it. Torch's own names are there."""
        if not self.likes or str(self) in ("gloo", "nccl", "mpi"):
            return str.__hash__(self)
        return hash("gloo" if "gloo" in self.likes else min(self.likes))


class _Environment(MutableMapping[str, str]):
    """The real one, but for what is said of BACKEND: `os.environ` cannot hold a name that equals others."""

    def __init__(self, real: MutableMapping[str, str], backend: LikeName) -> None:
        self._real, self._backend = real, backend

    def __getitem__(self, key: str) -> str:
        return self._backend if key == "BACKEND" else self._real[key]

    def __setitem__(self, key: str, value: str) -> None:
        self._real[key] = value

    def __delitem__(self, key: str) -> None:
        del self._real[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._real)

    def __len__(self) -> int:
        return len(self._real)


def test_class(setup: Setup) -> type[unittest.TestCase]:
    """The class that has torch's tests, for this process and those that it forks."""
    os.environ.update(
        BACKEND=setup.backend,
        WORLD_SIZE=str(setup.world),
        MASTER_ADDR="127.0.0.1",
        DISTRIBUTED_TESTS_DEFAULT_TIMEOUT=str(setup.timeout_s),
        OMP_NUM_THREADS="1",
        GLOO_SOCKET_IFNAME="lo",
        TP_SOCKET_IFNAME="lo",
        INIT_METHOD=f"file://{setup.folder}/meeting",
        TEMP_DIR=setup.folder,
    )
    for name in setup.imports:
        importlib.import_module(name)
    common = importlib.import_module("torch.testing._internal.common_distributed")
    _widen(common, setup)
    if setup.pretend_cuda:
        _pretend_cuda(common, setup.world)
    return _case(_tests(setup))


def _widen(common: Any, setup: Setup) -> None:
    common.TIMEOUT_DEFAULT = setup.timeout_s
    common.TIMEOUT_OVERRIDE.clear()
    common.DEFAULT_WORLD_SIZE = setup.world
    common.skip_if_small_worldsize = _guard(setup.world >= SMALL_WORLD, common.TEST_SKIPS["small_worldsize"].exit_code)
    if setup.likes:
        for features in common.DistTestCases.backend_feature.values():
            if features & set(setup.likes):
                features.add(setup.backend)
        common.DistTestCases.backend_feature["plugin"].add(setup.backend)

    def fork(case: Any) -> None:
        import torch.multiprocessing

        case._start_processes(torch.multiprocessing.get_context("fork").Process)

    common.MultiProcessTestCase._spawn_processes = fork


def _guard(is_open: bool, exit_code: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator of tests: one whose guard is not open ends its process as torch's own guards do."""

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(test)
        def guarded(*arguments: Any, **named: Any) -> Any:
            if not is_open:
                sys.exit(exit_code)
            return test(*arguments, **named)

        return guarded

    return decorate


def _tests(setup: Setup) -> Any:
    """Torch's module of tests. Guards that look at BACKEND while it is imported see the name that equals others."""
    likes = frozenset(setup.likes)
    importlib.import_module("torch.testing._internal.common_utils")  # what it needs is to see the real environment
    real = os.environ
    os.environ = _Environment(real, LikeName.of(setup.backend, likes))  # noqa: B003
    try:
        tests: Any = importlib.import_module("torch.testing._internal.distributed.distributed_test")
    finally:
        os.environ = real  # noqa: B003
    if "nccl" in likes:  # guards were opened as nccl's are; when tests run it is no backend for CUDA
        tests.BACKEND = LikeName.of(setup.backend, likes - {"nccl"} | {"gloo"})
    return tests


def _case(tests: Any) -> type[unittest.TestCase]:
    class WheelDistributedTest(tests.TestDistBackend, tests.DistributedTest._DistTestBase):
        def setUp(self) -> None:
            super().setUp()
            tests.INIT_METHOD = os.environ["INIT_METHOD"]
            self._spawn_processes()

    module: ModuleType = sys.modules[__name__]
    WheelDistributedTest.__module__, WheelDistributedTest.__qualname__ = __name__, "WheelDistributedTest"
    module.__dict__["WheelDistributedTest"] = WheelDistributedTest
    return WheelDistributedTest


def _pretend_cuda(common: Any, gpus: int) -> None:
    import torch

    _devices_are_cpus(torch)
    for name in ("set_device", "synchronize", "manual_seed", "manual_seed_all", "empty_cache", "init"):
        setattr(torch.cuda, name, _nothing())
    torch.cuda.current_device = lambda: 0

    def guard(count: int, **_: Any) -> Any:
        return _guard(count <= gpus, common.TEST_SKIPS[f"multi-gpu-{count}"].exit_code)

    common.init_multigpu_helper = lambda world_size, backend: {rank: [rank] for rank in range(world_size)}
    common.skip_if_no_gpu = lambda test: test
    common.skip_if_lt_x_gpu = guard
    common.nccl_skip_if_lt_x_gpu = lambda backend, count: guard(count)


def _devices_are_cpus(torch: Any) -> None:
    from torch.overrides import TorchFunctionMode

    cpu = torch.device("cpu")

    def is_gpu(value: Any) -> bool:
        if isinstance(value, torch.device):
            return bool(value.type == "cuda")
        return isinstance(value, str) and (value == "cuda" or value.startswith("cuda:"))

    class ToCpu(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            named = dict(kwargs or {})
            if is_gpu(named.get("device")) or isinstance(named.get("device"), int):
                named["device"] = cpu
            args = tuple(cpu if is_gpu(it) else it for it in args)
            name = getattr(func, "__name__", "")
            if name == "to" and len(args) > 1 and type(args[1]) is int:
                args = (args[0], cpu, *args[2:])
            if name == "cuda":
                return args[0].clone() if isinstance(args[0], torch.Tensor) else args[0]
            return func(*args, **named)

    ToCpu().__enter__()
    real_to = torch.nn.Module.to

    def module_to(module: Any, *arguments: Any, **named: Any) -> Any:
        if "device" in named:
            named["device"] = cpu
        return real_to(module, *(cpu if is_gpu(it) or type(it) is int else it for it in arguments), **named)

    torch.nn.Module.to = module_to
    torch.nn.Module.cuda = lambda module, device=None: module
    parallel = torch.nn.parallel.DistributedDataParallel
    real_init = parallel.__init__

    @functools.wraps(real_init)
    def without_devices(
        model: Any, module: Any, device_ids: Any = None, output_device: Any = None, *a: Any, **k: Any
    ) -> Any:
        return real_init(model, module, None, None, *a, **k)

    parallel.__init__ = without_devices


def _nothing() -> Callable[..., None]:
    """One of its own for each place: the compiler refuses shared ones."""

    def nothing(*_: Any, **__: Any) -> None:
        return None

    return nothing
