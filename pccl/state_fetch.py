# SPDX-License-Identifier: MIT
"""Getting the tensors that this peer lacks from several donors at once, into memory of its own.

It knows requests, donors and hashes; not where requests go (a function starts them), nor what the master says. The
user's tensors are only read here: `publish`, which cannot fail half way, copies what was fetched over them.

The one idea: *every byte is verified before it counts, and every request can be made again*. A donor that breaks, is
slow or serves wrong bytes costs the requests in flight to it and nothing else; they go back to the queue and on to
another donor. So there is no state of "resuming": fetching from a changing set of donors is all there is.

A tensor of several chunks is fetched in two steps: its list of chunk hashes, which must hash to the agreed digest, then
runs of those chunks that differ from the own ones. The list is one request, so that who sent a wrong one is known. A
tensor of one chunk needs no list.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from pccl.errors import Aborted, Closed, Expelled, MasterLost, PCCLError, SharedStateError
from pccl.messages import StatePlan, StateReceived, StateTaken
from pccl.protocol.state_election import quoted
from pccl.shared_state import (
    CHUNK_BYTES,
    DIGEST_BYTES,
    Bytes,
    TensorInfo,
    chunk_count,
    chunk_digests,
    content_digest,
)

REQUEST_BYTES = 4 * CHUNK_BYTES
"""The most that one request asks for: large enough to hide a round trip, small enough to spread over donors."""

REQUESTS_PER_DONOR = 4
"""Requests in flight to one donor; with REQUEST_BYTES it bounds what a lost donor costs to 16 MiB."""

WRONG_ANSWERS = 2
"""So many answers that do not match their hash, and a donor is not asked again."""

RETRY_S = 0.5
"""How long a donor whose request failed is left alone. If it is lost for good, the master says so."""

SLICE_MS = 20
"""How long the oldest request is waited for before the others, and the caller, are looked at."""

_ENDED = (Aborted, Closed, Expelled, MasterLost)
"""Failures that are not a donor's."""


class Pending(Protocol):
    """A started request, as `_native.Operation`: `wait` gives None when time ran out, and raises what it ended with."""

    def wait(self, timeout_ms: int) -> Any: ...
    def done(self) -> bool: ...


class Start(Protocol):
    """Starts reading `target.nbytes` bytes at `offset` of `region` of `donor` into `target`."""

    def __call__(self, donor: bytes, region: int, offset: int, target: Bytes) -> Pending: ...


@dataclass(slots=True)
class _Donor:
    """A member to fetch from, and how it has behaved."""

    peer: bytes
    rank: int
    in_flight: int = 0
    wrong_answers: int = 0
    failures: int = 0
    retry_at: float = 0.0
    trouble: str = ""

    @property
    def banned(self) -> bool:
        return self.wrong_answers >= WRONG_ANSWERS

    def is_well(self, now: float) -> bool:
        return not self.banned and now >= self.retry_at

    def has_room(self, now: float) -> bool:
        return self.in_flight < REQUESTS_PER_DONOR and self.is_well(now)


@dataclass(slots=True)
class _Source:
    """One content of a tensor that is as good as any: its digest and its donors."""

    digest: bytes
    donors: list[_Donor]

    def is_well(self, now: float) -> bool:
        return any(donor.is_well(now) for donor in self.donors)


class _Tensor:
    """One tensor on its way: `staging` is its future content, of which only chunks that differ are ever touched."""

    def __init__(self, index: int, tensor: TensorInfo, own: Bytes, sources: list[_Source]) -> None:
        self.index = index
        self.tensor = tensor
        self.own = own
        self.sources = deque(sources)
        self.chunks = chunk_count(tensor.nbytes)
        self.turn = 0
        self.staging: Bytes = own
        self.digests: Bytes = own
        self.runs: list[slice] = []

    @property
    def source(self) -> _Source:
        return self.sources[0]

    def begin(self) -> list[_Request]:
        """(Re)starts from the present source; requests of an earlier turn are void. Returns the first requests."""
        self.turn += 1
        self.staging = np.empty(self.tensor.nbytes, np.uint8)
        self.digests = np.empty(self.chunks * DIGEST_BYTES, np.uint8)
        self.runs = []
        if self.chunks == 1:
            return [self._request(False, slice(0, self.tensor.nbytes))]
        return [self._request(True, slice(0, self.digests.nbytes))]

    def chunk_requests(self) -> list[_Request]:
        """The requests for all chunks that differ, neighbours together; the list of hashes is complete."""
        differ = np.flatnonzero((self.digests != self.own).reshape(-1, DIGEST_BYTES).any(axis=1))
        requests: list[_Request] = []
        for run in np.split(differ, np.flatnonzero(np.diff(differ) != 1) + 1):
            whole = slice(int(run[0]) * CHUNK_BYTES, min((int(run[-1]) + 1) * CHUNK_BYTES, self.tensor.nbytes))
            requests += [self._request(False, part) for part in _parts(whole)]
        return requests

    def _request(self, listing: bool, part: slice) -> _Request:
        return _Request(self, self.turn, listing, part, (self.digests if listing else self.staging)[part])

    def list_is_right(self) -> bool:
        return content_digest(self.tensor.dtype, self.tensor.shape, self.digests) == self.source.digest

    def is_right(self, part: slice) -> bool:
        found = chunk_digests(self.staging[part])
        if self.chunks == 1:
            return content_digest(self.tensor.dtype, self.tensor.shape, found) == self.source.digest
        first = part.start // CHUNK_BYTES * DIGEST_BYTES
        return bool(np.array_equal(found, self.digests[first : first + found.nbytes]))

    def complete(self) -> tuple[Bytes, Bytes]:
        """The whole future content and its chunk hashes; what was not fetched is copied from the user's tensor."""
        at = 0
        for run in [*sorted(self.runs, key=lambda it: it.start), slice(self.tensor.nbytes, self.tensor.nbytes)]:
            self.staging[at : run.start] = self.tensor.content[at : run.start]
            at = run.stop
        return self.staging, chunk_digests(self.staging) if self.chunks == 1 else self.digests

    def publish(self) -> None:
        """Copies what was fetched over the user's tensor."""
        for run in self.runs:
            self.tensor.content[run] = self.staging[run]


def _parts(whole: slice) -> list[slice]:
    """`whole` in pieces of REQUEST_BYTES at most."""
    return [
        slice(start, min(start + REQUEST_BYTES, whole.stop)) for start in range(whole.start, whole.stop, REQUEST_BYTES)
    ]


@dataclass(slots=True)
class _Request:
    """A part of a tensor's bytes, or of its list of chunk hashes, and where it goes."""

    tensor: _Tensor
    turn: int
    listing: bool
    part: slice
    target: Bytes

    @property
    def region(self) -> int:
        return 2 * self.tensor.index + self.listing

    @property
    def is_void(self) -> bool:
        """Whether the tensor was begun anew since."""
        return self.turn != self.tensor.turn


@dataclass(slots=True)
class _Flight:
    """A request that is on its way."""

    request: _Request
    donor: _Donor
    pending: Pending
    ended: bool = False


class StateFetch:
    """Fetches what a plan orders. `run` does it in the calling thread; `publish` makes it visible."""

    def __init__(
        self,
        plan: StatePlan,
        tensors: Sequence[TensorInfo],
        own: Sequence[Bytes],
        start: Start,
        patience_s: float = 60.0,
    ) -> None:
        """`tensors` and `own` (their chunk hashes) are all of the state's. Raises SharedStateError when the plan does
        not fit the state.

        Requests that `run` leaves behind when it raises may still write to memory that this object holds: whoever made
        `start` stops them before it lets go of it.
        """
        self._start = start
        self._patience_s = patience_s
        self._donors = [_Donor(donor.peer, donor.rank) for donor in plan.donors]
        self._tensors = self._orders(plan, tensors, own)
        self._ready: deque[_Request] = deque()
        self._flights: list[_Flight] = []
        self._failing_since: float | None = None
        self._received: dict[bytes, int] = {}

    def run(self, interrupted: Callable[[float], bool]) -> tuple[StateReceived, ...]:
        """Fetches and verifies all; returns how many bytes of content came from whom.

        `interrupted(seconds)` waits at most so long for a reason to stop, and then Aborted is raised. Raises
        SharedStateError when no donor gives what is needed, or none answered for `patience_s`; and what ended the
        communicator meanwhile.
        """
        for tensor in self._tensors:
            self._ready += tensor.begin()
        while self._ready or self._flights:
            self._issue()
            if interrupted(0.0 if self._flights else self._pause()):
                raise Aborted("fetching the shared state was interrupted")
            self._harvest()
        return tuple(StateReceived(peer, count) for peer, count in self._received.items())

    @property
    def taken(self) -> tuple[StateTaken, ...]:
        """Which content it was, where members may differ; after `run` has returned."""
        unequal = [it for it in self._tensors if it.tensor.allow_content_inequality]
        return tuple(StateTaken(it.index, it.source.digest) for it in unequal)

    def complete(self) -> dict[int, tuple[Bytes, Bytes]]:
        """The content of the tensors that were fetched, and their chunk hashes, by index; after `run` has returned.
        `publish` needs it as it is."""
        return {tensor.index: tensor.complete() for tensor in self._tensors}

    def publish(self) -> tuple[int, ...]:
        """Copies all that was fetched over the user's tensors, whose indices it returns. To be called once, after
        `run` has returned."""
        for tensor in self._tensors:
            tensor.publish()
        return tuple(tensor.index for tensor in self._tensors)

    def _orders(self, plan: StatePlan, tensors: Sequence[TensorInfo], own: Sequence[Bytes]) -> list[_Tensor]:
        sources: dict[int, list[_Source]] = {}
        for source in plan.fetch:
            if source.index >= len(tensors) or any(place >= len(self._donors) for place in source.donors):
                raise SharedStateError("the plan does not fit the state that was offered")
            donors = [self._donors[place] for place in source.donors] or self._donors
            if not donors:
                raise SharedStateError("the plan orders to fetch from nobody")
            sources.setdefault(source.index, []).append(_Source(source.digest, donors))
        return [_Tensor(index, tensors[index], own[index], found) for index, found in sources.items()]

    def _issue(self) -> None:
        """Starts requests while donors have room; those for which none has stay in order."""
        now = time.monotonic()
        held: list[_Request] = []
        while self._ready and any(donor.has_room(now) for donor in self._donors):
            request = self._ready.popleft()
            if request.is_void:
                continue
            donor = self._choose(request.tensor, now)
            if donor is None:
                held.append(request)
            elif not self._send(request, donor):
                self._ready.appendleft(request)
        self._ready.extendleft(reversed(held))

    def _choose(self, tensor: _Tensor, now: float) -> _Donor | None:
        """The least busy of the donors that have room. When all donors of the tensor's source are in trouble, it is
        the turn of the next source that has a better one."""
        if not tensor.source.is_well(now):
            better = next((source for source in tensor.sources if source.is_well(now)), None)
            if better is not None:
                tensor.sources.rotate(-tensor.sources.index(better))
                self._ready += tensor.begin()
            return None
        return min(
            (donor for donor in tensor.source.donors if donor.has_room(now)),
            key=lambda donor: (donor.in_flight, donor.failures),
            default=None,
        )

    def _send(self, request: _Request, donor: _Donor) -> bool:
        try:
            pending = self._start(donor.peer, request.region, request.part.start, request.target)
        except _ENDED:
            raise
        except PCCLError as error:
            self._fail(donor, str(error))
            return False
        donor.in_flight += 1
        self._flights.append(_Flight(request, donor, pending))
        return True

    def _pause(self) -> float:
        """How long to wait when nothing can be asked of anybody. Raises when that has lasted too long."""
        now = time.monotonic()
        if self._failing_since is not None and now - self._failing_since > self._patience_s:
            troubles = "; ".join(f"rank {donor.rank}: {donor.trouble}" for donor in self._donors if donor.trouble)
            raise SharedStateError(f"no donor answered for {self._patience_s:.0f} s: {troubles}")
        return min((donor.retry_at - now for donor in self._donors if donor.retry_at > now), default=0.0)

    def _harvest(self) -> None:
        """Takes what has arrived; waits a moment for the oldest request."""
        for place, flight in enumerate(self._flights):
            if place and not flight.pending.done():
                continue
            try:
                if flight.pending.wait(0 if place else SLICE_MS) is None:
                    continue
            except _ENDED:
                raise
            except PCCLError as error:
                self._fail(flight.donor, str(error))
                self._ready.appendleft(flight.request)
            else:
                self._failing_since = None
                self._accept(flight.request, flight.donor)
            flight.ended = True
            flight.donor.in_flight -= 1
        self._flights = [flight for flight in self._flights if not flight.ended]

    def _fail(self, donor: _Donor, text: str) -> None:
        now = time.monotonic()
        donor.trouble = text
        donor.failures += 1
        donor.retry_at = now + RETRY_S
        if self._failing_since is None:
            self._failing_since = now

    def _accept(self, request: _Request, donor: _Donor) -> None:
        tensor = request.tensor
        if request.is_void:
            return
        if request.listing:
            if tensor.list_is_right():
                self._ready += tensor.chunk_requests()
            else:
                self._ready.appendleft(request)
                self._accuse(donor, tensor)
        elif tensor.is_right(request.part):
            tensor.runs.append(request.part)
            self._received[donor.peer] = self._received.get(donor.peer, 0) + request.target.nbytes
        else:
            self._ready.appendleft(request)
            self._accuse(donor, tensor)

    def _accuse(self, donor: _Donor, tensor: _Tensor) -> None:
        """`donor` served bytes that do not match their hash. Raises when nobody is left to ask."""
        donor.wrong_answers += 1
        donor.trouble = f"its {quoted(tensor.tensor.name)} does not match the hash that it offered"
        holders = [holder for source in tensor.sources for holder in source.donors]
        if all(holder.banned for holder in holders):
            raise SharedStateError("; ".join(f"rank {holder.rank}: {holder.trouble}" for holder in holders))
