# SPDX-License-Identifier: MIT
"""A started collective as torch sees it, for the Python form of the backend.

The one idea: waiting is the caller's, who drives the engine meanwhile. Only who asks for a future needs somebody else
to notice the end: that is a thread for all groups, made when it is first needed, which also runs the future's
callbacks.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.distributed import Work as TorchWork

from pccl.errors import Aborted, PCCLError, WaitTimeout
from pccl.torch import errors
from pccl.torch.span import Span

logger = logging.getLogger("pccl.torch")

_FOREVER = timedelta(0)
_SLICE_S = 0.2
"""How long a wait stays away from a group that may be aborted meanwhile."""


class Ending(Protocol):
    """What a Handle and a Job have in common."""

    def wait(self, timeout: float | None = None) -> Any: ...
    def done(self) -> bool: ...
    def on_end(self, callback: Callable[[], None]) -> None: ...


class Work(TorchWork):
    """Ends when all of `endings` have. `outputs` are the future's value; `finish` brings staged outputs to where they
    belong, once. `aborted` tells of a group that was aborted."""

    def __init__(
        self,
        endings: Sequence[Ending],
        outputs: Sequence[Tensor],
        finish: Sequence[Callable[[], object]] = (),
        *,
        aborted: Callable[[], bool] = lambda: False,
        source: Callable[[int], int] | None = None,
        number: int = 0,
    ) -> None:
        super().__init__()
        self._endings, self._outputs, self._finish = list(endings), list(outputs), list(finish)
        self._aborted, self._source, self._number = aborted, source, number
        self._failure: Exception | None = None
        self._info: Any = None
        self._ended: torch.futures.Future[Any]
        self._future: torch.futures.Future[Any] | None = None
        self._span: Span | None = None
        self._lock = threading.Lock()
        self._over = False
        if not self._endings:
            self._settle(None)

    def wait(self, timeout: timedelta = _FOREVER) -> bool:
        """Blocks until it has ended, `timeout` at most (zero: without a limit of its own). Raises what it ended with,
        or DistBackendError while it still goes on."""
        self._settle(timeout.total_seconds() if timeout.total_seconds() > 0 else None)
        if self._failure is not None:
            raise self._failure
        return True

    @property
    def is_settled(self) -> bool:
        """Whether it is known to have ended: nobody has to look."""
        return self._over

    def is_completed(self) -> bool:
        """Whether it has ended, well or not."""
        if not self._over and all(it.done() for it in self._endings):
            self._settle(None)
        return self._over

    def is_success(self) -> bool:
        """Whether it has ended well."""
        return self.is_completed() and self._failure is None

    def exception(self) -> Exception | None:
        """What it ended with, if not well."""
        return self._failure if self.is_completed() else None

    def result(self) -> list[Tensor]:
        """The tensors that it wrote."""
        return self._outputs

    def synchronize(self) -> None:
        """The same as `wait`: there is no stream."""
        self.wait()

    def block_current_stream(self) -> None:
        """The same."""
        self.wait()

    def source_rank(self) -> int:
        """Who sent what was received."""
        self.wait()
        if self._source is None or self._info is None:
            raise RuntimeError("only a receive has a source")
        return self._source(self._info.peer)

    _source_rank = source_rank

    def _get_sequence_number(self) -> int:
        return self._number

    def spans(self, span: Span) -> None:
        """Ends `span` when the operations have ended, and before anybody is told so."""
        self._span = span
        span.hand_over(lambda end: self._when_ended(self._endings, end))

    def get_future(self) -> torch.futures.Future[Any]:
        """Done when it has ended; its value is the list of tensors."""
        with self._lock:
            if self._future is not None:
                return self._future
            self._ended = torch.futures.Future()
            self._future = self._ended.then(self._give)
            endings = [] if self._over else self._endings
        if endings:
            self._when_ended(endings, self._complete)
        else:
            self._complete()
        return self._future

    def _when_ended(self, endings: list[Ending], then: Callable[[], None]) -> None:
        """Has `then` called on a thread of its own once all `endings`, of which there are some, have ended."""
        counted, left = threading.Lock(), len(endings)

        def ended() -> None:
            nonlocal left
            with counted:
                left -= 1
                last = left == 0
            if last:
                completer.put(then)

        for it in endings:
            it.on_end(ended)

    def _complete(self) -> None:
        self._settle(None)
        self._ended.set_result(None)

    def _give(self, ended: torch.futures.Future[Any]) -> list[Tensor]:
        """The future's value. What it raises becomes a failure that C++ can read, which `Future.set_exception` does not
        make: to a reducer of torch's that would be a value, and no list of tensors."""
        if self._failure is not None:
            raise self._failure
        return self._outputs

    def _settle(self, seconds: float | None) -> None:
        """Waits for the end and draws what follows from it, once. Raises only if the time runs out."""
        failure: Exception | None = None
        if not self._over:
            deadline = None if seconds is None else time.monotonic() + seconds
            try:
                for it in self._endings:
                    self._info = self._await(it, deadline)
            except WaitTimeout as late:
                raise errors.translated(late) from None
            except PCCLError as ended:
                failure = errors.translated(ended)
            if self._span is not None and not self._aborted():
                self._span.wait()
        with self._lock:
            if self._over:
                return
            if failure is None:
                for step in self._finish:
                    step()
            self._failure, self._over = failure, True
            self._endings, self._finish = [], []

    def _await(self, ending: Ending, deadline: float | None) -> Any:
        while True:
            left_s = _SLICE_S if deadline is None else min(_SLICE_S, max(0.0, deadline - time.monotonic()))
            try:
                return ending.wait(left_s)
            except WaitTimeout:
                if self._aborted():
                    raise Aborted("the group was aborted") from None
                if deadline is not None and time.monotonic() >= deadline:
                    raise


class _Completer:
    """Threads that complete futures, one as a rule. Callbacks may wait for futures that are completed here, too
    (PowerSGD's do), so there is another one whenever none is free."""

    def __init__(self) -> None:
        self._todo: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._free = 0

    def put(self, work: Callable[[], None]) -> None:
        """Does `work` soon. Never blocks for long."""
        with self._lock:
            self._free -= 1
            none_free = self._free < 0
        self._todo.put(work)
        if none_free:
            threading.Thread(target=self._run, name="pccl-torch", daemon=True).start()

    def _run(self) -> None:
        with self._lock:
            self._free += 1
        while True:
            work = self._todo.get()
            try:
                work()
            except Exception:
                logger.exception("the future of an operation could not be completed")
            del work
            with self._lock:
                if self._free >= 1:  # one that is free will do
                    return
                self._free += 1

    def forked(self) -> None:
        """To be called in a forked child, which has none of the threads."""
        self.__init__()  # type: ignore[misc]


completer = _Completer()
os.register_at_fork(after_in_child=completer.forked)
