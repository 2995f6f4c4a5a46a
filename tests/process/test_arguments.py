# SPDX-License-Identifier: MIT
"""Arguments that are wrong in kind, in range or in layout: each is refused by a typed error, before anything happens.

The communicator is the same for all of them, so it also shows that a refusal leaves nothing behind.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import pccl

pytestmark = pytest.mark.process

NAN, INFINITY = float("nan"), float("inf")
NUMBERS_NOT = [None, "1", 1.5, b"1", [1], np.array([1, 2]), 1j]
SECONDS_NOT = [0, -1, NAN, INFINITY, None, "5", 1j, [1]]

X = np.ones(8, np.float32)


@pytest.fixture(scope="module")
def comm() -> Iterator[pccl.Communicator]:
    """A group by itself."""
    with pccl.MasterNode("127.0.0.1:0") as node:
        node.run()
        with pccl.Communicator(node.address, min_world_size=1) as comm:
            comm.connect()
            yield comm


def refused(text: str, call: Callable[..., object], *arguments: Any, **named: Any) -> None:
    """The call raises InvalidArgument with that text in it, and no array is touched."""
    with pytest.raises(pccl.InvalidArgument, match=text):
        call(*arguments, **named)
    assert (X == 1).all()


# ---------------------------------------------------------------------------------------------- constructors


@pytest.mark.parametrize("address", [None, 5, b"127.0.0.1:1", "a b:1", "\0:1", "x" * 64 + ":1", "..:1", "127.0.0.1:x"])
def test_addresses(address: Any) -> None:
    refused("address", pccl.Communicator, address)
    refused("address", pccl.MasterNode, address)


@pytest.mark.parametrize(
    "name", ["connect_timeout", "link_timeout", "operation_timeout", "master_timeout", "joint_timeout"]
)
def test_timeouts(name: str) -> None:
    for value in SECONDS_NOT:
        refused(f"{name} must be a positive number", pccl.Communicator, "127.0.0.1:1", **{name: value})
    assert pccl.Communicator("127.0.0.1:1", link_timeout=np.float32(3), operation_timeout=np.int64(9)) is not None


@pytest.mark.parametrize("name", ["peer_group", "p2p_connection_pool_size", "min_world_size", "place"])
def test_numbers(name: str) -> None:
    for value in (-1, 2**40, *(it for it in NUMBERS_NOT if name != "place" or it is not None)):
        refused(f"{name} must be a whole number", pccl.Communicator, "127.0.0.1:1", **{name: value})
    assert pccl.Communicator("127.0.0.1:1", **{name: np.int64(3)}) is not None


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("commit", [None, "later", np.array([1, 2])]),
        ("checksum", [None, "maybe", [], np.array([1, 2])]),
        ("shm", [None, "on", True]),
        ("rdma", [None, "on", True]),
        ("rdma_device", [5, b"mlx5_0", "", "a\0b", "x" * 64]),
        ("interface", [5, b"lo", ["lo"], "", ",", "no-such-interface", "203.0.113.9"]),
        ("advertise", [5, b"x", "", ":5", "0.0.0.0", "[::]:1", "224.0.0.1", "255.255.255.255", "127.0.0.1:70000"]),
        ("trace_dir", [5, ["x"], "a\0b"]),
        ("preserve_input", [None, 1, "no"]),
        ("master_returns", [None, 1, "no"]),
    ],
)
def test_words(name: str, values: list[Any]) -> None:
    for value in values:
        refused(name, pccl.Communicator, "127.0.0.1:1", **{name: value})


def test_the_masters_arguments() -> None:
    for value in (*SECONDS_NOT, 0.1):
        refused("heartbeat_timeout", pccl.MasterNode, "127.0.0.1:0", heartbeat_timeout=value)
    for founders in (0, -1, 2**20, *NUMBERS_NOT):
        refused("founders must be a whole number", pccl.MasterNode, "127.0.0.1:0", founders=founders)
    for journal in (5, "\0", "/dev/null", "/dev/zero"):
        refused("journal", pccl.MasterNode, "127.0.0.1:0", journal=journal)
    for address in ("127.0.0.1:0:0", "[::1:0"):
        refused("address", pccl.MasterNode, address)
    with pccl.MasterNode("127.0.0.1:0") as node:
        node.run()
        for value in (NAN, "x", 1j, [1]):
            refused("timeout must be", node.wait, value)
        assert not node.wait(0)


# ---------------------------------------------------------------------------------------------- collectives


def unfit() -> dict[str, Any]:
    """What cannot be reduced, by name."""
    return {
        "nothing": None,
        "a list": [1.0, 2.0],
        "bytes": bytearray(8),
        "a scalar": np.float32(1),
        "masked": np.ma.masked_array(X, mask=[1, 0] * 4),
        "strided": X[::2],
        "transposed": np.ones((3, 4)).T,
        "repeated": np.broadcast_to(X, (3, 8)),
        "foreign byte order": X.astype(">f4"),
        "long double": X.astype(np.longdouble),
        "date": X.astype("M8[s]"),
        "objects": X.astype(object),
        "read-only": np.frombuffer(bytes(8), np.float32),
    }


@pytest.mark.parametrize("what", list(unfit()))
def test_arrays(comm: pccl.Communicator, what: str) -> None:
    array = unfit()[what]
    refused("^send ", comm.all_reduce, array)
    refused("^send ", comm.all_reduce_async, array)
    refused("^x ", comm.broadcast, array)
    refused("^recv ", comm.all_gather, X, array)
    refused("^send ", comm.all_reduce_multiple_with_retry, [X.copy(), array])


def test_tensors(comm: pccl.Communicator) -> None:
    torch = pytest.importorskip("torch")
    freed = torch.ones(5)
    freed.untyped_storage().resize_(0)
    for tensor, text in (
        (torch.ones(3, 4).t(), "not contiguous"),
        (torch.ones(1).expand(4), "not contiguous"),
        (torch.ones(3, device="meta"), "meta"),
        (torch.ones(3).to_sparse(), "to_dense"),
        (torch.ones(3, dtype=torch.float8_e4m3fnuz), "float8_e4m3fnuz"),
        (torch.tensor([1 + 2j]).conj().imag, "resolve_neg"),
        (freed, "no memory"),
    ):
        refused(text, comm.all_reduce, tensor)
        refused(text, comm.all_gather, X, tensor)

    def mapped(one: Any) -> Any:
        refused("no memory of its own", comm.all_reduce, one)
        return one

    torch.func.vmap(mapped)(torch.ones(2, 3))
    parameter = torch.nn.Parameter(torch.ones(2))
    assert comm.all_reduce(parameter).world_size == 1


def test_operations_own_numbers(comm: pccl.Communicator) -> None:
    x = X.copy()
    refused("tag must be a whole number", comm.all_reduce, x, tag=2**63)
    for value in (-1, 2**64, *NUMBERS_NOT, 0.0):
        refused("tag must be a whole number", comm.all_reduce, x, tag=value)
        refused("tag must be a whole number", comm.barrier_async, tag=value)
        refused("root ", comm.broadcast, x, root=value)
        refused(r"op must be of ReduceOp \(SUM, AVG, PROD, MIN, MAX, .*\), not", comm.all_reduce, x, op=value)
        refused("algorithm must be of Algorithm", comm.all_reduce, x, algorithm=value)
        refused("epoch must be", comm.broadcast, x, epoch=value)
    for value in (0, -1, NAN, INFINITY, "x", 1j):
        refused("timeout must be", comm.all_reduce, x, timeout=value)
        refused("timeout must be", comm.commit, timeout=value)
    for tag in (2**63 - 1, np.uint64(2**63 - 1), np.int64(5)):
        assert comm.all_reduce(x, tag=tag).world_size == 1


def test_shapes_that_do_not_fit_together(comm: pccl.Communicator) -> None:
    refused("must be alike", comm.all_reduce, X, np.zeros(8))
    refused("must be alike", comm.all_reduce, X, np.zeros(7, np.float32))
    both = np.ones(12, np.float32)
    refused("overlap", comm.all_reduce, both[:8], both[4:])
    refused("recv", comm.reduce_scatter, X, np.zeros(3, np.float32))
    refused("recv", comm.all_gather, X, np.zeros(3, np.float32))


def test_lists_and_descriptors(comm: pccl.Communicator) -> None:
    for value in (None, 5, [], [5], "ab", X):
        refused(".", comm.all_reduce_multiple_with_retry, value)
    for value in (0, -1, 2**17, *NUMBERS_NOT):
        refused("max_in_flight", comm.all_reduce_multiple_with_retry, [X], max_in_flight=value)
    for value in (2**63 - 1, *NUMBERS_NOT):
        refused("tag must be", comm.all_reduce_multiple_with_retry, [X, X], tag=value)
    refused("operand_descriptor", comm.all_reduce, X, operand_descriptor=5)
    untyped: Any = "float32"
    refused("datatype", comm.all_reduce, X, operand_descriptor=pccl.ReduceOperandDescriptor(untyped))
    refused("quantization_options", comm.all_reduce, X, quantization_options=5)
    wrong = pccl.ReduceOpDescriptor(X, X, 5)
    refused("reduce_descriptor", comm.all_reduce_multiple_with_retry, [wrong])


def test_questions(comm: pccl.Communicator) -> None:
    for value in (None, "x", 99, 1):
        refused("no Attribute", comm.get_attribute, value)
    for value in (None, "x", 99, -1):
        refused("collective", comm.explain_call, value, X)
    refused("op must be", comm.explain_call, pccl.Collective.ALL_REDUCE, X, op="x")
    for value in (None, 5, "a\0b"):
        refused("path", comm.dump_trace, value)
    for value in ("", b".", "/dev/null/x"):
        with pytest.raises(pccl.SystemFailure, match="cannot write"):
            comm.dump_trace(value)
    for value in (0, -1, 1.5, "x", 10**9):
        refused(".", comm.connect, value)


def test_a_wait_may_be_told_any_number_of_seconds(comm: pccl.Communicator) -> None:
    handle = comm.all_reduce_async(X.copy())
    for value in (NAN, "x", 1j, [1]):
        refused("timeout must be", handle.wait, value)
    for value in (INFINITY, 1e300, 5, np.float32(5), None):
        assert handle.wait(value).world_size == 1
    for value in (0, -1):
        assert handle.wait(value).world_size == 1


# ---------------------------------------------------------------------------------------------- shared state


def test_shared_states(comm: pccl.Communicator) -> None:
    tensor = pccl.TensorInfo.from_numpy(X.copy(), "x")
    for value in (None, 5, [], [5], "ab", [X], tensor):
        refused(".", pccl.SharedState, value)
        refused("SharedState", comm.sync_shared_state, value)
    for value in (-1, 2**63, 1.5, None, "x"):
        refused("revision must be", pccl.SharedState, [tensor], value)
    for value in (None, 77, "x"):
        refused("Strategy", comm.sync_shared_state, pccl.SharedState([tensor]), value)
    for name in (5, None, "x" * 256, "\ud800"):
        refused("name", pccl.TensorInfo.from_numpy, X, name)
    refused("masked", pccl.TensorInfo, "x", np.ma.masked_array(X))
    assert comm.sync_shared_state(pccl.SharedState([tensor])).world_size == 1


# ---------------------------------------------------------------------------------------------- as objects


def test_everything_says_what_it_is(comm: pccl.Communicator) -> None:
    address = str(comm._options.master)
    assert repr(comm) == f"<pccl.Communicator, group 0 of the run at {address}: rank 0 of 1, epoch {comm.epoch}>"
    other = pccl.Communicator(address, 3)
    assert repr(other) == f"<pccl.Communicator, group 3 of the run at {address}: not connected>"
    other.close()
    assert repr(other) == f"<pccl.Communicator, group 3 of the run at {address}: closed>"
    handle = comm.all_reduce_async(X.copy())
    handle.wait()
    assert repr(handle).startswith("<pccl.Handle, ended: ReduceInfo(world_size=1, ")
    state = pccl.SharedState([pccl.TensorInfo.from_numpy(X.copy(), "x")], 7)
    assert repr(state) == "<pccl.SharedState, revision 7: 1 tensors, 32 bytes>"
    node = pccl.MasterNode("127.0.0.1:0")
    assert repr(node) == f"<pccl.MasterNode at {node.address}: not run>"
    node.run()
    assert repr(node) == f"<pccl.MasterNode at {node.address}: working>"
    node.destroy()
    assert repr(node) == f"<pccl.MasterNode at {node.address}: ended>"


def test_what_belongs_to_a_process_is_neither_copied_nor_pickled(comm: pccl.Communicator) -> None:
    with pccl.MasterNode("127.0.0.1:0") as node:
        node.run()
        for thing in (comm, comm.barrier_async(), node):
            for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
                with pytest.raises(TypeError, match=rf"a pccl\.{type(thing).__name__} cannot be copied or pickled"):
                    duplicate(thing)
        assert not node.wait(0)
    assert comm.barrier().world_size == 1
