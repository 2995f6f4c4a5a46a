# SPDX-License-Identifier: MIT
"""The data plane as Python sees it: typed wrappers of csrc/pccl.h. With `_sparse` and `_codec`, the only importer of
the extension modules: `_cffi`, and `_quick`, where it could be built.

It knows nothing of masters, votes or what views mean. The one idea: *a call in progress holds a slot* (the C structs
of one call, made once and reused). Slots count the threads that are inside the engine, as the engine's door does for
calls that pass through there: `Engine.close` frees it only when all slots are back and nobody is behind the door, so no
thread can meet a freed engine.

The GIL is released in every call. Waits are cut into slices, between which Python runs signal handlers: Ctrl-C works
in every wait within SLICE_MS.
"""

from __future__ import annotations

import logging
import struct
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from pccl import recorded
from pccl._cffi import ffi, lib
from pccl.errors import Closed, PCCLError, error_for
from pccl.messages import NO_PRICES, Member, OperationName, Prices, ReportLine
from pccl.trace.record import EVENT_KINDS, Link
from pccl.trace.record import Event as RecordedEvent
from pccl.trace.record import Operation as RecordedOperation

try:
    from pccl import _quick
except ImportError:  # it was not built, or for another numpy
    _quick = None  # type: ignore[assignment]

F = TypeVar("F")

logger = logging.getLogger("pccl.native")

constants = lib
"""The enumerators of csrc/pccl.h by name."""

SLICE_MS = 200
"""The longest that a wait stays away from Python's signal handlers."""

_TOKENS = 256

_CLOSE_S = 1.0
"""How long `Engine.close` waits for threads inside the engine. Halting makes them return at once."""

Pointer = Any
"""A cffi pointer; one made by `pin` keeps its array alive."""

RULES: dict[str, Any] = {}
"""The Python functions that `_quick` stands in for, by name."""


def quickened(name: str, *pieces: object) -> Callable[[F], F]:
    """Replaces a function by the one of `_quick` with that name, which takes the usual case and calls the function at
    anything else. `pieces` are what it has to know."""

    def replaced(rule: F) -> F:
        RULES[name] = rule
        if _quick is not None:
            rule = getattr(_quick, f"{name}_for")(rule, *pieces)
        return rule

    return replaced


NULL: Pointer = ffi.NULL


class ReduceInfo(NamedTuple):
    """What a finished operation tells: with whom (world size, own rank, epoch), how, and its payload bytes. `peer` is
    the other one's rank, of a send or receive."""

    world_size: int
    tx_bytes: int
    rx_bytes: int
    rank: int
    epoch: int
    algorithm: int
    peer: int = 0

    @property
    def local_world_size(self) -> int:
        """Another name of `world_size`: the members of this peer's group."""
        return self.world_size


class Event(NamedTuple):
    """What the engine noticed; see `pccl_event`."""

    kind: int
    reason: int
    epoch: int
    peer: bytes
    tag: int
    sequence: int
    scope: int
    token: int
    waited_ms: int
    ranks: tuple[int, ...]
    absent: bool
    text: str


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """See `pccl_options`; zeros choose the defaults there."""

    peer: bytes
    run_secret: bytes
    listen_address: str
    listen_port: int = 0
    host_id: int = 0
    stripes: int = 0
    min_world_size: int = 0
    connect_timeout_ms: int = 0
    operation_timeout_ms: int = 0
    stall_ms: int = 0
    checksum: int = 0
    shared_memory: int = 0
    rdma: int = 0
    rdma_device: str = ""


def status_phrase(status: int) -> str:
    """The static English phrase of a status."""
    return str(ffi.string(lib.pccl_status_string(status)).decode())


def dtype_name(dtype: int) -> str:
    """As "float32"; "?" for numbers outside the list."""
    return str(ffi.string(lib.pccl_dtype_name(dtype)).decode())


def algorithm_name(algorithm: int) -> str:
    """As "ring"; "?" for numbers outside the list."""
    return str(ffi.string(lib.pccl_algorithm_name(algorithm)).decode())


def pin(array: Any, writable: bool) -> Pointer:
    """A pointer to the bytes of an object with a buffer, which stays exported (and alive) while the pointer lives.

    Raises BufferError or ValueError when it is not C-contiguous or, where asked for, not writable.
    """
    return ffi.from_buffer(array, require_writable=writable)


def pointer(address: int) -> Pointer:
    """A pointer made of a number; it keeps nothing alive."""
    return ffi.cast("void *", address)


def address(pointer: Pointer) -> int:
    """The number that a pointer is."""
    return int(ffi.cast("uintptr_t", pointer))


def counts(of: Sequence[int]) -> Pointer:
    """Elements by rank, as `pccl_call` takes them; they live as long as what is returned."""
    return ffi.new("uint64_t[]", of)


def tensors(of: Iterable[tuple[int, int, int]]) -> Pointer:
    """(input, output, elements) of each, as `pccl_call` takes them; they live as long as what is returned."""
    fields = [field for tensor in of for field in tensor]
    return ffi.from_buffer("pccl_tensor[]", struct.pack("@" + "PPQ" * (len(fields) // 3), *fields))


def extent(start: Pointer, dtype: int, elements: int) -> tuple[int, int]:
    """First address of an array's memory, and the first one behind it."""
    first = address(start)
    return first, first + elements * int(lib.pccl_dtype_bytes(dtype))


def hash128(data: Any) -> bytes:
    """XXH3, 128 bits, canonical byte order, of a C-contiguous buffer."""
    digest = ffi.new("uint8_t[16]")
    source = ffi.from_buffer(data)
    lib.pccl_hash128(source, len(source), digest)
    return bytes(ffi.buffer(digest))


class PlainCall:
    """A `pccl_call`, all zero at first, and what keeps alive what it points to."""

    __slots__ = ("call", "owner")

    def __init__(self, owner: object) -> None:
        self.call: Pointer = ffi.new(_CALL)
        self.owner = owner


class _PlainDoor:
    """Nobody passes through it: every call takes a slot."""

    __slots__ = ("closed", "forked", "inside")

    def __init__(self, engine: int) -> None:
        self.inside = 0
        self.closed = self.forked = False

    def run(self, call: PlainCall) -> ReduceInfo | None:
        return None

    def freed(self) -> None:
        pass


class _Slot:
    """The C structs of one call in progress. `operation` is set only while an operation outlives its C call."""

    __slots__ = ("__weakref__", "error", "info", "operation")

    def __init__(self) -> None:
        self.operation = ffi.new("pccl_operation **")
        self.info = ffi.new("pccl_info *")
        self.error = ffi.new("pccl_error *")


class Engine:
    """One `pccl_engine`. Any thread may call; calls after `close` raise Closed."""

    def __init__(self, options: EngineOptions) -> None:
        """Opens the listening port. Raises InvalidArgument, SystemFailure (the port is taken) or Unsupported (RDMA)."""
        raw = ffi.new("pccl_options *")
        raw.id.bytes = options.peer
        raw.host_id = options.host_id
        raw.run_secret = options.run_secret
        listen_address = ffi.new("char[]", options.listen_address.encode())
        device = ffi.new("char[]", options.rdma_device.encode())
        raw.listen_address, raw.rdma_device = listen_address, device
        raw.listen_port = options.listen_port
        raw.stripes = options.stripes
        raw.min_world_size = options.min_world_size
        raw.connect_timeout_ms, raw.operation_timeout_ms = options.connect_timeout_ms, options.operation_timeout_ms
        raw.stall_ms = options.stall_ms
        raw.checksum, raw.shared_memory, raw.rdma = options.checksum, options.shared_memory, options.rdma
        engine = ffi.new("pccl_engine **")
        error = ffi.new("pccl_error *")
        if lib.pccl_engine_new(raw, engine, error):
            raise _failure(error)
        self._engine: Pointer = engine[0]
        self.address = address(engine[0])
        self._door = Door(self.address)
        self._closed = False
        self._freed = False
        self._forked = False
        self._slots: list[_Slot] = []
        # All that live. A slot that a signal's exception took out of its call's hands is gone, and nobody's.
        self._made: weakref.WeakSet[_Slot] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._freeing = threading.Lock()
        self._kept: list[tuple[Operation, object]] = []
        self._served: dict[int, list[object]] = {}
        self._guests: list[Callable[[int], bool]] = []
        self._tokens = ffi.new("uint64_t[]", _TOKENS)
        self.port: int = lib.pccl_engine_port(self._engine)
        self.event_fd: int = lib.pccl_engine_event_fd(self._engine)

    # ------------------------------------------------------------ views

    def install(
        self,
        epoch: int,
        rank: int,
        members: Sequence[Member],
        ring: Sequence[int],
        commits: Sequence[OperationName] = (),
        cause: int = 0,
        cause_text: str = "",
        shape: int = constants.PCCL_SHAPE_FULL,
        parents: Sequence[int] = (),
        prices: Prices = NO_PRICES,
    ) -> None:
        """Makes a view the current one; see `pccl_engine_install`, also for errors. `parents` belong to a tree."""
        members_raw = ffi.new("pccl_member[]", len(members))
        for target, member in zip(members_raw, members, strict=True):
            target.id.bytes = member.id
            target.address = member.address.encode()
            target.port = member.port
            target.host_id = member.host_id
            target.cores = member.cores
        ring_raw = ffi.new("uint32_t[]", list(ring)) if ring else NULL
        parents_raw = ffi.new("uint32_t[]", list(parents)) if parents else NULL
        commits_raw = ffi.new("pccl_operation_name[]", [(name.tag, name.scope, name.sequence) for name in commits])
        text_raw = ffi.new("char[]", _c_text(cause_text))
        view = ffi.new("pccl_view *")
        view.epoch, view.size, view.rank = epoch, len(members), rank
        view.members, view.ring = members_raw, ring_raw
        view.shape, view.parents = shape, parents_raw
        view.commits, view.commits_count = commits_raw, len(commits)
        view.cause, view.cause_text = cause, text_raw
        view.prices.inside.latency_ns = prices.inside_latency_ns
        view.prices.inside.bytes_per_s = prices.inside_bytes_per_s
        view.prices.between.latency_ns = prices.between_latency_ns
        view.prices.between.bytes_per_s = prices.between_bytes_per_s
        with self._slot() as slot:
            if lib.pccl_engine_install(self._engine, view, slot.error):
                raise _failure(slot.error)

    def halt(self, status: int, text: str) -> None:
        """Ends every operation, open or later, with `status` until a further view is installed."""
        with self._slot():
            lib.pccl_engine_halt(self._engine, status, _c_text(text))

    def freeze(self, epoch: int) -> None:
        """Stops all operations of `epoch` for good; a FROZEN event follows."""
        with self._slot():
            lib.pccl_engine_freeze(self._engine, epoch)

    def dial(self, epoch: int, peer: bytes) -> None:
        """Makes the link to `peer` now; a LINKED event follows when it is there."""
        peer_raw = ffi.new("pccl_peer_id *")
        peer_raw.bytes = peer
        with self._slot():
            lib.pccl_engine_dial(self._engine, epoch, peer_raw[0])

    def report(self, epoch: int) -> list[ReportLine]:
        """The state of every operation of a frozen epoch. Raises InvalidArgument when it is not frozen here."""
        count = ffi.new("size_t *")
        capacity = 64
        with self._slot():
            while True:
                lines = ffi.new("pccl_report_line[]", capacity)
                status = lib.pccl_engine_report(self._engine, epoch, lines, capacity, count)
                if status:
                    raise error_for(status, f"epoch {epoch} is not frozen")
                if count[0] <= capacity:
                    break
                capacity = count[0]
        found = [lines[index] for index in range(count[0])]
        return [ReportLine(it.tag, it.returned_below, it.sequence, it.state, it.fingerprint, it.scope) for it in found]

    def scope_of(self, epoch: int, ranks: Sequence[int]) -> int:
        """The scope of operations of these ranks of the view of `epoch`; see `pccl_scope_of`, also for errors."""
        scope = ffi.new("uint64_t *")
        with self._slot() as slot:
            if lib.pccl_scope_of(self._engine, epoch, list(ranks), len(ranks), scope, slot.error):
                raise _failure(slot.error)
        return int(scope[0])

    def scope_ranks(self, scope: int) -> tuple[int, ...]:
        """The ranks that such a scope names, empty for any other."""
        with self._slot():
            count = lib.pccl_scope_ranks(self._engine, scope, NULL, 0)
            ranks = ffi.new("uint32_t[]", count)
            count = min(count, lib.pccl_scope_ranks(self._engine, scope, ranks, count))
        return tuple(ffi.unpack(ranks, count)) if count else ()

    def has_started(self, epoch: int, operation: OperationName) -> int:
        """Has this peer started the operation? 1, 0, or -1 when `epoch` is not the current one."""
        name = ffi.new("pccl_operation_name *", (operation.tag, operation.scope, operation.sequence))
        with self._slot():
            return int(lib.pccl_engine_has_started(self._engine, epoch, name[0]))

    def pending(self) -> int:
        """Operations that have not ended, plus 1 if deferred ones await a commit."""
        with self._slot():
            return int(lib.pccl_engine_pending(self._engine))

    def next_event(self) -> Event | None:
        """Takes the oldest event. Never blocks."""
        raw = ffi.new("pccl_event *")
        with self._slot():
            if not lib.pccl_engine_next_event(self._engine, raw):
                return None
        ranks = tuple(raw.ranks[index] for index in range(min(raw.ranks_count, lib.PCCL_EVENT_RANKS)))
        return Event(
            kind=raw.kind,
            reason=raw.reason,
            epoch=raw.epoch,
            peer=bytes(raw.peer.bytes),
            tag=raw.name.tag,
            sequence=raw.name.sequence,
            scope=raw.name.scope,
            token=raw.token,
            waited_ms=raw.waited_ms,
            ranks=ranks,
            absent=bool(raw.absent),
            text=ffi.string(raw.text).decode(errors="replace"),
        )

    def ended(self) -> list[int]:
        """Takes the tokens of operations that have ended, some at a time; none when all were taken. Never blocks. One
        thread at a time."""
        with self._slot():
            count = lib.pccl_engine_take_ended(self._engine, self._tokens, _TOKENS)
        return [] if count == 0 else list(ffi.unpack(self._tokens, count))

    def trace(self) -> list[RecordedOperation | RecordedEvent | Link]:
        """What the flight recorder remembers, in the order that `pccl_engine_trace` promises. Takes milliseconds."""
        capacity = lib.PCCL_RECORD_OPERATIONS + lib.PCCL_RECORD_NOTES + 64
        with self._slot():
            while True:
                raw = ffi.new("pccl_record[]", capacity)
                count = lib.pccl_engine_trace(self._engine, raw, capacity)
                if count <= capacity:
                    break
                capacity = count + 64
        return [_recorded(raw[index]) for index in range(count)]

    # ------------------------------------------------------------ operations

    def run(self, one: PlainCall) -> ReduceInfo:
        """Starts an operation and waits for its end; raises the error that it ended with.

        If an exception (Ctrl-C) ends the wait before the operation has ended, the call, and with it its owner, is kept
        until then.
        """
        info = self._door.run(one)
        return self._run(one) if info is None else info

    def _run(self, one: PlainCall) -> ReduceInfo:
        """The same without the door."""
        slot = self._take()
        try:
            status = lib.pccl_run(self._engine, one.call, SLICE_MS, slot.operation, slot.info, slot.error)
            while status == _PENDING:
                status = lib.pccl_wait(slot.operation[0], SLICE_MS, slot.info, slot.error)
            if status:
                raise _failure(slot.error)
            return _info(slot.info)
        finally:
            if slot.operation[0]:
                self._abandon(slot, one)
            self._slots.append(slot)

    def start(self, one: PlainCall, token: int) -> Operation:
        """Starts an operation whose `token` comes when it has ended. The caller keeps `one` alive until then."""
        call = one.call
        call.flags |= _NOTICED
        call.token = token
        slot = self._take()
        try:
            if lib.pccl_start(self._engine, call, slot.operation, slot.error):
                raise _failure(slot.error)
            return self._adopt(slot)
        finally:
            self._slots.append(slot)

    def release_tag(self, tag: int, epoch: int) -> None:
        """The user has seen that an operation of `tag` failed with the end of `epoch` (`PCCLError.epoch`): calls of
        that tag may run again (see `pccl.h`)."""
        with self._slot():
            lib.pccl_release_tag(self._engine, tag, epoch)

    def release_tags(self, epoch: int) -> None:
        """The same for all tags and failures up to `epoch`, and for a step that they broke."""
        with self._slot():
            lib.pccl_release_tags(self._engine, epoch)

    def explain(self, call: Pointer) -> str:
        """Which algorithm would run now for such a call, and why. Raises InvalidArgument, Unsupported."""
        text = ffi.new("char[]", lib.PCCL_MESSAGE_BYTES)
        with self._slot() as slot:
            if lib.pccl_explain(self._engine, call, text, lib.PCCL_MESSAGE_BYTES, slot.error):
                raise _failure(slot.error)
        return str(ffi.string(text).decode(errors="replace"))

    # ------------------------------------------------------------ bulk state transfer

    def state_serve(self, sync_id: int, regions: Sequence[tuple[Pointer, int]]) -> None:
        """Serves (pointer, bytes) regions to other members until `state_stop`, and keeps them alive until then."""
        self._served.setdefault(sync_id, []).append(regions)
        raw = ffi.new("pccl_region[]", [{"data": data, "bytes": size} for data, size in regions] or 1)
        with self._slot() as slot:
            if lib.pccl_state_serve(self._engine, sync_id, raw, len(regions), slot.error):
                raise _failure(slot.error)

    def state_stop(self, sync_id: int) -> None:
        """Ends serving and fetching under the id; all memory given for it may be freed afterwards."""
        with self._slot():
            lib.pccl_state_stop(self._engine, sync_id)
        self._served.pop(sync_id, None)

    def state_fetch(
        self, sync_id: int, peer: bytes, region: int, offset: int, size: int, target: Pointer, timeout_ms: int
    ) -> Operation:
        """Starts reading a range that `peer` serves. The caller keeps `target` alive until the operation ended."""
        whose = sync_id, ffi.new("pccl_peer_id *", {"bytes": peer})[0]
        with self._slot() as slot:
            where = region, offset, size, target, timeout_ms
            if lib.pccl_state_fetch(self._engine, *whose, *where, slot.operation, slot.error):
                raise _failure(slot.error)
            return self._adopt(slot)

    # ------------------------------------------------------------ end of life

    def close(self) -> None:
        """Ends all operations with CLOSED and frees the engine. Idempotent; blocks for a second at most. A call that a
        signal's exception ended may be repeated."""
        with self._freeing:
            if self._freed or self._forked:
                return
            self._closed = self._door.closed = True
            lib.pccl_engine_halt(self._engine, lib.PCCL_CLOSED, b"the communicator was closed")
            deadline = time.monotonic() + _CLOSE_S
            gone = {guest(self.address) for guest in self._guests} <= {True}  # all are asked
            while len(self._slots) < len(self._made) or self._door.inside or not gone:
                if time.monotonic() > deadline or not gone:
                    logger.error("a thread is still inside the engine; its memory is not returned")
                    return
                time.sleep(0.001)
            self._freed = True
            lib.pccl_engine_free(self._engine)
            self._kept.clear()
            self._door.freed()

    def at_close(self, guest: Callable[[int], bool]) -> None:
        """For code that calls the C API by itself: before the engine is freed `guest` gets its address, has its threads
        leave, and answers whether they have."""
        if guest not in self._guests:
            self._guests.append(guest)

    def forked(self) -> None:
        """To be called in a forked child: closes the inherited descriptors; every later call raises Closed."""
        self._forked = self._closed = self._door.forked = True
        self._lock = self._freeing = threading.Lock()
        if not self._freed:
            lib.pccl_engine_forked(self._engine)

    # ------------------------------------------------------------ slots

    def _take(self) -> _Slot:
        """A slot for one call; it must go back to `_slots`. Taken first, checked second: see `close`."""
        try:
            slot = self._slots.pop()
        except IndexError:
            slot = _Slot()
            with self._lock:
                self._made.add(slot)
        if self._closed:
            self._slots.append(slot)
            raise Closed(f"the communicator is {'unusable in a forked child' if self._forked else 'closed'}")
        return slot

    @contextmanager
    def _slot(self) -> Iterator[_Slot]:
        """The same as a context, which costs a microsecond more."""
        slot = self._take()
        try:
            yield slot
        finally:
            self._slots.append(slot)

    def _adopt(self, slot: _Slot) -> Operation:
        raw = slot.operation[0]
        slot.operation[0] = NULL  # first: nobody else may find it once it has an owner
        return Operation(self, raw)

    def _abandon(self, slot: _Slot, memory: object) -> None:
        """Takes an operation that nobody waits for any more out of `slot`, which is held. What it borrows is kept until
        it has ended; what has ended meanwhile is forgotten."""
        operation = self._adopt(slot)
        with self._lock:
            self._kept.append((operation, memory))
            self._kept = [entry for entry in self._kept if not entry[0].ended()]


class Operation:
    """One started operation. Freed when the last reference goes; an unfinished one goes on then."""

    __slots__ = ("_engine", "_operation")

    def __init__(self, engine: Engine, operation: Pointer) -> None:
        self._engine = engine
        self._operation = operation

    def wait(self, timeout_ms: int) -> ReduceInfo | None:
        """Blocks up to `timeout_ms` (signals wait as long): its info, or None when it has not ended yet.

        Raises the error that it ended with; Closed when the engine is closed.
        """
        engine = self._engine
        slot = engine._take()
        try:
            status = lib.pccl_wait(self._operation, timeout_ms, slot.info, slot.error)
            if status == _PENDING:
                return None
            if status:
                raise _failure(slot.error)
            return _info(slot.info)
        finally:
            engine._slots.append(slot)

    def describe(self) -> str:
        """What it is, how long it has run, and whom it waits for. Raises Closed when the engine is closed."""
        text = ffi.new("char[]", lib.PCCL_MESSAGE_BYTES)
        with self._engine._slot():
            lib.pccl_describe(self._operation, text, lib.PCCL_MESSAGE_BYTES)
        return str(ffi.string(text).decode(errors="replace"))

    def prompt(self) -> None:
        """Somebody sleeps until its token comes: it does at once when it has ended."""
        with self._engine._slot():
            lib.pccl_prompt(self._operation)

    def done(self) -> bool:
        """Whether it has ended. Never blocks. Raises Closed when the engine is closed."""
        with self._engine._slot():
            return self.ended()

    def ended(self) -> bool:
        """As `done`, for callers that hold a slot of the engine."""
        return bool(lib.pccl_done(self._operation))

    def __del__(self) -> None:
        if not self._engine._forked:
            lib.pccl_operation_free(self._operation)


def signal_pipe(number: int, fd: int) -> None:
    """Signal `number` writes a byte to `fd` from now on; 0 takes that back. See `pccl_signal_pipe`, also for errors."""
    error = ffi.new("pccl_error *")
    if lib.pccl_signal_pipe(number, fd, error):
        raise _failure(error)


def _names(of: Any, count: int) -> list[str]:
    return [str(ffi.string(of(number)).decode()) for number in range(count)]


def _call_of_its_own() -> tuple[Pointer, int]:
    """What a `Call` of `_quick` moves to when somebody looks at it."""
    made = ffi.new(_CALL)
    return made, address(made)


_CALL = ffi.typeof("pccl_call *")
_tuple = tuple.__new__  # a NamedTuple's own constructor takes twice as long
_PENDING = int(lib.PCCL_PENDING)
_NOTICED = int(lib.PCCL_NOTIFY | lib.PCCL_HOLD_TAG)
_WORDS = recorded.Words(
    collectives=_names(lib.pccl_collective_name, lib.PCCL_COLLECTIVE_COUNT),
    dtypes=_names(lib.pccl_dtype_name, lib.PCCL_DTYPE_COUNT),
    dtype_bytes=[int(lib.pccl_dtype_bytes(number)) for number in range(lib.PCCL_DTYPE_COUNT)],
    ops=_names(lib.pccl_reduce_op_name, lib.PCCL_REDUCE_OP_COUNT),
    algorithms=_names(lib.pccl_algorithm_name, lib.PCCL_ALGORITHM_COUNT),
)
_NO_PEER = bytes(16)
_RECORDED_EVENTS = dict(zip(range(lib.PCCL_RECORD_EPOCH, lib.PCCL_RECORD_LINK), EVENT_KINDS, strict=True))


def _recorded(raw: Pointer) -> RecordedOperation | RecordedEvent | Link:
    peer = bytes(raw.peer.bytes)
    name = peer.hex() if peer != _NO_PEER else ""
    text = ffi.string(raw.text).decode(errors="replace")
    if raw.kind == lib.PCCL_RECORD_OPERATION:
        return recorded.operation(raw, name, text, _WORDS)
    if raw.kind == lib.PCCL_RECORD_LINK:
        transport, _, obstacle = text.partition(": ")
        return Link(raw.rank, name, transport, raw.status, raw.started_ns, obstacle, raw.rtt_ns, raw.bytes_per_s)
    kind = _RECORDED_EVENTS[raw.kind]
    return RecordedEvent(kind, raw.at_ns, raw.epoch, raw.world_size, raw.rank, name, raw.status, text)


def _info(info: Pointer) -> ReduceInfo:
    fields = (info.world_size, info.tx_bytes, info.rx_bytes, info.rank, info.epoch, info.algorithm, info.peer)
    return _tuple(ReduceInfo, fields)


def _failure(error: Pointer) -> PCCLError:
    message = ffi.string(error.message).decode(errors="replace")
    failure = error_for(error.status, message)
    failure.epoch = int(error.epoch)
    return failure


def _failure_at(error: int) -> PCCLError:
    return _failure(ffi.cast("pccl_error *", error))


def _c_text(text: str) -> bytes:
    return text.encode().replace(b"\0", b" ")


if _quick is not None:
    _quick.calls_for(
        tuple(
            address(ffi.addressof(lib, name)) for name in ("pccl_run", "pccl_wait", "pccl_done", "pccl_operation_free")
        ),
        tuple(ffi.sizeof(name) for name in ("pccl_call", "pccl_info", "pccl_error")),
        SLICE_MS,
        ReduceInfo,
        _failure_at,
        _call_of_its_own,
    )
if TYPE_CHECKING or _quick is None:
    Call = PlainCall
    Door = _PlainDoor
else:
    Call = _quick.Call
    Door = _quick.Door
