# SPDX-License-Identifier: MIT
"""pccl: fault-tolerant peer-to-peer collective communication for distributed machine learning.

    comm = pccl.Communicator("master.example.org:48148")
    comm.connect()
    while training:
        comm.update_topology()                  # admits newcomers
        comm.sync_shared_state(state)           # all hold the same bits
        while True:
            try:
                info = comm.all_reduce(gradient, op=pccl.ReduceOp.AVG)
                break
            except pccl.PeerLost:
                continue                        # the survivors simply go on

In reading order: `communicator` (what users call), `handle`, `control` (its thread), `_native` (the C library),
`protocol` (who is a member: pure state machines), `master`.
"""

from __future__ import annotations

import pccl_autoload

from pccl._native import ReduceInfo
from pccl.communicator import Communicator
from pccl.descriptors import DistributionHint, ReduceDescriptor, ReduceOpDescriptor, ReduceOperandDescriptor
from pccl.enums import Algorithm, Attribute, Collective, DataType, PremulSum, ReduceOp
from pccl.error_feedback import ErrorFeedback
from pccl.errors import (
    Aborted,
    CallMismatch,
    Closed,
    CollectiveMismatch,
    Expelled,
    InvalidArgument,
    LocalError,
    MasterLost,
    ObjectError,
    OperationTimeout,
    OutOfMemory,
    PCCLError,
    PeerLost,
    PendingOperations,
    ProtocolError,
    QuantizationError,
    RemoteError,
    SharedStateError,
    Status,
    SystemFailure,
    TooFewPeers,
    Unsupported,
    VersionMismatch,
    WaitTimeout,
)
from pccl.handle import Handle
from pccl.lanes import Job
from pccl.master import MasterNode
from pccl.point_to_point import Recv, Send
from pccl.quantization import QuantizationAlgorithm, QuantizationOptions
from pccl.shared_state import SharedState, SharedStateSyncInfo, SharedStateSyncStrategy, TensorInfo
from pccl.sparse import SparseSum, TopK, top_k
from pccl.subgroup import Subgroup
from pccl.trace.dump import install_trace_signal

__version__ = "0.1.0"

AsyncReduceHandle = Handle
"""The name that pypccl has for `Handle`."""

pccl_autoload.watch()

__all__ = [
    "Aborted",
    "Algorithm",
    "AsyncReduceHandle",
    "Attribute",
    "CallMismatch",
    "Closed",
    "Collective",
    "CollectiveMismatch",
    "Communicator",
    "DataType",
    "DistributionHint",
    "ErrorFeedback",
    "Expelled",
    "Handle",
    "InvalidArgument",
    "Job",
    "LocalError",
    "MasterLost",
    "MasterNode",
    "ObjectError",
    "OperationTimeout",
    "OutOfMemory",
    "PCCLError",
    "PeerLost",
    "PendingOperations",
    "PremulSum",
    "ProtocolError",
    "QuantizationAlgorithm",
    "QuantizationError",
    "QuantizationOptions",
    "Recv",
    "ReduceDescriptor",
    "ReduceInfo",
    "ReduceOp",
    "ReduceOpDescriptor",
    "ReduceOperandDescriptor",
    "RemoteError",
    "Send",
    "SharedState",
    "SharedStateError",
    "SharedStateSyncInfo",
    "SharedStateSyncStrategy",
    "SparseSum",
    "Status",
    "Subgroup",
    "SystemFailure",
    "TensorInfo",
    "TooFewPeers",
    "TopK",
    "Unsupported",
    "VersionMismatch",
    "WaitTimeout",
    "__version__",
    "install_trace_signal",
    "top_k",
]
