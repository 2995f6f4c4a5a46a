# SPDX-License-Identifier: MIT
"""The master as a running thing: a thread with a loop around `MasterProtocol`, its socket and its journal.

It decides nothing: it feeds the core with messages, lost connections and the clock, and performs what comes out, in
order: an appended record is on disk before anything that follows it is sent. A master that cannot write its journal
stops at once, since what it would say next is not safe to say.

Log records go to the logger `pccl.master`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import time
import weakref
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import NoReturn

import uvloop

from pccl import addresses, messages, system
from pccl.arguments import milliseconds, patience, whole
from pccl.errors import InvalidArgument, PCCLError, ProtocolError, SystemFailure
from pccl.journal_file import JournalFile
from pccl.protocol.master import MasterProtocol
from pccl.protocol.state_master import MasterSync
from pccl.protocol.types import Append, Drop, Event, Limits, MasterOutput, Notify, PeerId, Send
from pccl.sockets import RouterLink
from pccl.thread import Flag, Worker

logger = logging.getLogger("pccl.master")

HEARTBEAT_TIMEOUT_MIN_MS = 200

_STOP_S = 30.0
"""A disk that is slow to sync holds the thread so long."""
_COMPLAINT_MS = 10_000
"""Between two lines in the log about connections that were turned away."""


class MasterNode:
    """The process-wide owner of membership. Listens from its creation on, works from `run` on.

    `listen_address` is HOST:PORT or [IPv6]:PORT; only that address is bound, port 0 lets the system choose (see
    `address`). With `journal` a master that is started again on the same file carries the run on. A peer that was
    silent for `heartbeat_timeout` seconds is lost. A group without members begins only when `founders` peers wait for
    it, with all of them at once; once it has begun, `update_topology` admits newcomers as ever.
    """

    def __init__(
        self,
        listen_address: str = "127.0.0.1:48148",
        *,
        journal: Path | str | None = None,
        heartbeat_timeout: float = 5.0,
        founders: int = 1,
    ) -> None:
        """Raises InvalidArgument (address, founders, a journal that is in use) or SystemFailure (the port is taken)."""
        listen = _resolve(listen_address)
        limits = _limits(heartbeat_timeout)
        whole("founders", founders, 1, messages.MAX_MEMBERS)
        self._journal = None if journal is None else _open_journal(journal)
        try:
            self._link = RouterLink(listen)
        except OSError as failure:
            self._close_journal()
            raise SystemFailure(f"cannot listen on {listen}: {failure.strerror}") from None
        past = None if self._journal is None else self._journal.past
        self._protocol = MasterProtocol(
            draw=lambda: secrets.randbits(64), sync=MasterSync, limits=limits, past=past, founders=founders
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: Worker | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._encoded: dict[type, tuple[object, bytes]] = {}
        self._complain_at = 0
        self._deserted: Flag | None = None
        self._failure: BaseException | None = None
        self._closed = False
        self._owner = os.getpid()
        _alive.add(self)
        weakref.finalize(self, _end, weakref.ref(self))

    @property
    def address(self) -> str:
        """HOST:PORT where it listens, with the real port."""
        return str(self._link.address)

    def run(self) -> None:
        """Starts working in a thread of its own. Returns at once."""
        if self._closed or self._thread is not None:
            raise InvalidArgument("this master was started already")
        self._loop = uvloop.new_event_loop()
        self._thread = Worker("pccl-master", self._work)
        self._thread.start()

    def wait(self, timeout: float | None = None) -> bool:
        """Blocks until it has ended, up to `timeout` seconds (None: without a limit): whether it has. Raises what made
        it stop, if anything."""
        limit_s = patience(timeout)
        if self._thread is not None and not self._thread.wait(limit_s):
            return False
        if self._failure is not None:
            raise self._failure
        return True

    def drain(self, timeout: float) -> bool:
        """Blocks until all peers have left, at most `timeout` seconds: whether they have. For a master that is about to
        end, so that nobody takes that for a loss."""
        limit_s, left = patience(timeout), Flag()
        if self._loop is None or self._thread is None or self._owner != os.getpid():
            return True
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            self._loop.call_soon_threadsafe(self._wait_for_the_last, left)
            return left.wait(limit_s)
        return True

    def interrupt(self) -> None:
        """Asks it to end; from any thread or signal handler. Does not wait."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                self._loop.call_soon_threadsafe(self._loop.stop)

    def destroy(self) -> None:
        """Ends it and frees its port and its journal. Idempotent; blocks until what it is writing is on disk, at most
        half a minute."""
        if self._owner != os.getpid():
            return
        self._closed = True
        self.interrupt()
        if self._thread is not None and not self._thread.prevent():
            if not self._thread.wait(_STOP_S):
                logger.error("the master at %s has not ended yet: its port and its journal are not free", self.address)
            return
        self._link.close()
        self._close_journal()
        if self._loop is not None:
            self._loop.close()
        self._thread = None

    close = destroy

    def forked(self) -> None:
        """To be called in a forked child: gives up port and journal, which are the parent's."""
        if not self._closed:
            system.close_sockets_at(self._link.address.port)

    def explain(self) -> str:
        """What the master waits for, and for whom; empty if for nothing."""
        return self._protocol.explain()

    def __repr__(self) -> str:
        thread = self._thread
        state = (
            "working" if thread is not None and thread.is_alive() else "ended" if thread or self._closed else "not run"
        )
        return f"<pccl.MasterNode at {self.address}: {state}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a pccl.MasterNode cannot be copied or pickled: it owns a port and a journal")

    def __enter__(self) -> MasterNode:
        """Does not run it yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.destroy()

    def __del__(self) -> None:
        if hasattr(self, "_closed"):
            self.destroy()

    # ------------------------------------------------------------ on the thread

    def _work(self) -> None:
        loop = self._loop
        assert loop is not None
        asyncio.set_event_loop(loop)
        loop.set_exception_handler(self._fail)
        loop.call_soon(self._start)
        try:
            loop.run_forever()
        finally:
            self._link.close()
            self._close_journal()
            loop.close()

    def _start(self) -> None:
        assert self._loop is not None
        logger.info("listening on %s", self.address)
        # Messages may wait in the socket already; they are delivered in a later turn of the loop than this one.
        self._link.start(self._loop, self._received, self._damaged, self._connection_closed, self._turned_away)
        self._perform(self._protocol.start(_now()))
        if self._journal is not None:
            self._rewrite(self._journal)

    def _received(self, peer: PeerId, data: bytes) -> None:
        if len(peer) != messages.ID_BYTES:
            return
        try:
            message = messages.decode(data)
        except ProtocolError as error:
            self._perform(self._protocol.malformed(peer, str(error), _now()))
        else:
            self._perform(self._protocol.received(peer, message, _now()))

    def _damaged(self, peer: PeerId) -> None:
        if len(peer) == messages.ID_BYTES:
            self._perform(self._protocol.damaged(peer, _now()))

    def _connection_closed(self) -> None:
        self._perform(self._protocol.connection_closed(_now()))

    def _turned_away(self) -> None:
        now = _now()
        if now >= self._complain_at:
            self._complain_at = now + _COMPLAINT_MS
            logger.warning("no file descriptors left: new connections are turned away")

    def _timed_out(self) -> None:
        self._timer = None
        self._perform(self._protocol.timed_out(_now()))

    def _perform(self, outputs: list[MasterOutput]) -> None:
        if self._failure is not None:
            return  # what the core believes may not be on disk, and the loop ends in a moment
        while outputs:
            unreachable: dict[PeerId, None] = {}
            for output in outputs:
                if isinstance(output, Send):
                    if not self._link.send(output.peer, self._encode(self._completed(output.message))):
                        unreachable[output.peer] = None
                elif isinstance(output, Append):
                    if self._journal is not None:
                        self._journal.append(output.record)
                elif isinstance(output, Notify):
                    level = logging.DEBUG if output.event == Event.VOTE else logging.INFO
                    logger.log(level, "%s%s", output.text, f" ({output.peer.hex()[:8]})" if output.peer else "")
                else:
                    assert isinstance(output, Drop)  # a router keeps nothing of a peer that is not connected
            outputs = [more for peer in unreachable for more in self._protocol.disconnected(peer, _now())]
        if self._journal is not None and self._journal.wants_rewrite:
            self._rewrite(self._journal)
        self._look_for_peers()
        self._arm()

    def _rewrite(self, journal: JournalFile) -> None:
        if not journal.rewrite(self._protocol.snapshot()):
            logger.warning("no room to write the journal anew: it goes on growing, from %d bytes", journal.size)

    def _completed(self, message: messages.Message) -> messages.Message:
        """What the core cannot know: how large the journal is."""
        if isinstance(message, messages.StatusAnswer) and self._journal is not None:
            return replace(message, journal_bytes=self._journal.size)
        return message

    def _encode(self, message: messages.Message) -> bytes:
        """The same message often goes to many peers, one after the other, perhaps with others in between."""
        last = self._encoded.get(type(message))
        if last is None or last[0] is not message:
            last = self._encoded[type(message)] = (message, messages.encode(message))
        return last[1]

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        deadline = self._protocol.deadline()
        assert self._loop is not None
        if deadline is not None:
            self._timer = self._loop.call_later(max(0, deadline - _now()) / 1000, self._timed_out)

    def _wait_for_the_last(self, left: Flag) -> None:
        self._deserted = left
        self._look_for_peers()

    def _look_for_peers(self) -> None:
        if self._deserted is not None and not self._protocol.census.peers and not self._protocol.pending_count:
            self._deserted.set()

    def _fail(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        failure = context.get("exception")
        logger.critical("the master stops: %s", failure or context.get("message"))
        self._failure = failure if isinstance(failure, BaseException) else PCCLError(str(context.get("message")))
        loop.stop()

    def _close_journal(self) -> None:
        if self._journal is not None:
            self._journal.close()


_alive: weakref.WeakSet[MasterNode] = weakref.WeakSet()
"""What a forked child has to give up."""


def _forked() -> None:
    for node in list(_alive):
        node.forked()


os.register_at_fork(after_in_child=_forked)


def _end(node: weakref.ref[MasterNode]) -> None:
    """At the process's exit, for who did not: a loop that outlives the interpreter crashes the process."""
    alive = node()
    if alive is not None:
        alive.destroy()


def _now() -> int:
    return time.monotonic_ns() // 1_000_000


def _resolve(listen_address: str) -> addresses.HostPort:
    try:
        return addresses.resolve(addresses.parse(listen_address))[0]
    except OSError as failure:
        raise InvalidArgument(f"cannot resolve {listen_address!r}: {failure.strerror}") from None


def _limits(heartbeat_timeout: float) -> Limits:
    limit_ms = milliseconds("heartbeat_timeout", heartbeat_timeout)
    if limit_ms < HEARTBEAT_TIMEOUT_MIN_MS:
        raise InvalidArgument(
            f"heartbeat_timeout is {heartbeat_timeout:g} s; shorter than {HEARTBEAT_TIMEOUT_MIN_MS / 1000:g} s takes "
            "every busy peer for a lost one"
        )
    heartbeat_ms = min(1000, limit_ms // 5)
    return Limits(heartbeat_ms=heartbeat_ms, heartbeat_limit_ms=limit_ms, report_limit_ms=2 * limit_ms)


def _open_journal(path: Path | str) -> JournalFile:
    try:
        return JournalFile(Path(path))
    except PCCLError:
        raise
    except OSError as failure:
        raise SystemFailure(f"cannot open journal {path}: {failure.strerror}") from None
    except (TypeError, ValueError) as failure:
        raise InvalidArgument(f"journal {path!r} is no path: {failure}") from None
