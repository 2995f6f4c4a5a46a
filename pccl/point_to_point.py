# SPDX-License-Identifier: MIT
"""What one member sends to another: send, receive, and many of both at once.

The one idea: a send and its receive are one operation of two members, under the same rules as those of the whole group.
It succeeds on both or fails on both; after a PeerLost both call again, and the new calls meet. As a rank means another
peer in another epoch, each call is for one epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pccl import request
from pccl._native import ReduceInfo
from pccl.errors import PCCLError
from pccl.forms import Caller, starting
from pccl.handle import Handle


@dataclass(frozen=True, slots=True)
class Send:
    """One of a batch: see `Communicator.send`."""

    array: Any
    to: int
    tag: int = 0


@dataclass(frozen=True, slots=True)
class Recv:
    """One of a batch: see `Communicator.recv`. Without `source`, from whoever sends."""

    array: Any
    source: int | None = None
    tag: int = 0


class PointToPoint(Caller):
    """The part of a Communicator that is about two members. What `epoch` means is said at `reduce`."""

    def send(
        self,
        array: Any,
        to: int,
        *,
        tag: int = 0,
        epoch: int = 0,
        priority: int = 0,
        timeout: float | None = None,
    ) -> ReduceInfo:
        """Sends `array` to rank `to`, which receives it with the same tag, dtype and count. Returns when it has all of
        it (with `commit="deferred"`: when it has left).

        Sends of one tag to one rank arrive in the order of their calls. A numpy array or torch CPU tensor, contiguous;
        it may be empty. Raises InvalidArgument before any traffic, also for the own rank; PeerLost when the group
        changes, whoever was lost: then the other side has the same failure, or is lost; CollectiveMismatch on both
        sides if they differ; Unsupported where links are down and operations use none between the two;
        OperationTimeout, by which the epoch ends for all; TooFewPeers.
        """
        return self._run(request.send(array, to, tag, timeout, self._modes, self._group(epoch)), priority)

    def recv(
        self,
        array: Any,
        source: int | None = None,
        *,
        tag: int = 0,
        epoch: int = 0,
        priority: int = 0,
        timeout: float | None = None,
    ) -> ReduceInfo:
        """Receives what rank `source` sends with `tag` into all of `array`; without `source`, what anybody sends. The
        info's `peer` is the rank that sent it.

        A send goes to the receive that was called first of those that fit it. Of several senders that wait already, one
        without `source` takes the one that has waited longest. If nothing comes for such a one, it alone ends with
        OperationTimeout; that of a receive from a rank ends the epoch for all. Otherwise as `send`; what a failed
        receive leaves in `array` is undefined.
        """
        return self._run(request.recv(array, source, tag, epoch, timeout, self._modes, self._group(epoch)), priority)

    def batch_send_recv(
        self,
        operations: Sequence[Send | Recv],
        *,
        epoch: int = 0,
        priority: int = 0,
        timeout: float | None = None,
    ) -> list[ReduceInfo]:
        """Starts all, in order, and waits for all: their infos in the same order. So members may exchange without
        thinking of who sends first. All arguments are checked before anything starts, also that no array is received
        into that is part of another. When some fail, the first one's error is raised once all have ended. Otherwise as
        `send` and `recv`."""
        infos: list[ReduceInfo] = []
        failure: PCCLError | None = None
        handles = self.batch_send_recv_async(operations, epoch=epoch, priority=priority, timeout=timeout)
        for handle in handles:
            try:
                infos.append(handle.wait())
            except PCCLError as error:
                failure = failure or error
        if failure is not None:
            raise failure
        return infos

    def batch_send_recv_async(
        self,
        operations: Sequence[Send | Recv],
        *,
        epoch: int = 0,
        priority: int = 0,
        timeout: float | None = None,
    ) -> list[Handle]:
        """As `batch_send_recv`, but returns at once: a handle for each, in the same order."""
        requests = request.batch(operations, epoch, timeout, self._modes, self._group(epoch))
        return [self._launch(one, priority) for one in requests]

    send_async = starting(send)
    recv_async = starting(recv)
