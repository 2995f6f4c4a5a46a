# SPDX-License-Identifier: MIT
"""Shared states as users describe them: which tensors can be shared, and what their hashes cover."""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pccl.errors import InvalidArgument
from pccl.shared_state import (
    CHUNK_BYTES,
    SharedState,
    StateDigest,
    TensorInfo,
    chunk_count,
    chunk_digests,
    content_digest,
)

torch = pytest.importorskip("torch")

NUMPY_DTYPES = [
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
]
TORCH_DTYPES = [
    *("bool", "int8", "uint8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"),
    *("complex64", "complex128", "float8_e4m3fn", "float8_e5m2"),
]


def digest(tensor: object) -> bytes:
    return StateDigest.of(SharedState([TensorInfo("t", tensor)])).entries[0].digest


# ---------------------------------------------------------------- tensors


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
def test_numpy_array_of_every_dtype_is_shared_as_its_bytes(dtype: str) -> None:
    array = np.arange(6).astype(dtype).reshape(2, 3)
    info = TensorInfo.from_numpy(array, "a")
    assert (info.name, info.dtype, info.shape, info.numel, info.nbytes) == ("a", dtype, (2, 3), 6, array.nbytes)
    assert info.data_ptr == array.ctypes.data
    info.content[:] = 0
    assert not array.any()


@pytest.mark.parametrize("dtype", TORCH_DTYPES)
def test_torch_tensor_of_every_dtype_is_shared_as_its_bytes(dtype: str) -> None:
    tensor = torch.ones(2, 3).to(getattr(torch, dtype))
    info = TensorInfo.from_torch(tensor, "t")
    assert (info.dtype, info.shape, info.nbytes) == (dtype, (2, 3), 6 * tensor.element_size())
    assert info.data_ptr == tensor.data_ptr()
    info.content[:] = 0
    assert not tensor.to(torch.complex64).any()


def test_scalars_and_empty_tensors_are_tensors() -> None:
    for scalar in (np.array(3.5), torch.tensor(3.5, dtype=torch.float64)):
        info = TensorInfo("s", scalar)
        assert (info.shape, info.numel, info.nbytes) == ((), 1, 8)
    for empty in (np.empty((0, 3), np.float32), torch.empty(0, 3)):
        info = TensorInfo("e", empty)
        assert (info.shape, info.numel, info.nbytes) == ((0, 3), 0, 0)
        assert digest(empty) != digest(np.empty((0, 4), np.float32))


def test_parameter_that_requires_gradients_is_shared() -> None:
    parameter = torch.nn.Parameter(torch.ones(4))
    TensorInfo.from_torch(parameter, "p").content[:] = 0
    assert not parameter.detach().any()


def test_numpy_and_torch_agree_on_names_and_hashes() -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert digest(array) == digest(torch.from_numpy(array.copy()))


def tensors_that_are_refused() -> dict[str, object]:
    return {
        "not contiguous": np.ones((4, 4))[:, ::2],
        "Fortran order": np.asfortranarray(np.ones((4, 4))),
        "foreign byte order": np.ones(4, ">f4" if sys.byteorder == "little" else "<f4"),
        "objects": np.array([None, {}]),
        "records": np.zeros(2, [("a", "i4"), ("b", "f4")]),
        "transposed": torch.ones(2, 3).t(),
        "sparse": torch.ones(2, 2).to_sparse(),
        "conjugated": torch.ones(2, dtype=torch.complex64).conj(),
        "elsewhere": torch.ones(2, device="meta"),
        "a list": [1, 2, 3],
    }


@pytest.mark.parametrize("what", tensors_that_are_refused())
def test_what_is_not_plain_bytes_is_refused_by_name(what: str) -> None:
    with pytest.raises(InvalidArgument, match="'weight'"):
        TensorInfo("weight", tensors_that_are_refused()[what])


def test_constructors_insist_on_their_kind() -> None:
    with pytest.raises(InvalidArgument, match="not a numpy array"):
        TensorInfo.from_numpy(torch.ones(2), "t")
    with pytest.raises(InvalidArgument, match="not a torch tensor"):
        TensorInfo.from_torch(np.ones(2), "t")
    with pytest.raises(InvalidArgument, match="name"):
        TensorInfo("x" * 256, np.ones(2))


# ---------------------------------------------------------------- states


def test_state_starts_at_revision_zero_and_counts_up() -> None:
    state = SharedState([TensorInfo("a", np.ones(2))])
    assert state.revision == 0
    state.push_revision()
    assert state.revision == 1
    state.revision = 41
    state.push_revision()
    assert state.revision == 42


@pytest.mark.parametrize("revision", [-1, 2**63])
def test_revision_out_of_range_is_refused(revision: int) -> None:
    state = SharedState([TensorInfo("a", np.ones(2))])
    with pytest.raises(InvalidArgument, match=str(revision)):
        state.revision = revision
    assert state.revision == 0


def test_empty_states_and_double_names_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="not 0"):
        SharedState([])
    with pytest.raises(InvalidArgument, match="'a'"):
        SharedState([TensorInfo("a", np.ones(2)), TensorInfo("b", np.ones(2)), TensorInfo("a", np.ones(3))])


def test_order_of_construction_does_not_matter() -> None:
    a, b = TensorInfo("a", np.ones(2)), TensorInfo("b", np.zeros(3))
    assert SharedState([a, b]).hexdigest() == SharedState([b, a]).hexdigest()
    assert [tensor.name for tensor in SharedState([b, a]).tensors] == ["a", "b"]


def test_digest_of_a_state_covers_revision_names_and_contents_but_not_what_may_differ() -> None:
    def of(name: str = "a", value: float = 1.0, revision: int = 0, own: float = 0.0) -> str:
        free = TensorInfo("own", np.full(2, own), allow_content_inequality=True)
        return SharedState([TensorInfo(name, np.full(2, value)), free], revision).hexdigest()

    assert of() == of(own=9.0)
    assert len({of(), of(name="b"), of(value=2.0), of(revision=1)}) == 4


# ---------------------------------------------------------------- hashes


@pytest.mark.parametrize("content_bytes", [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES + 7])
def test_every_chunk_has_its_hash(content_bytes: int) -> None:
    content = np.random.default_rng(1).integers(0, 256, content_bytes, np.uint8)
    assert chunk_digests(content).nbytes == 16 * chunk_count(content_bytes)


def test_a_changed_bit_changes_the_hash_of_its_chunk_and_of_the_content() -> None:
    content = np.random.default_rng(2).integers(0, 256, 3 * CHUNK_BYTES, np.uint8)
    before = chunk_digests(content)
    content[CHUNK_BYTES + 5] ^= 1
    after = chunk_digests(content)
    assert np.flatnonzero((before != after).reshape(-1, 16).any(axis=1)).tolist() == [1]
    shape = (3 * CHUNK_BYTES,)
    assert content_digest("uint8", shape, before) != content_digest("uint8", shape, after)


def test_content_hash_covers_dtype_and_shape() -> None:
    zeros = np.zeros(8, np.uint8)
    views = [zeros, zeros.reshape(2, 4), zeros.reshape(4, 2), zeros.view(np.int8), zeros.view(np.float32)]
    assert len({digest(view) for view in views}) == len(views)


def test_signed_zeros_and_nans_are_bits_not_numbers() -> None:
    assert digest(np.array([0.0])) != digest(np.array([-0.0]))
    assert digest(np.array([np.nan])) == digest(np.array([np.nan]))


def test_tensor_whose_list_of_hashes_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pccl.shared_state.TENSOR_BYTES_MAX", 100)
    TensorInfo("fits", np.zeros(100, np.uint8))
    with pytest.raises(InvalidArgument, match="'big' has 101 bytes"):
        TensorInfo("big", np.zeros(101, np.uint8))


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
def test_a_copy_shares_the_memory_of_the_tensor_that_was_copied_with_it(duplicate: Callable[[Any], Any]) -> None:
    x = np.arange(4.0)
    model = {"x": x, "state": SharedState([TensorInfo("x", x, allow_content_inequality=True)], 5)}
    twin = duplicate(model)
    (tensor,) = twin["state"].tensors
    assert (twin["state"].revision, tensor.allow_content_inequality) == (5, True)
    tensor.content[:] = 0
    assert not twin["x"].any()
    assert x.any() == (duplicate is not copy.copy)
