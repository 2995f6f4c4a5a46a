# SPDX-License-Identifier: MIT
"""What the pccl groups of one torch program share: a communicator, and on rank 0 the master.

The first pccl group whose ranks no runtime spans makes one, with a member for each of its ranks; later groups of some
of them use it: no more threads, and no links but between ranks that talk. It ends with its last group.

The one idea: leaving is a joint act. An operation of torch's ends when the local part is done, when others may still
need our bytes, and the master counts who leaves as a loss to those who stay. So whoever leaves in good order first runs
a commit of all members, which shows that everybody is done; it does not wait for long, as others may never leave.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pccl import _native, request
from pccl.communicator import Communicator
from pccl.errors import Closed, InvalidArgument, MasterLost, PCCLError, WaitTimeout
from pccl.handle import Handle
from pccl.master import MasterNode
from pccl.torch.group import Group, Part
from pccl.torch.options import Options
from pccl.torch.rendezvous import Meeting

logger = logging.getLogger("pccl.torch")

Rebind = Callable[[int, Group], object]
"""Has a group's backend work with the engine of that address for what is described."""

FAREWELL_S = 10.0
"""How long a group's end waits for the other ranks."""
_EXIT_FAREWELL_S = 2.0
"""The same at the interpreter's exit, which others may not share."""
_LAST_WORDS_S = 0.5
"""How long the master goes on for those who have not left yet, and hear from it that rank 0 has."""
_PATIENCE_MAX_S = 1_000_000.0


@dataclass(frozen=True)
class Statement:
    """What a runtime says of itself. `ranks` are torch's, by rank in the membership; `transports` tells what the links
    go through that were used, by that rank: "shm" or "tcp". `groups` are torch's names."""

    ranks: tuple[int, ...]
    rank: int
    epoch: int
    master: str
    hosts_master: bool
    transports: dict[int, str]
    groups: tuple[str, ...]

    def __str__(self) -> str:
        here = ", which runs here" if self.hosts_master else ""
        links = ", ".join(f"{rank} by {name}" for rank, name in sorted(self.transports.items())) or "none used yet"
        return (
            f"rank {self.rank} of {list(self.ranks)} in epoch {self.epoch}, master {self.master}{here}; "
            f"links to ranks: {links}; groups: {', '.join(self.groups)}"
        )


class Runtime:
    """See the module. `world` has the torch ranks that it spans, by their rank in the founding view."""

    def __init__(self, world: tuple[int, ...], comm: Communicator, node: MasterNode | None) -> None:
        self.world, self.comm = world, comm
        self._node = node
        self._groups: dict[str, int] = {}
        self._owner = os.getpid()
        self._ended = False

    @property
    def engine_address(self) -> int:
        """The `pccl_engine`, as a number."""
        return self._engine().address

    def at_close(self, guest: Callable[[int], bool]) -> None:
        """See `_native.Engine.at_close`."""
        self._engine().at_close(guest)

    @property
    def groups(self) -> int:
        """Groups that use it."""
        return sum(self._groups.values())

    def statement(self) -> Statement:
        """As it is now. Raises Closed."""
        comm = self.comm
        hosts, master = self._node is not None, str(comm._options.master)
        return Statement(self.world, comm.rank, comm.epoch, master, hosts, comm.transports, tuple(self._groups))

    def spans(self, ranks: tuple[int, ...]) -> bool:
        """Whether a group of these torch ranks can use it: all are among its founders, and still members."""
        return not self._ended and self.comm.world_size == len(self.world) and set(ranks) <= set(self.world)

    def group(
        self,
        name: str,
        ranks: tuple[int, ...],
        index: int,
        timeout_s: float,
        options: Options,
        key: str | None = None,
    ) -> Group:
        """Describes the group of these torch ranks, and counts it among those that use this runtime. Its key is its
        name if nothing else is said."""
        places = tuple(self.world.index(rank) for rank in ranks)
        epoch = self.comm.epoch
        scope = self.comm._scope_of(epoch, places)
        group = self.described(
            Group(name, places, index, epoch, scope, key or name, _milliseconds(timeout_s), options.deferred)
        )
        with _lock:
            self._groups[name] = self._groups.get(name, 0) + 1
        return group

    def part(self, part: Part, options: Options) -> Group:
        """The same for a part of a group, which we are in."""
        places = part.places
        ranks = tuple(self.world[place] for place in places)
        return self.group(part.name, ranks, places.index(self.comm.rank), part.timeout_s, options, part.key)

    def described(self, group: Group) -> Group:
        """As it is to be known here."""
        return group

    def attach(self, group: Group, rebind: Rebind) -> None:
        """`rebind` gives that group's backend other members; here they never change."""

    def has(self, name: str) -> bool:
        """Whether a group of that name uses it."""
        return name in self._groups

    def release(self, name: str, *, abort: bool = False) -> None:
        """A group has ended, in good order or (`abort`) at once. With the last one the runtime does. Idempotent for
        names that are not counted any more."""
        with _lock:
            if name not in self._groups:
                return
            self._groups[name] -= 1
            if self._groups[name] == 0:
                del self._groups[name]
            if self._groups or self._ended:
                return
            self._ended = True
            if self in _runtimes:
                _runtimes.remove(self)
        self.end(0.0 if abort else FAREWELL_S)

    def end(self, farewell_s: float) -> None:
        """Leaves, after a farewell of so many seconds at most. Later calls of its groups raise Closed."""
        self._ended = True
        if self._owner != os.getpid():
            return
        if farewell_s > 0:
            self._farewell(farewell_s)
        self.comm.close()
        if self._node is not None:
            self._node.drain(_LAST_WORDS_S)
            self._node.destroy()

    def forked(self) -> None:
        """To be called in a forked child: nothing here is its own."""
        self._ended = True

    def _farewell(self, seconds: float) -> None:
        """Returns when all members are done with their operations, or that cannot be awaited."""
        try:
            handle: Handle = self.comm._launch(request.commit(_PATIENCE_MAX_S))
            handle.wait(seconds)
        except WaitTimeout:
            logger.warning("other ranks have not left within %g s; operations that they call fail from now on", seconds)
        except PCCLError as failure:
            logger.debug("left without a farewell: %s", failure)

    def _engine(self) -> _native.Engine:
        return self.comm._ready()


Make = Callable[[tuple[int, ...], Communicator, MasterNode | None], Runtime]
"""What makes a runtime of a founded view."""


def runtime_of(name: str) -> Runtime | None:
    """The one that a group of that name uses."""
    with _lock:
        return next((it for it in _runtimes if it.has(name)), None)


def statements() -> tuple[Statement, ...]:
    """Of all runtimes of this process that have a group, oldest first."""
    with _lock:
        present = list(_runtimes)
    found = []
    for it in present:
        with contextlib.suppress(Closed):  # it ends meanwhile
            found.append(it.statement())
    return tuple(found)


def runtime_for(
    store: Any, ranks: tuple[int, ...], index: int, timeout_s: float, options: Options, make: Make = Runtime
) -> Runtime:
    """One that spans these torch ranks; if there is none yet, all of them `make` it. Raises what connecting raises."""
    with _lock:
        found = next((it for it in _runtimes if it.spans(ranks)), None)
    return found or _found(store, ranks, index, timeout_s, options, make)


def _found(store: Any, ranks: tuple[int, ...], index: int, timeout_s: float, options: Options, make: Make) -> Runtime:
    node, address = None, options.given_master()
    if address is None:
        meeting = Meeting(store, index, len(ranks), timeout_s)
        if index == 0:
            node = meeting.host(options.heartbeat_timeout, options.chosen_interface())
            address = node.address
        else:
            address = meeting.find()
    try:
        comm = _connected(address, len(ranks), index, timeout_s, options)
    except BaseException:
        if node is not None:
            node.destroy()
        raise
    runtime = make(ranks, comm, node)
    global _watched
    with _lock:
        _runtimes.append(runtime)
        if not _watched:  # now: what is registered later runs earlier, before communicators close by themselves
            _watched = True
            atexit.register(_leave_all)
    return runtime


def communicator(address: str, timeout_s: float, options: Options, place: int | None = None) -> Communicator:
    """One that is not connected yet."""
    return Communicator(
        address,
        place=place,
        interface=options.chosen_interface(),
        advertise=options.advertise,
        p2p_connection_pool_size=options.stripes,
        commit="deferred",
        preserve_input=False,
        deterministic=options.deterministic,
        min_world_size=1,
        checksum=options.checksum,
        shm=options.shm,
        connect_timeout=timeout_s,
        joint_timeout=timeout_s,
        link_timeout=options.link_timeout,
        operation_timeout=max(timeout_s, options.link_timeout, options.heartbeat_timeout),
        master_timeout=max(options.master_timeout, options.heartbeat_timeout),
        master_returns=options.given_master() is not None,
        trace_dir=options.trace_dir,
    )


def _connected(address: str, size: int, index: int, timeout_s: float, options: Options) -> Communicator:
    """A member of a view in which torch's order is the master's."""
    comm = communicator(address, timeout_s, options, index)
    try:
        comm.connect()
        if (comm.rank, comm.world_size) != (index, size):
            raise InvalidArgument(
                f"rank {index} of {size} is rank {comm.rank} of {comm.world_size} in the run at {address}: start that "
                f"master with --founders {size}, for this program alone"
            )
    except BaseException:
        comm.close()
        raise
    return comm


def _milliseconds(timeout_s: float) -> int:
    return max(1, min(int(timeout_s * 1000), 2**32 - 1))


_runtimes: list[Runtime] = []
_lock = threading.RLock()
_watched = False


def _leave_all() -> None:
    """At the interpreter's exit, for programs that end no group. Those that end with an exception are not waited for:
    the others should hear of it."""
    failing = getattr(sys, "last_type", None) is not None
    for runtime in list(_runtimes):
        with contextlib.suppress(Closed, MasterLost):
            runtime.end(0.0 if failing else _EXIT_FAREWELL_S)
    _runtimes.clear()


def _forked() -> None:
    global _lock
    _lock = threading.RLock()
    for runtime in _runtimes:
        runtime.forked()
    _runtimes.clear()


os.register_at_fork(after_in_child=_forked)
