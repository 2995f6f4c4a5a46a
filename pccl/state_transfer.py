# SPDX-License-Identifier: MIT
"""One call of `sync_shared_state`: offers the state, follows the master's plans, takes over what was agreed.

It knows the control plane as a stream of outputs and the data plane as regions to serve and ranges to fetch. The one
idea: the calling thread reads the stream, and what a plan orders to fetch is fetched by a thread of its own, so the end
of the vote, a plan that replaces another, and Ctrl-C all find a thread that listens. Who only serves needs none, and
does not wait for one while others go on. What is served or written to is held by the engine or that thread until it has
stopped: a second Ctrl-C, which does not wait for it, endangers nothing. Only when
the vote has ended well, which means that every member holds verified bytes of all it lacked, does the caller copy what
was fetched over the user's tensors. Up to that point, whatever happens, nothing was changed.

Ctrl-C before the vote is complete withdraws it; while members fetch it fails the call for all of them, since one would
be left behind; once the master has answered it leaves this member alone with its old revision, and perhaps with half of
the new bytes. Calling again is right in each case: a revision that is not the agreed one is fetched anew.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from pccl._native import Engine, pin
from pccl.errors import InvalidArgument, PCCLError, SharedStateError
from pccl.messages import (
    MAX_BODY_BYTES,
    StateAgreed,
    StateFailed,
    StateFetched,
    StateOffer,
    StatePlan,
    clip,
    decode,
    encode,
)
from pccl.protocol.state_peer import Transfer
from pccl.protocol.types import PeerOutput, Resolve, VoteKind
from pccl.shared_state import (
    Bytes,
    SharedState,
    SharedStateSyncInfo,
    SharedStateSyncStrategy,
    StateDigest,
    chunk_digests,
    content_digest,
)
from pccl.state_fetch import Pending, StateFetch
from pccl.thread import Flag, Worker

REQUEST_TIMEOUT_MS = 10_000
"""After so long without any progress of a request, its donor is left alone for a while."""


class Outputs(Protocol):
    """The stream of an open vote: `control.Call`."""

    def next(self) -> PeerOutput: ...


class Voting(Protocol):
    """What is needed of the control plane: `control.Control`."""

    def vote(self, kind: VoteKind, body: bytes = b"") -> AbstractContextManager[Outputs]: ...
    def state_event(self, event: object) -> None: ...


def synchronise(
    control: Voting, engine: Engine, state: SharedState, strategy: SharedStateSyncStrategy
) -> SharedStateSyncInfo:
    """Makes `state` bit-identical on all members of the group and sets its revision to the agreed one.

    Blocks until all members have called it and hold the state. Raises SharedStateError and what joint calls raise;
    nothing was changed then. The tensors must not be written to meanwhile: that is noticed, but it cannot be undone.
    """
    if not isinstance(state, SharedState):
        raise InvalidArgument(f"a SharedState can be synchronised, not a {type(state).__name__}")
    try:
        strategy = SharedStateSyncStrategy(strategy)
    except ValueError:
        raise InvalidArgument(f"{strategy!r} is no SharedStateSyncStrategy") from None
    if strategy != SharedStateSyncStrategy.SEND_ONLY:
        _check_writable(state)
    digest = StateDigest.of(state)
    body = encode(StateOffer(state.revision, int(strategy), digest.entries))
    if len(body) > MAX_BODY_BYTES:
        raise InvalidArgument(f"names and shapes of the shared state take {len(body)} bytes, {MAX_BODY_BYTES} at most")
    work: _Work | None = None
    with control.vote(VoteKind.SYNC_SHARED_STATE, body) as call:
        try:
            while not isinstance(output := call.next(), Resolve):
                if isinstance(output, Transfer):
                    if work is not None:
                        work.end()
                    work = _Work(output.plan, control, engine, state, digest)
                    work.begin()
        finally:
            if work is not None:
                work.end()
    agreed = decode(output.body)
    if not isinstance(agreed, StateAgreed):
        raise SharedStateError(f"the master ended the vote with a {type(agreed).__name__}")
    if work is not None:
        work.publish(agreed.sync)
    state.revision = agreed.revision
    return SharedStateSyncInfo(agreed.sent, agreed.received, agreed.revision, agreed.world_size, output.epoch)


def _check_writable(state: SharedState) -> None:
    for tensor in state.tensors:
        if not tensor.content.flags.writeable:
            raise InvalidArgument(f"{tensor.name!r} is read-only, so that it can only be shared with SEND_ONLY")


class _Work:
    """What one plan orders, done from `begin` until `end`; if anything is to be fetched by a thread of its own, which
    stops what it began."""

    def __init__(
        self, plan: StatePlan, control: Voting, engine: Engine, state: SharedState, digest: StateDigest
    ) -> None:
        self._plan = plan
        self._control = control
        self._engine = engine
        self._tensors = state.tensors
        self._digest = digest
        self._fetch: StateFetch | None = None
        self._complete = False
        self._interrupt = Flag()
        self._thread = Worker("pccl-state", self._run) if plan.fetch else None

    def begin(self) -> None:
        """Starts it. Not part of the construction: whoever is interrupted in that has nothing to end."""
        if self._thread is None:
            self._do()
        else:
            self._thread.start()

    def end(self) -> None:
        """Stops fetching and serving; no memory is touched any more when this returns. Idempotent."""
        if self._thread is None:
            self._stop()
        else:
            self._interrupt.set()
            self._thread.wait()

    def publish(self, sync: int) -> None:
        """Takes over what was fetched, since `sync` ended well. Nothing, where this plan is of an election that a
        restarted master forgot: this peer lacks nothing of the new one, or it would have got another plan. Raises
        SharedStateError when it is not all there, or when the result is not the agreed content because somebody else
        wrote to it meanwhile."""
        if not self._plan.fetch or sync != self._plan.sync:
            return
        if self._fetch is None or not self._complete:
            raise SharedStateError("the vote ended before this peer had fetched the state")
        agreed = {(source.index, source.digest) for source in self._plan.fetch}
        for index in self._fetch.publish():
            tensor = self._tensors[index]
            if (index, content_digest(tensor.dtype, tensor.shape, chunk_digests(tensor.content))) not in agreed:
                raise SharedStateError(f"{tensor.name!r} was written to while it was synchronised")

    def _run(self) -> None:
        try:
            self._do()
            self._interrupt.wait()
        finally:
            self._stop()

    def _stop(self) -> None:
        try:
            self._engine.state_stop(self._plan.sync)
        except PCCLError:
            pass  # closed: it has stopped everything

    def _do(self) -> None:
        plan = self._plan
        report: StateFetched | StateFailed
        try:
            if plan.serve:
                self._serve({})
            if not plan.fetch:
                return
            self._fetch = StateFetch(plan, self._tensors, self._digest.chunks, self._start)
            received = self._fetch.run(self._interrupt.wait)
            if plan.relay:
                self._pass_on(self._fetch)
            report = StateFetched(plan.sync, received, self._fetch.taken, plan.round)
            self._complete = True
        except PCCLError as error:
            report = StateFailed(plan.sync, clip(str(error)), plan.round)
        except MemoryError:
            report = StateFailed(plan.sync, "out of memory", plan.round)
        if not self._interrupt.is_set():
            try:
                self._control.state_event(report)
            except PCCLError:
                pass  # closed: the caller hears of it by its vote

    def _pass_on(self, fetch: StateFetch) -> None:
        """Serves the agreed content from where it was fetched to. What is on its way to others from the own content is
        asked for again."""
        if self._plan.serve:
            self._engine.state_stop(self._plan.sync)
        self._serve(fetch.complete())

    def _serve(self, fetched: dict[int, tuple[Bytes, Bytes]]) -> None:
        """Region 2i is the content of tensor i, region 2i + 1 the list of its chunk hashes: as fetched, or the own."""
        own = enumerate(zip(self._tensors, self._digest.chunks, strict=True))
        pairs = [fetched.get(index, (tensor.content, hashes)) for index, (tensor, hashes) in own]
        self._engine.state_serve(self._plan.sync, [(pin(part, False), part.nbytes) for pair in pairs for part in pair])

    def _start(self, donor: bytes, region: int, offset: int, target: Bytes) -> Pending:
        return self._engine.state_fetch(
            self._plan.sync, donor, region, offset, target.nbytes, pin(target, True), REQUEST_TIMEOUT_MS
        )
