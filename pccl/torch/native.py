# SPDX-License-Identifier: MIT
"""The C++ form of the backend: finds or compiles its object for this torch, loads it, makes backends.

What for: `registration.py` asks for a backend here and falls back to the Python form where there is none. Must not
know: runtimes, stores.

The one idea: the object reads the C API through addresses that it gets from the Python extension, so there is one copy
of the engine. It tells the digest of its sources, and an object of others is not used, wherever it was found. What is
compiled goes into a cache of the user: under a lock, so that the ranks of a host compile once, and by a rename, so that
nobody ever loads half of it.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import itertools
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed.distributed_c10d as c10d
from torch.distributed import Backend, ProcessGroup

from pccl import _cffi, _native
from pccl.errors import Closed, PCCLError, Status, Unsupported
from pccl.quantization import QuantizationOptions
from pccl.torch.group import Group, Part
from pccl.torch.toolchain import (
    CannotCompile,
    Sources,
    Torch,
    compile_object,
    compiler,
    compiler_version,
    installed_torch,
)


@dataclass(frozen=True)
class Wishes:
    """What torch may want of a group that only Python can do. Called with nothing locked."""

    ended: Callable[[bool], object] = lambda aborted: None
    """Called once, when torch shuts the group down or (True) aborts it."""
    split: Callable[[Part], object] | None = None
    """Makes a backend for a part of the group."""
    meet: Callable[[int, int], object] | None = None
    """Reconfigures the group to so many members, of which we are to be that one, or (-1) any. None: it cannot."""


Origin = Literal["prebuilt", "cached", "compiled"]

_STRUCTS = ("pccl_call", "pccl_info", "pccl_error")
_TOLD = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int)
_ASKED = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_int64,
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.POINTER(ctypes.c_uint32),
    ctypes.c_size_t,
    ctypes.c_int64,
    ctypes.POINTER(ctypes.c_char),
    ctypes.c_size_t,
)
_MET = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.POINTER(ctypes.c_char), ctypes.c_size_t
)


class Unavailable(Exception):
    """There is no C++ form here; the text says why."""


class Native:
    """The loaded object. `path` and `origin` say which."""

    def __init__(self, library: ctypes.CDLL, path: Path, origin: Origin) -> None:
        self._library, self.path, self.origin = library, path, origin
        self._tokens = itertools.count(1)
        self._wishes: dict[int, Wishes] = {}
        self._made: dict[str, tuple[int, bool, bool]] = {}  # by name: the newest of that name
        self._told = _TOLD(self._tell), _ASKED(self._split), _MET(self._meet)  # live as long as the object
        self._bind()

    def _bind(self) -> None:
        library = self._library
        library.pccl_torch_functions.restype = ctypes.c_char_p
        names = library.pccl_torch_functions().decode().split()
        ffi = _cffi.ffi
        addresses = [_native.address(ffi.addressof(_cffi.lib, name)) for name in names]
        sizes = [ffi.sizeof(name) for name in _STRUCTS]
        library.pccl_torch_bind.argtypes = [
            ctypes.c_void_p * len(addresses),
            ctypes.c_size_t * len(sizes),
            _TOLD,
            _ASKED,
            _MET,
        ]
        made = (ctypes.c_void_p * len(addresses))(*addresses), (ctypes.c_size_t * len(sizes))(*sizes)
        if library.pccl_torch_bind(*made, *self._told):
            raise Unavailable(f"{self.path} was compiled for another C API")
        library.pccl_torch_close.argtypes = [ctypes.c_void_p]

    def backend(
        self,
        group: Group,
        engine_address: int,
        wishes: Wishes,
        *,
        deterministic: bool = False,
    ) -> Backend:
        """A backend for a group of that engine. Its wish for a split is to call this once more."""
        token, elastic = next(self._tokens), wishes.meet is not None
        self._wishes[token] = wishes
        carrier = ProcessGroup.unbox(
            torch.ops.pccl_torch.backend(engine_address, token, *_described(group, deterministic, elastic))
        )
        made: Any = carrier._get_backend(torch.device("cpu"))
        self._made[group.name] = token, deterministic, elastic
        return made  # type: ignore[no-any-return]

    def group(self, group: Group, store: Any) -> ProcessGroup:
        """The newest backend of this group's name as a process group of its own, which says of itself what is so: up to
        torch 2.13 one that torch makes around a backend calls itself "custom", and has no sequence numbers."""
        token, _, _ = self._made[group.name]
        other = ProcessGroup(store, group.index, group.size)
        made: ProcessGroup = ProcessGroup.unbox(torch.ops.pccl_torch.named(other.boxed(), token))
        return made

    def quantized(
        self, group: ProcessGroup, device: torch.device, options: QuantizationOptions, errors: torch.Tensor | None
    ) -> ProcessGroup:
        """A group for one quantized call of the backend of ours that `group` has for `device`. `errors` are as long as
        that call's input."""
        form = options.native()[0]
        numbers = [form.format, form.block, form.stochastic, form.propagate, form.rotate, _signed(form.seed)]
        made = torch.ops.pccl_torch.quantized(group.boxed(), device, numbers, errors)
        return ProcessGroup.unbox(made)

    def rebind(self, engine_address: int, group: Group) -> None:
        """The newest backend of this group's name serves it from now on: in a later epoch, perhaps with other members,
        or over another engine. Nothing is under way. The process groups of that name say so, too."""
        token, *modes = self._made[group.name]
        torch.ops.pccl_torch.rebind(engine_address, token, *_described(group, *modes))
        for made, name in list(c10d._world.pg_names.items()):
            if name == group.name:
                torch.ops.pccl_torch.renumber(made.boxed(), group.index, group.size)

    def close(self, engine_address: int) -> bool:
        """Before the engine is freed: ends all that is under way, waits for threads inside, completes futures. Later
        calls of its backends raise. False: a thread does not leave, the engine must not be freed."""
        return bool(self._library.pccl_torch_close(engine_address))

    def _tell(self, token: int, aborted: int) -> None:
        wishes = self._wishes.pop(token, None)
        if wishes is not None:
            wishes.ended(bool(aborted))

    def _split(
        self, token: int, name: bytes, key: bytes, ranks: Any, count: int, timeout_ms: int, text: Any, text_bytes: int
    ) -> int:
        part = Part(name.decode(), key.decode(), tuple(ranks[:count]), timeout_ms / 1000)
        return _told(lambda: self._wish(token, "split")(part), text, text_bytes)

    def _meet(self, token: int, members: int, place: int, text: Any, text_bytes: int) -> int:
        return _told(lambda: self._wish(token, "meet")(members, place), text, text_bytes)

    def _wish(self, token: int, name: str) -> Callable[..., object]:
        wishes = self._wishes.get(token)
        if wishes is None:
            raise Closed("the group was destroyed")
        wish: Callable[..., object] | None = getattr(wishes, name)
        if wish is None:
            raise Unsupported(f"this group cannot {name}")
        return wish


def _told(wish: Callable[[], object], text: Any, text_bytes: int) -> int:
    """Its status, and for C++, which raises it again, why it failed."""
    try:
        wish()
    except Exception as failure:
        told = str(failure).encode()[: text_bytes - 1]
        ctypes.memmove(text, told + b"\0", len(told) + 1)
        return int(failure.status if isinstance(failure, PCCLError) else Status.SYSTEM)
    return int(Status.OK)


def _described(group: Group, deterministic: bool, elastic: bool) -> tuple[str, str, list[int], list[int]]:
    constants = _native.constants
    flags = constants.PCCL_DISCARD_INPUT
    flags |= constants.PCCL_DEFERRED if group.deferred else 0
    flags |= constants.PCCL_DETERMINISTIC if deterministic else 0
    numbers = (group.index, group.epoch, group.scope, group.tag, group.timeout_ms, flags, int(elastic))
    return group.name, group.key, list(group.ranks), [_signed(it) for it in numbers]


def _signed(number: int) -> int:
    """As torch's integers have 64 bits with a sign."""
    return number - (1 << 64) if number >> 63 else number


# ---------------------------------------------------------------- find, compile, load

_loading = threading.Lock()
_loaded: Native | Unavailable | None = None


def load() -> Native:
    """The object for this torch, the same one each time. Raises Unavailable."""
    global _loaded
    with _loading:
        if _loaded is None:
            try:
                _loaded = _load()
            except (Unavailable, CannotCompile) as failure:
                _loaded = Unavailable(str(failure))
        if isinstance(_loaded, Unavailable):
            raise _loaded
        return _loaded


def _load() -> Native:
    package, here = Path(__file__).parents[1], installed_torch()
    sources = Sources.beside(package)
    digest = sources.digest()
    prebuilt = Path(_cffi.__file__).parent / "torch" / here.name
    if prebuilt.exists() and _digest_of(prebuilt) == digest:
        return _opened(prebuilt, "prebuilt")
    command = compiler()
    key = hashlib.sha256(
        "\0".join((here.version, str(here.cxx11_abi), digest, *command, compiler_version(command))).encode()
    ).hexdigest()[:24]
    folder = cache_folder()
    path = folder / f"{here.name.removesuffix('.so')}-{key}.so"
    if path.exists():
        return _opened(path, "cached")
    with _locked(path.with_suffix(".lock")):
        if path.exists():
            return _opened(path, "cached")
        _compile_into(path, here, sources, command)
    return _opened(path, "compiled")


def cache_folder() -> Path:
    """Where compiled objects are kept: PCCL_CACHE, or pccl in the user's cache. Raises Unavailable for a folder that
    others can write to, as what lies there is loaded."""
    given = os.environ.get("PCCL_CACHE")
    folder = Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pccl"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError as failure:
        raise Unavailable(f"no folder for compiled objects: {failure}") from failure
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise Unavailable(f"others can write to {folder}, where compiled objects would be kept (set PCCL_CACHE)")
    return folder


def _compile_into(path: Path, here: Torch, sources: Sources, command: list[str]) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f"{path.stem}-", suffix=".part")
    os.close(handle)
    try:
        compile_object(here, sources, Path(name), command)
        os.replace(name, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _digest_of(path: Path) -> str | None:
    """The digest that an object carries, without loading it: two of one name must not meet in a process."""
    found = path.read_bytes().partition(b"pccl_torch sources ")[2]
    return found[:32].decode(errors="replace") if found else None


def _opened(path: Path, origin: Origin) -> Native:
    try:
        torch.ops.load_library(str(path))  # type: ignore[no-untyped-call]
        return Native(ctypes.CDLL(str(path)), path, origin)
    except (OSError, PCCLError) as failure:
        raise Unavailable(f"{path} cannot be loaded: {failure.__cause__ or failure}") from failure
