# SPDX-License-Identifier: MIT
"""Asking a master how the run is, as a stranger: no membership, no threads, one question at a time.

It knows the wire, not what the answer means. The one idea: a master answers nobody too often, so a question without an
answer is asked again; and whether anybody listens at all is found out by a plain connection first, since zmq would wait
for a master that may come.
"""

from __future__ import annotations

import secrets
import socket
import time
from types import TracebackType

import zmq

from pccl import addresses, messages
from pccl.addresses import HostPort
from pccl.errors import MasterLost, ProtocolError, Status, VersionMismatch
from pccl.messages import ID_BYTES, PROTOCOL_VERSION, Refused, StatusAnswer, StatusRequest
from pccl.sockets import new_socket, seal, unseal

AGAIN_S = 0.5


class StatusClient:
    """A connection to one master. All calls in one thread; Ctrl-C works in each."""

    def __init__(self, master: HostPort, timeout_s: float) -> None:
        """Connects. Raises MasterLost when nobody listens there within `timeout_s`."""
        self._master = master
        numeric = _listening(master, timeout_s)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = new_socket(self._context, zmq.DEALER, numeric)
        # A router takes ids that begin with a zero byte for its own.
        self._socket.setsockopt(zmq.ROUTING_ID, b"?" + secrets.token_bytes(ID_BYTES - 1))
        self._socket.connect(f"tcp://{numeric}")

    def ask(self, timeout_s: float) -> StatusAnswer:
        """Blocks up to `timeout_s`. Raises MasterLost (no answer), VersionMismatch, ProtocolError."""
        deadline = time.monotonic() + timeout_s
        while (left_s := deadline - time.monotonic()) > 0:
            self._socket.send(seal(messages.encode(StatusRequest(PROTOCOL_VERSION))))
            if self._socket.poll(int(1000 * min(AGAIN_S, left_s)) + 1):
                answer = unseal(self._socket.recv_multipart())
                if answer is not None:
                    return self._read(answer)
        raise MasterLost(f"the master at {self._master} did not answer within {timeout_s:g} s")

    def close(self) -> None:
        """Idempotent."""
        self._socket.close(linger=0)
        self._context.term()

    def __enter__(self) -> StatusClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read(self, data: bytes) -> StatusAnswer:
        while self._socket.poll(0):  # answers to questions that were asked again
            data = unseal(self._socket.recv_multipart()) or data
        answer = messages.decode(data)
        if isinstance(answer, StatusAnswer):
            return answer
        if isinstance(answer, Refused) and answer.reason == Status.VERSION:
            raise VersionMismatch(answer.text)
        raise ProtocolError(f"{self._master} answered with {type(answer).__name__}")


def _listening(master: HostPort, timeout_s: float) -> HostPort:
    """The first numeric address of the master that accepts a connection."""
    reason = "no address"
    try:
        found = addresses.resolve(master)
    except OSError as failure:
        raise MasterLost(f"no master at {master}: {failure.strerror}") from None
    for numeric in found:
        try:
            socket.create_connection((numeric.host, numeric.port), timeout_s).close()
        except OSError as failure:
            reason = failure.strerror or "no answer"
        else:
            return numeric
    raise MasterLost(f"no master at {master}: {reason}")
