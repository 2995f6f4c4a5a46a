# SPDX-License-Identifier: MIT
"""The state that all members of a group hold alike: named tensors and a revision, as users describe them.

It knows memory and hashes, and nothing of masters, peers or transfers. The one idea: a tensor is raw bytes with a shape
and the name of a dtype, so every dtype of numpy and torch is shared alike, without being understood. Its content is
identified by two layers of XXH3-128 hashes: one per chunk of `CHUNK_BYTES`, and one over dtype, shape and the chunks'
hashes. Members agree on the second layer; the first lets a member with an old copy find out which chunks differ.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pccl._native import hash128
from pccl.arguments import whole
from pccl.errors import InvalidArgument
from pccl.messages import MAX_STATE_ENTRIES, MAX_STATE_NAME_CHARACTERS, StateEntry
from pccl.protocol.state_election import SharedStateSyncStrategy

if TYPE_CHECKING:
    import torch

__all__ = ["SharedState", "SharedStateSyncInfo", "SharedStateSyncStrategy", "TensorInfo"]

CHUNK_BYTES = 1 << 20
DIGEST_BYTES = 16
TENSOR_BYTES_MAX = 1 << 40
"""The list of chunk hashes of a tensor is fetched in one request, and those have at most 16 MiB."""

Bytes = npt.NDArray[np.uint8]


class TensorInfo:
    """One named tensor of a shared state: a contiguous numpy array or torch CPU tensor, borrowed, never copied.

    `allow_content_inequality` exempts it from comparison: members may hold different contents for good; it is only sent
    to members whose revision is not the agreed one. Raises `InvalidArgument` for what cannot be shared as plain bytes.
    """

    def __init__(self, name: str, tensor: Any, *, allow_content_inequality: bool = False) -> None:
        if not isinstance(name, str) or len(name) > MAX_STATE_NAME_CHARACTERS or not _is_encodable(name):
            raise InvalidArgument(
                f"a tensor's name is a string of at most {MAX_STATE_NAME_CHARACTERS} characters, not {name!r:.80}"
            )
        self.name = name
        self.allow_content_inequality = bool(allow_content_inequality)
        self.dtype, self.shape, self.content = _describe(name, tensor)
        if self.nbytes > TENSOR_BYTES_MAX:
            raise InvalidArgument(f"{name!r} has {self.nbytes} bytes; a tensor of a shared state has 1 TiB at most")
        self._tensor = tensor

    @classmethod
    def from_numpy(cls, tensor: npt.NDArray[Any], name: str, *, allow_content_inequality: bool = False) -> TensorInfo:
        """A numpy array of any native dtype without Python objects, C-contiguous."""
        if not isinstance(tensor, np.ndarray):
            raise InvalidArgument(f"{name!r} is a {type(tensor).__name__}, not a numpy array")
        return cls(name, tensor, allow_content_inequality=allow_content_inequality)

    @classmethod
    def from_torch(cls, tensor: torch.Tensor, name: str, *, allow_content_inequality: bool = False) -> TensorInfo:
        """A dense, contiguous torch tensor in CPU memory; a parameter that requires gradients is fine."""
        if not _is_torch(tensor):
            raise InvalidArgument(f"{name!r} is a {type(tensor).__name__}, not a torch tensor")
        return cls(name, tensor, allow_content_inequality=allow_content_inequality)

    @property
    def numel(self) -> int:
        """Elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def nbytes(self) -> int:
        """Bytes of content."""
        return self.content.nbytes

    @property
    def data_ptr(self) -> int:
        """The address of the first byte."""
        return int(self.content.ctypes.data)

    def __repr__(self) -> str:
        return f"TensorInfo({self.name!r}, {self.dtype}, {self.shape})"

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy is of the tensor that is copied with it, whose memory is another one then."""
        remake = partial(TensorInfo, allow_content_inequality=self.allow_content_inequality)
        return remake, (self.name, self._tensor)


class SharedState:
    """Named tensors and the revision that their content stands for.

    A new state starts at revision 0. Advance the revision by exactly one (`push_revision`) whenever the content was
    changed on purpose, on all members alike; `Communicator.sync_shared_state` sets it to the agreed one.
    """

    def __init__(self, tensor_infos: Sequence[TensorInfo], revision: int = 0) -> None:
        if not isinstance(tensor_infos, Sequence) or not all(isinstance(it, TensorInfo) for it in tensor_infos):
            raise InvalidArgument("a shared state is made of a list of TensorInfo")
        if not 1 <= len(tensor_infos) <= MAX_STATE_ENTRIES:
            raise InvalidArgument(f"a shared state has 1 to {MAX_STATE_ENTRIES} tensors, not {len(tensor_infos)}")
        # By name: the order in which all members number them, however each one built its list.
        self.tensors = tuple(sorted(tensor_infos, key=lambda tensor: tensor.name))
        for before, after in zip(self.tensors, self.tensors[1:], strict=False):
            if before.name == after.name:
                raise InvalidArgument(f"two tensors of the shared state have the name {after.name!r}")
        self.revision = revision

    @property
    def revision(self) -> int:
        """What the content stands for, for example the number of outer steps."""
        return self._revision

    @revision.setter
    def revision(self, value: int) -> None:
        self._revision = whole("revision", value, 0, (1 << 63) - 1)

    def push_revision(self) -> None:
        """Advances the revision by one."""
        self.revision += 1

    def __repr__(self) -> str:
        size = sum(tensor.nbytes for tensor in self.tensors)
        return f"<pccl.SharedState, revision {self.revision}: {len(self.tensors)} tensors, {size} bytes>"

    def hexdigest(self) -> str:
        """32 hexadecimal digits that are equal where revision, names, dtypes, shapes and contents are.

        Tensors with `allow_content_inequality` do not count. Reads every byte of the others.
        """
        return digest_of(StateDigest.of(self).entries, self.revision).hex()


@dataclass(frozen=True, slots=True)
class SharedStateSyncInfo:
    """What a synchronisation did: the agreed revision, the members that now hold it, and the bytes of tensor content
    that this peer sent and received (hashes are not counted; both are 0 where everybody was equal). `epoch` has
    the members that agreed."""

    tx_bytes: int
    rx_bytes: int
    revision: int
    world_size: int
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class StateDigest:
    """The hashes of a state at one moment: its entries as the master gets them, and the chunk hashes of each."""

    entries: tuple[StateEntry, ...]
    chunks: tuple[Bytes, ...]

    @classmethod
    def of(cls, state: SharedState) -> StateDigest:
        """Hashes all content; the GIL is released meanwhile."""
        chunks = tuple(chunk_digests(tensor.content) for tensor in state.tensors)
        entries = tuple(
            StateEntry(
                tensor.name,
                tensor.dtype,
                tensor.shape,
                content_digest(tensor.dtype, tensor.shape, hashes),
                tensor.allow_content_inequality,
            )
            for tensor, hashes in zip(state.tensors, chunks, strict=True)
        )
        return cls(entries, chunks)


def chunk_count(content_bytes: int) -> int:
    """Chunks of a content; the last one may be short."""
    return -(-content_bytes // CHUNK_BYTES)


def chunk_digests(content: Bytes) -> Bytes:
    """The hashes of all chunks, `DIGEST_BYTES` each."""
    digests = b"".join(hash128(content[start : start + CHUNK_BYTES]) for start in range(0, content.nbytes, CHUNK_BYTES))
    return np.frombuffer(digests, dtype=np.uint8)


def content_digest(dtype: str, shape: Sequence[int], chunks: Bytes) -> bytes:
    """The hash that names a content: it covers dtype, shape and, by its chunks' hashes, every byte."""
    head = f"{dtype}[{','.join(map(str, shape))}]".encode()
    return hash128(np.frombuffer(head + chunks.tobytes(), dtype=np.uint8))


def digest_of(entries: Sequence[StateEntry], revision: int) -> bytes:
    """The hash of a whole state, without the entries that may differ."""
    parts = [revision.to_bytes(8, "big")]
    for entry in entries:
        if not entry.allow_inequality:
            name = entry.name.encode()
            parts += [len(name).to_bytes(4, "big"), name, entry.digest]
    return hash128(np.frombuffer(b"".join(parts), dtype=np.uint8))


def _is_encodable(name: str) -> bool:
    """Lone surrogates are characters for Python, but for no other program."""
    try:
        return bool(name.encode()) or not name
    except UnicodeEncodeError:
        return False


def _is_torch(tensor: Any) -> bool:
    module = sys.modules.get("torch")
    return module is not None and isinstance(tensor, module.Tensor)


def _describe(name: str, tensor: Any) -> tuple[str, tuple[int, ...], Bytes]:
    if _is_torch(tensor):
        return _describe_torch(name, tensor)
    if isinstance(tensor, np.ndarray):
        return _describe_numpy(name, tensor)
    raise InvalidArgument(f"{name!r} is a {type(tensor).__name__}; a numpy array or a torch tensor can be shared")


def _describe_numpy(name: str, tensor: npt.NDArray[Any]) -> tuple[str, tuple[int, ...], Bytes]:
    dtype = tensor.dtype
    if isinstance(tensor, np.ma.MaskedArray):
        raise InvalidArgument(f"{name!r} is a masked array; share its data and its mask apart")
    if dtype.hasobject or dtype.type is np.void or not dtype.isnative:
        raise InvalidArgument(f"{name!r} has dtype {dtype!r}, which cannot be shared as plain bytes")
    if not tensor.flags.c_contiguous:
        raise InvalidArgument(f"{name!r} is not contiguous; share a contiguous array")
    # Plain ndarray: subclasses may refuse to be flattened.
    return dtype.name, tensor.shape, tensor.view(np.ndarray).reshape(-1).view(np.uint8)


def _describe_torch(name: str, tensor: torch.Tensor) -> tuple[str, tuple[int, ...], Bytes]:
    torch = sys.modules["torch"]
    if hasattr(tensor, "to_local"):
        raise InvalidArgument(f"{name!r} is a distributed tensor; share its local part")
    if tensor.device.type != "cpu":
        raise InvalidArgument(f"{name!r} is on {tensor.device}; share a CPU tensor")
    if tensor.is_nested or tensor.layout != torch.strided or tensor.is_quantized or tensor.is_conj() or tensor.is_neg():
        raise InvalidArgument(f"{name!r} is not a plain dense tensor")
    if not tensor.is_contiguous():
        raise InvalidArgument(f"{name!r} is not contiguous; share a contiguous tensor")
    if tensor.numel() > 0 and tensor.data_ptr() == 0:
        raise InvalidArgument(f"{name!r} has no memory: its storage was freed, or it is a fake tensor")
    content: Bytes = tensor.detach().reshape(-1).view(torch.uint8).numpy()
    return str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), content
