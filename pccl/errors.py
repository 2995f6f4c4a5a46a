# SPDX-License-Identifier: MIT
"""The one list of failures: numbers of `pccl_status` (csrc/pccl.h), names, exception classes.

What for: every layer (C engine, protocol cores, torch backend) names a failure by the same number, and a user catches
one typed exception for it. Must not know: who raises what, and how a number came here.

The one idea: `LocalError` is *you* (the call was wrong, nothing happened), `RemoteError` is *they* (a peer, a link or
the master failed; the input is intact and a retry is legal). `error_for(status, text)` is the way from number to class.
"""

from __future__ import annotations

from enum import IntEnum


class Status(IntEnum):
    """The numbers of `pccl_status` in csrc/pccl.h, in the same order. Those from 100 on never come from the engine;
    PEER_DIED is a reason that its events give, and no call ends with it."""

    OK = 0
    INVALID = 1
    NO_MEMORY = 2
    SYSTEM = 3
    TIMEOUT = 4
    PEER_LOST = 5
    MISMATCH = 6
    CALL_MISMATCH = 7
    TOO_FEW_PEERS = 8
    EXPELLED = 9
    MASTER_LOST = 10
    ABORTED = 11
    PROTOCOL = 12
    UNSUPPORTED = 13
    CLOSED = 14
    STATE = 15
    PENDING = 16
    PEER_DIED = 17
    QUANTIZATION = 18
    VERSION = 100
    PENDING_OPERATIONS = 101
    OBJECT = 102


class PCCLError(Exception):
    """Base of everything that pccl raises. `status` is the number of `pccl_status` it stands for; `epoch` is the newest
    one whose end may have made an operation fail, 0 for other failures."""

    status: Status = Status.SYSTEM
    epoch: int = 0


class LocalError(PCCLError):
    """The caller's own doing: the call changed nothing, and calling it again the same way fails again."""


class RemoteError(PCCLError):
    """A peer, a link or the master failed. Inputs are intact unless they were given up; a retry is legal."""


class InvalidArgument(LocalError, ValueError):
    """An argument is wrong. Raised before anything was sent."""

    status = Status.INVALID


class PendingOperations(LocalError):
    """A joint call, while operations (or an uncommitted deferred step) of this communicator are still in flight."""

    status = Status.PENDING_OPERATIONS


class WaitTimeout(LocalError, TimeoutError):
    """`wait(timeout)` ran out of time. The operation goes on; waiting again is fine."""

    status = Status.PENDING


class Unsupported(LocalError, NotImplementedError):
    """This build or this machine cannot do what was asked."""

    status = Status.UNSUPPORTED


class OutOfMemory(LocalError, MemoryError):
    """An allocation of the data plane failed."""

    status = Status.NO_MEMORY


class SystemFailure(LocalError, OSError):
    """A system call of this process failed."""

    status = Status.SYSTEM


class Closed(LocalError):
    """The communicator is closed, or was closed while the call waited."""

    status = Status.CLOSED


class Aborted(LocalError):
    """The caller cancelled the operation."""

    status = Status.ABORTED


class PeerLost(RemoteError):
    """A member left the group during the operation. The next epoch is installed: call again."""

    status = Status.PEER_LOST


class TooFewPeers(RemoteError):
    """The group has fewer members than `min_world_size`. Wait for newcomers with `update_topology`."""

    status = Status.TOO_FEW_PEERS


class CollectiveMismatch(RemoteError):
    """Members called different things under one operation name; the text names both descriptors and ranks."""

    status = Status.MISMATCH


class QuantizationError(RemoteError):
    """A value of some member cannot be quantized: it is not finite, or too large for the format. The text names rank,
    element and value. Inputs are intact: call again with values that can, or let `nan="propagate"` pass them."""

    status = Status.QUANTIZATION


class CallMismatch(RemoteError):
    """Joint calls that can never meet: different ones at a time, or one against a collective that needs the caller."""

    status = Status.CALL_MISMATCH


class Expelled(RemoteError):
    """This peer was removed from the run. A new communicator may join again."""

    status = Status.EXPELLED


class MasterLost(RemoteError):
    """The master did not come back within `master_timeout`."""

    status = Status.MASTER_LOST


class OperationTimeout(RemoteError, TimeoutError):
    """An operation made no progress within its timeout, or a joint call (or `connect`) was not joined by all others
    within `joint_timeout`; the text names the call and the peers it waited for."""

    status = Status.TIMEOUT


class SharedStateError(RemoteError):
    """The shared state could not be agreed on or fetched."""

    status = Status.STATE


class ObjectError(RemoteError):
    """A Python object was not handed over: it could not be packed, is larger than a member takes, or its bytes are
    damaged; the text names the rank that has it."""

    status = Status.OBJECT


class ProtocolError(RemoteError):
    """The other side broke the wire protocol."""

    status = Status.PROTOCOL


class VersionMismatch(ProtocolError):
    """Master and peer speak different protocol versions; the text names both."""

    status = Status.VERSION


ERROR_CLASSES: dict[Status, type[PCCLError]] = {
    Status.INVALID: InvalidArgument,
    Status.NO_MEMORY: OutOfMemory,
    Status.SYSTEM: SystemFailure,
    Status.TIMEOUT: OperationTimeout,
    Status.PEER_LOST: PeerLost,
    Status.MISMATCH: CollectiveMismatch,
    Status.QUANTIZATION: QuantizationError,
    Status.CALL_MISMATCH: CallMismatch,
    Status.TOO_FEW_PEERS: TooFewPeers,
    Status.EXPELLED: Expelled,
    Status.MASTER_LOST: MasterLost,
    Status.ABORTED: Aborted,
    Status.PROTOCOL: ProtocolError,
    Status.UNSUPPORTED: Unsupported,
    Status.CLOSED: Closed,
    Status.STATE: SharedStateError,
    Status.PENDING: WaitTimeout,
    Status.VERSION: VersionMismatch,
    Status.PENDING_OPERATIONS: PendingOperations,
    Status.OBJECT: ObjectError,
}


def error_for(status: int, text: str) -> PCCLError:
    """The exception object for a status number. A number outside the list gives a plain PCCLError that names it."""
    try:
        known = Status(status)
    except ValueError:
        return PCCLError(f"unknown status {status}: {text}")
    return ERROR_CLASSES.get(known, PCCLError)(text)
