# SPDX-License-Identifier: MIT
"""The user's end of pccl: joins a run, calls collectives, survives the loss of others.

It checks arguments and forwards; it decides nothing. Two ways lead down from here: a collective goes straight to the
engine (no other thread, no master), a joint call (topology, shared state) goes to the control thread. What both
need lives in a `Control`, which knows nothing of the Communicator: so dropping the last reference to a Communicator, or
leaving the interpreter, closes it in good order.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Literal, NoReturn

from pccl import addresses, reach, request
from pccl._native import Engine, ReduceInfo
from pccl.arguments import choice, milliseconds, truth, whole
from pccl.collectives import Collectives
from pccl.control import Control, ControlOptions, Paths
from pccl.enums import Algorithm, Attribute, Collective, PremulSum, ReduceOp
from pccl.errors import Closed, InvalidArgument, PCCLError, SystemFailure
from pccl.handle import Flights, Handle
from pccl.lanes import Job, Lanes
from pccl.messages import MAX_MEASURED_LINKS, NO_PLACE, MeasuredLink, MeasuredLinks, View, encode
from pccl.point_to_point import PointToPoint
from pccl.protocol.types import Resolve, VoteKind
from pccl.quantization import QuantizationOptions
from pccl.request import Members, Request, prefer
from pccl.shared_state import SharedState, SharedStateSyncInfo, SharedStateSyncStrategy
from pccl.state_transfer import synchronise
from pccl.steps import Steps
from pccl.subgroup import Subgroup
from pccl.trace import dump
from pccl.trace.record import Trace

_CHECKSUMS = {"auto": 0, "always": 1, "never": 2}
_SHARED_MEMORY = {"auto": 0, "off": 1}
_RDMA = {"off": 0, "auto": 1, "require": 2}
_STRIPES_MAX = 64
_DEVICE_BYTES = 63


def _paths(shm: str, rdma: str, device: str | None) -> Paths:
    sharing, fabric = _SHARED_MEMORY[choice("shm", shm, _SHARED_MEMORY)], _RDMA[choice("rdma", rdma, _RDMA)]
    if device is None:
        return Paths(sharing, fabric, "")
    if isinstance(device, str) and 0 < len(device.encode()) <= _DEVICE_BYTES and "\0" not in device:
        return Paths(sharing, fabric, device)
    raise InvalidArgument(f"rdma_device is {device!r}: it must be a name as ibv_devices shows it, or None")


class Communicator(Collectives, Steps, PointToPoint):
    """One peer of a run.

    `address` is the master's HOST:PORT (a name, IPv4 or [IPv6]). Peers with the same `peer_group` do collectives with
    each other. `p2p_connection_pool_size` is the number of TCP connections per link, 0 chooses.

    `interface` says what to listen on: names, addresses or networks, separated by commas, excluded with ^ ("eth0",
    "10.0.0.0/8", "^docker0"); default is the local address of the route to the master. `advertise` is the HOST[:PORT]
    that other peers dial, where this host cannot know it itself (a port there is also the one listened on).

    Of newcomers that are admitted together, the one with the lower `place` gets the lower rank; those without one come
    last, in the order of their arrival.

    `commit="each"`: every operation succeeds or fails alike on all survivors before it returns. "deferred": operations
    return when this peer is done, and `commit()` settles all since the last one at once. `preserve_input=False` lets an
    in-place operation that fails destroy its input, for speed. With `deterministic=True` everything that reduces does
    so in an order that depends on ranks and world size alone: the same contributions give the same bits, whatever
    count, algorithm, root and ring order. That costs large arrays some speed, needs a link between any two members
    (else Unsupported), and knows fewer algorithms. Without it members agree as well, but a run that is repeated may
    round differently. Peers of one host share memory where the system lets them; `shm="off"` makes them use what all
    others use. That is TCP, or with `rdma="auto"` RDMA where both ends of a link can (docs/rdma.md); `rdma="require"`
    refuses TCP, and says what is missing; `rdma_device` names the device to use.

    Timeouts are in seconds: `connect_timeout` until a master is there; `link_timeout` until another peer answers
    (at most `operation_timeout`); `operation_timeout` without any progress of an operation, and ten times that at
    most while data of others move between this peer and those it waits for; `master_timeout` for a master that went
    away, before MasterLost (with `master_returns=False` at once, when its host says that nobody listens there any
    more); `joint_timeout` until all others have made the same joint call, and until they admit this peer. It has to be
    longer than the longest stretch of work that another peer does between such calls. It may be shorter than
    `operation_timeout`, but then gives up on a peer that an operation still holds; and shorter than `master_timeout`,
    but then calls made while the master was away end when it returns. The heartbeat limit is the master's to set.

    `trace_dir` is a folder in which each failure of a kind and epoch leaves a flight record, readable by `pccl trace`
    (default: PCCL_TRACE_DIR, else none); it keeps the newest 64 files. See docs/diagnosis.md.

    Any thread may call. Operations of one tag are matched in the order of their calls, so threads use tags of their
    own. After a fork, the child's copy is unusable and raises Closed; the parent goes on.
    """

    def __init__(
        self,
        address: str,
        peer_group: int = 0,
        p2p_connection_pool_size: int = 0,
        *,
        place: int | None = None,
        advertise: str | None = None,
        interface: str | None = None,
        commit: Literal["each", "deferred"] = "each",
        preserve_input: bool = True,
        deterministic: bool = False,
        min_world_size: int = 2,
        checksum: Literal["auto", "always", "never"] = "auto",
        shm: Literal["auto", "off"] = "auto",
        rdma: Literal["off", "auto", "require"] = "off",
        rdma_device: str | None = None,
        connect_timeout: float = 60.0,
        link_timeout: float = 10.0,
        operation_timeout: float = 300.0,
        master_timeout: float = 60.0,
        master_returns: bool = True,
        joint_timeout: float = 300.0,
        trace_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        """Checks everything that can be checked; `connect` talks to others. Raises InvalidArgument."""
        link_timeout_ms = milliseconds("link_timeout", link_timeout)
        operation_timeout_ms = milliseconds("operation_timeout", operation_timeout)
        if link_timeout_ms > operation_timeout_ms:
            raise InvalidArgument(
                f"link_timeout ({link_timeout:g} s) must not be longer than operation_timeout "
                f"({operation_timeout:g} s), or an operation could never wait for its link"
            )
        if interface is not None:
            addresses.Selection(interface).choose()
        master = addresses.parse(address)
        if master.port == 0:
            raise InvalidArgument(f"address {address!r}: no master listens at port 0")
        self._options = ControlOptions(
            master=master,
            group=whole("peer_group", peer_group, 0, 2**32 - 1),
            advertise=None if advertise is None else reach.numeric(advertise),
            interface=interface,
            stripes=whole("p2p_connection_pool_size", p2p_connection_pool_size, 0, _STRIPES_MAX),
            min_world_size=whole("min_world_size", min_world_size, 1, 2**32 - 1),
            checksum=_CHECKSUMS[choice("checksum", checksum, _CHECKSUMS)],
            paths=_paths(shm, rdma, rdma_device),
            connect_timeout_ms=milliseconds("connect_timeout", connect_timeout),
            link_timeout_ms=link_timeout_ms,
            operation_timeout_ms=operation_timeout_ms,
            master_timeout_ms=milliseconds("master_timeout", master_timeout),
            joint_timeout_ms=milliseconds("joint_timeout", joint_timeout),
            trace_folder=dump.chosen_folder(trace_dir),
            master_returns=truth("master_returns", master_returns),
            place=NO_PLACE if place is None else whole("place", place, 0, NO_PLACE - 1),
        )
        self._modes = request.Modes.of(
            deferred=choice("commit", commit, ("each", "deferred")) == "deferred",
            preserve_input=truth("preserve_input", preserve_input),
            deterministic=truth("deterministic", deterministic),
        )
        self._flights = Flights()
        self._lanes = Lanes()
        self._connecting: dict[str, int] = {}  # who does: taken in one step, which Ctrl-C cannot come between
        self._begun: Control | None = None  # until it has ended; `_control` once this peer is accepted
        self._control: Control | None = None
        self._engine: Engine | None = None
        self._admitted = 0  # the epoch of the first view
        self._finalizer: weakref.finalize[..., Communicator] | None = None
        self._closed = False

    # ------------------------------------------------------------ life

    def connect(self, n_attempts: int | None = None) -> None:
        """Joins the run; returns when this peer is accepted into its group.

        Waits for a master that is not there yet (up to `connect_timeout`, or `n_attempts` seconds), then until all
        accepted peers have called `update_topology` (up to `joint_timeout`). Raises MasterLost, VersionMismatch,
        OperationTimeout (its text names who has not called), InvalidArgument (interface), SystemFailure (too few free
        descriptors, a taken port); may be called again then.
        """
        options = self._options
        if n_attempts is not None:
            options = replace(options, connect_timeout_ms=1000 * whole("n_attempts", n_attempts, 1, 86_400))
        dump.install_from_environment()
        thread = threading.get_ident()
        if self._connecting.setdefault("thread", thread) != thread:
            raise InvalidArgument("another thread is connecting this communicator")
        try:
            self._connect(options)
        finally:
            self._connecting.pop("thread", None)

    def _connect(self, options: ControlOptions) -> None:
        if self._closed:
            raise Closed("the communicator is closed")
        if self._control is not None:
            raise InvalidArgument("this communicator is connected already")
        self._end()  # what an interrupt left of an attempt before
        try:
            control = Control(options, self._flights, self._lanes)
        except OSError as failure:
            raise SystemFailure(f"no descriptors for another communicator: {failure}") from None
        _alive.add(control)
        self._begun, self._finalizer = control, weakref.finalize(self, control.end)
        try:
            if self._closed:  # perhaps by another thread, which could not see the control yet
                raise Closed("the communicator is closed")
            with _traced(control):
                self._admitted = control.start().result().epoch
        except BaseException:
            self._end()
            raise
        self._control, self._engine = control, control.engine

    def close(self) -> None:
        """Leaves the run. Operations still in flight end with Closed. Idempotent; takes less than a few seconds. After
        a Ctrl-C in it, call it again."""
        self._closed = True
        self._end()

    def _end(self) -> None:
        """Forgets what has ended only when it has: an interrupted call is made again, by `close` or at exit."""
        begun, finalizer = self._begun, self._finalizer
        if begun is not None:
            begun.end()
            self._begun = None
        if finalizer is not None:
            finalizer.detach()

    def __enter__(self) -> Communicator:
        """Does not connect: `connect` may want arguments, and a failure of it a second try."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        options, control = self._options, self._control
        view = None if control is None else control.view
        if self._closed:
            state = "closed"
        elif control is None or view is None:
            state = "not connected"
        else:
            state = f"rank {control.rank} of {len(view.members)}, epoch {view.epoch}"
        return f"<pccl.Communicator, group {options.group} of the run at {options.master}: {state}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a pccl.Communicator cannot be copied or pickled: each process makes its own")

    # ------------------------------------------------------------ who is there

    @property
    def rank(self) -> int:
        """This peer's place in its group, 0 to group_world_size - 1. Changes with the epoch."""
        return self._joined().rank

    @property
    def peer_id(self) -> str:
        """32 hexadecimal digits that are new with every Communicator. Errors, traces and `pccl status` name peers by
        the first of them."""
        return self._joined().peer.hex()

    @property
    def epoch(self) -> int:
        """The number of the group's present membership; it rises with every change."""
        return self._view().epoch

    @property
    def group_world_size(self) -> int:
        """Members of this peer's group, itself included."""
        return len(self._view().members)

    @property
    def world_size(self) -> int:
        """The same as `group_world_size`: whom collectives span."""
        return self.group_world_size

    @property
    def global_world_size(self) -> int:
        """Accepted peers of the whole run: as counted when the last joint call of this peer succeeded or, if that came
        later, when the present epoch began. So members that have made the same joint calls and are in the same epoch
        read the same, whatever happens in other groups meanwhile."""
        return self._joined().census.peers

    @property
    def num_groups(self) -> int:
        """Groups of the run that have members, counted as `global_world_size` is."""
        return self._joined().census.groups

    @property
    def largest_group_world_size(self) -> int:
        """Members of the largest group of the run, counted as `global_world_size` is."""
        return self._joined().census.largest_group

    def get_attribute(self, attribute: Attribute) -> int:
        """The number behind an Attribute."""
        if attribute == Attribute.GLOBAL_WORLD_SIZE:
            return self.global_world_size
        if attribute == Attribute.PEER_GROUP_WORLD_SIZE:
            return self.group_world_size
        if attribute == Attribute.NUM_DISTINCT_PEER_GROUPS:
            return self.num_groups
        if attribute == Attribute.LARGEST_PEER_GROUP_WORLD_SIZE:
            return self.largest_group_world_size
        raise InvalidArgument(f"{attribute!r} is no Attribute")

    @property
    def transports(self) -> dict[int, str]:
        """What the links to other members go through, by rank: "shm", "rdma" or "tcp". A link is made when it
        is first used."""
        return {it.rank: it.transport for it in self._joined().trace("asked").links if it.heard_ns}

    def explain(self) -> str:
        """What this peer waits for in the control plane, and for whom; empty if for nothing."""
        return self._joined().explain()

    def dump_trace(self, path: str | os.PathLike[str]) -> None:
        """Writes the flight record (the last 1,000 operations, open ones, events, links) to a file for `pccl trace`.
        Any thread may call, at any time. Raises Closed, SystemFailure, InvalidArgument (what is no path)."""
        dump.write(dump.path_of("path", path), self._joined().trace("asked"))

    def explain_call(
        self,
        collective: Collective,
        send: Any = None,
        *,
        op: ReduceOp | PremulSum = ReduceOp.SUM,
        algorithm: Algorithm = Algorithm.AUTO,
        deterministic: bool | None = None,
        quantization_options: QuantizationOptions | None = None,
    ) -> str:
        """Which algorithm would run now for such a call, and why: "ring: ...". Of floats also what it would take in
        full and quantized, by what is known of the links (`optimize_topology` measures them) and of this CPU. `send` is
        what a member passes to it, or the root, if only its counts. Raises what the call would."""
        group, modes = self._group(), self._modes
        asked = request.question(collective, send, op, algorithm, deterministic, modes, group, quantization_options)
        return self._ready().explain(asked.call)

    def subgroup(self, ranks: Sequence[int]) -> Subgroup:
        """Some members of the group, this peer among them, for collectives that only they make; in it they have their
        places in `ranks` for ranks. Nothing is sent, and links are those of the group. All of them pass the same ranks
        in the same order. It lasts as long as the group's members stay the same; afterwards its calls raise PeerLost,
        and a new one is made of the ranks that these have then. Raises InvalidArgument."""
        size = self.group_world_size
        if not isinstance(ranks, Sequence):
            raise InvalidArgument(f"ranks is a {type(ranks).__name__}, not a sequence of ranks")
        whose = [whole(f"ranks[{index}]", rank, 0, size - 1) for index, rank in enumerate(ranks)]
        view = self._view()
        scope = self._scope_of(view.epoch, whose)
        members = Members(view.epoch, len(whose), whose.index(self.rank))
        return Subgroup(self, scope, members, tuple(whose))

    # ------------------------------------------------------------ joint calls
    #
    # Ctrl-C ends the wait at once; the master withdraws the vote meanwhile, and the next joint call waits for that.
    # If all had called already, the call takes effect all the same.

    def update_topology(self) -> None:
        """Admits pending newcomers. Returns when all accepted peers of the run have called it and the new view is
        installed. Raises PendingOperations, CallMismatch (others vote for something else, or wait in a collective),
        OperationTimeout (after `joint_timeout`; its text names who has not called, and calling again is fine),
        Expelled, MasterLost."""
        self._vote(VoteKind.UPDATE_TOPOLOGY)

    def are_peers_pending(self) -> bool:
        """Whether newcomers wait; the same answer on all accepted peers of the run, all of which must call it. Raises
        what `update_topology` raises."""
        return self._vote(VoteKind.ARE_PEERS_PENDING).flag

    def optimize_topology(self) -> None:
        """Adopts the master's present choice of ring order, and what links were seen to cost since they were made:
        members choose algorithms by that (`explain_call` tells). All accepted peers of the run must call it. Raises
        what `update_topology` raises."""
        self._vote(VoteKind.OPTIMIZE_TOPOLOGY, encode(_measured(self._joined().trace("asked"))))

    def sync_shared_state(
        self,
        shared_state: SharedState,
        strategy: SharedStateSyncStrategy = SharedStateSyncStrategy.ENFORCE_POPULAR,
    ) -> SharedStateSyncInfo:
        """Makes the state bit-identical on all members of the group, which must all call it. Sets its revision.

        Raises SharedStateError and what `update_topology` raises; nothing was changed then. `joint_timeout` ends when
        all have called: fetching is bounded by its own progress. Ctrl-C while others fetch fails their calls too; after
        any Ctrl-C in it, call it again before the state is used.
        """
        control = self._joined()
        with _traced(control):
            return synchronise(control, self._ready(), shared_state, strategy)

    # ------------------------------------------------------------ down to the master and to the engine

    def _vote(self, kind: VoteKind, body: bytes = b"") -> Resolve:
        control = self._joined()
        with _traced(control), control.vote(kind, body) as call:
            return call.result()

    def _run(self, request: Request, priority: int = 0) -> ReduceInfo:
        if priority != 0:
            prefer(request, priority)
        engine = self._engine
        if engine is None:
            engine = self._ready()
        try:
            return engine.run(request)
        except PCCLError as failure:
            self._failed(failure)
            raise

    def _launch(self, request: Request, priority: int = 0) -> Handle:
        if priority != 0:
            prefer(request, priority)
        engine, control = self._ready(), self._joined()
        tag = request.call.tag

        def seen(failure: PCCLError) -> None:  # must not hold the communicator: an unfinished flight would keep it open
            control.failed(failure)
            engine.release_tag(tag, failure.epoch)

        flight = self._flights.launch(request, lambda token: engine.start(request, token), seen)
        return Handle(flight, self)

    def _scope_of(self, epoch: int, ranks: Sequence[int]) -> int:
        self._joined().settled()
        return self._ready().scope_of(epoch, ranks)

    def _submit(self, name: str, tag: int, steps: Generator[Request, ReduceInfo, Any], scope: int = 0) -> Job[Any]:
        return self._lanes.submit((scope, tag), name, partial(self._take, steps, next(steps)))

    def _take(self, steps: Generator[Request, ReduceInfo, Any], request: Request) -> Any:
        try:
            while True:
                request = steps.send(self._run(request))
        except StopIteration as end:
            return end.value

    def _failed(self, failure: PCCLError) -> None:
        if self._control is not None:
            self._control.failed(failure)

    def _ready(self) -> Engine:
        if self._engine is None:
            self._joined()
            raise InvalidArgument("call connect() first")
        return self._engine

    def _joined(self) -> Control:
        if self._closed:
            raise Closed("the communicator is closed")
        if self._control is None:
            raise InvalidArgument("call connect() first")
        return self._control

    def _view(self) -> View:
        view = self._joined().view
        assert view is not None
        return view

    def _group(self, epoch: int = 0) -> Members:
        installed = self._joined().installed
        assert installed is not None
        return Members(installed.view.epoch, len(installed.view.members), installed.rank).within(epoch)


def _measured(trace: Trace) -> MeasuredLinks:
    """What is known of links that bytes went over, the next ranks' first. Nothing is, of what goes through shared
    memory."""
    known = [it for it in trace.links if it.heard_ns and it.rtt_ns and it.transport == "tcp"]
    known.sort(key=lambda link: link.rank < trace.header.rank)
    links = (MeasuredLink(bytes.fromhex(it.peer), it.rtt_ns // 2, it.bytes_per_s) for it in known[:MAX_MEASURED_LINKS])
    return MeasuredLinks(tuple(links))


@contextmanager
def _traced(control: Control) -> Iterator[None]:
    """A failure in the block leaves a flight record, where that was asked for."""
    try:
        yield
    except PCCLError as failure:
        control.failed(failure)
        raise


_alive: weakref.WeakSet[Control] = weakref.WeakSet()
"""What a forked child has to give up."""


def _forked() -> None:
    for control in list(_alive):
        control.forked()


os.register_at_fork(after_in_child=_forked)
