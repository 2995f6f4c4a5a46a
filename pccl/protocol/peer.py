# SPDX-License-Identifier: MIT
"""The peer's half of the control plane, as a pure state machine.

What for: it turns what the master says, what the engine notices and what the user calls into outputs (types.py) that
the shell performs in order. Must not know: sockets, threads, clocks, the C library.

The one idea: everything that matters to the master and has no answer yet (the open vote, the report of a frozen epoch,
suspicions, stalls) is kept here and said again after every Welcome. So a lost connection or a restarted master needs no
case of its own.

Life of the shell, in order:

1. `connect(now)`: Tell(Hello). The shell dials; messages told before the connection stands wait in the socket.
2. Welcome arrives: OpenDataPlane(run_secret). The shell creates the engine and calls `opened(...)`: Tell(Register).
3. Accepted: Install(view), then Resolve(CONNECT_CALL). A refusal is Reject(CONNECT_CALL, ...) and Halt.
4. Engine events: FROZEN -> `engine_frozen` (with pccl_engine_report), SUSPECT -> `engine_suspect`,
   STALLED -> `engine_stalled`. DONE is the shell's alone.
5. `vote(...)` per joint call; its end is Resolve or Reject with the same call number.
6. The socket's monitor: `disconnected`, `reconnected` (say the second and later connections). One timer: `deadline`.
7. `leave(...)`: Tell(Leave), Halt(CLOSED). The shell flushes the socket and closes.
"""

from __future__ import annotations

from collections.abc import Sequence

from pccl.messages import Census, Message, OperationName, ReportLine, View
from pccl.protocol.types import Limits, PeerId, PeerOutput, PeerSync, VoteKind


class PeerProtocol:
    """See the module. All `now` are integer milliseconds of one monotonic clock; events may not go back in time."""

    def __init__(
        self,
        peer: PeerId,
        secret: bytes,
        group: int,
        *,
        sync: PeerSync,
        master_timeout_ms: int = 60_000,
        limits: Limits | None = None,
    ) -> None:
        """`peer` and `secret` are 16 fresh random bytes each. `limits` count until Welcome brings the master's."""
        raise NotImplementedError

    # Read-only state for the shell and for attributes of the communicator.

    @property
    def view(self) -> View | None:
        """The installed view, None before acceptance."""
        raise NotImplementedError

    @property
    def rank(self) -> int:
        """This peer's rank in `view`; -1 before acceptance."""
        raise NotImplementedError

    @property
    def census(self) -> Census:
        """The latest word on the whole run (zeros before Welcome)."""
        raise NotImplementedError

    # The user's calls.

    def connect(self, now: int) -> list[PeerOutput]:
        raise NotImplementedError

    def opened(self, address: str, port: int, host_id: int, now: int) -> list[PeerOutput]:
        """The data plane listens there. `address` is what other peers dial."""
        raise NotImplementedError

    def vote(self, kind: VoteKind, call: int, body: bytes, pending: int, now: int) -> list[PeerOutput]:
        """A joint call. `call` > 0 rises with each vote. `pending` is pccl_engine_pending: nonzero rejects the call
        with PENDING at once, unless the kind is ARE_PEERS_PENDING. Another open vote rejects it with INVALID."""
        raise NotImplementedError

    def leave(self, text: str, now: int) -> list[PeerOutput]:
        """Ends all: open calls are rejected with CLOSED."""
        raise NotImplementedError

    # What the engine noticed.

    def engine_frozen(
        self, epoch: int, suspect: PeerId, reason: int, text: str, lines: Sequence[ReportLine], now: int
    ) -> list[PeerOutput]:
        """PCCL_EVENT_FROZEN with its report; `suspect` is NOBODY (not 16 zero bytes) where there is none."""
        raise NotImplementedError

    def engine_suspect(self, epoch: int, peer: PeerId, reason: int, text: str, now: int) -> list[PeerOutput]:
        """PCCL_EVENT_SUSPECT."""
        raise NotImplementedError

    def engine_stalled(
        self, epoch: int, operation: OperationName, waited_ms: int, ranks: Sequence[int], now: int
    ) -> list[PeerOutput]:
        """PCCL_EVENT_STALLED."""
        raise NotImplementedError

    def started_answer(self, epoch: int, operation: OperationName, answer: int, now: int) -> list[PeerOutput]:
        """The result of pccl_engine_has_started for an Ask: 1, 0 or -1."""
        raise NotImplementedError

    def install_failed(self, epoch: int, text: str, now: int) -> list[PeerOutput]:
        """pccl_engine_install refused a view: this peer cannot go on and leaves."""
        raise NotImplementedError

    def state_event(self, event: object, now: int) -> list[PeerOutput]:
        """Handed to the PeerSync."""
        raise NotImplementedError

    # The control connection and the clock.

    def received(self, message: Message, now: int) -> list[PeerOutput]:
        raise NotImplementedError

    def malformed(self, text: str, now: int) -> list[PeerOutput]:
        """`decode` refused what the master sent."""
        raise NotImplementedError

    def disconnected(self, now: int) -> list[PeerOutput]:
        raise NotImplementedError

    def reconnected(self, now: int) -> list[PeerOutput]:
        raise NotImplementedError

    def timed_out(self, now: int) -> list[PeerOutput]:
        raise NotImplementedError

    def deadline(self) -> int | None:
        """When `timed_out` wants to be called next; earlier calls do no harm."""
        raise NotImplementedError

    def explain(self) -> str:
        """What this peer waits for, and for whom; empty if for nothing."""
        raise NotImplementedError
