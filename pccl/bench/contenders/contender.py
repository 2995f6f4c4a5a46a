# SPDX-License-Identifier: MIT
"""What the timing loop needs of a library."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from pccl.bench.work import Work

if TYPE_CHECKING:
    from pccl.bench.step import Step


@dataclass(frozen=True)
class Seat:
    """One process of a team. `settings` are those of the command line, by name."""

    rank: int
    peers: int
    master: str
    settings: dict[str, Any]


class Together:
    """Operations that were started, as one."""

    def __init__(self, pending: Sequence[Any]) -> None:
        self._pending = pending

    def wait(self) -> Any:
        """Blocks until all have ended; what the last one gave."""
        outcome = None
        for one in self._pending:
            outcome = one.wait()
        return outcome


def there_and_back(
    work: Work, send: Callable[..., Any], receive: Callable[..., Any], *, start: bool, **options: Any
) -> Callable[[], Any]:
    """What one of a pair does, with calls that take the other one's rank and `options`: the lower rank sends first and
    the other one answers; where both only start, they do so at once. Who has no partner does nothing."""
    calls: list[Callable[[], Any]] = []
    if work.partner is not None:
        receives = partial(receive, work.partner, **options)
        sends = partial(send, work.partner, **options)
        calls = [sends, receives] if work.rank < work.partner and not start else [receives, sends]
    if start:
        return lambda: Together([call() for call in calls])

    def one_by_one() -> Any:
        outcome = None
        for call in calls:
            outcome = call()
        return outcome

    return one_by_one


class Contender(ABC):
    """One process's end of a library: it meets the others, then binds work to calls."""

    def __init__(self, seat: Seat) -> None:
        self.seat = seat

    @property
    def rank(self) -> int:
        """The rank within the library, once met: it decides about places in buffers."""
        return self.seat.rank

    def offer(self) -> Any:
        """What the others need to find this process (JSON); None where nothing is needed."""
        return None

    @property
    def transport(self) -> str:
        """What the bytes go through, once some have: "shm", "tcp"; empty where the library does not tell."""
        return ""

    def algorithm(self, outcome: Any) -> str:
        """What ran, by what a call gave; empty where the library does not tell."""
        return ""

    @abstractmethod
    def meet(self, offers: list[Any]) -> None:
        """Connects to the others; `offers` in rank order. Blocks until all are there."""

    @abstractmethod
    def bind(self, work: Work, *, start: bool) -> Callable[[], Any]:
        """A function that performs the work once, or only starts it: then what it returns has a `wait()`. All that can
        be done before is done here. Raises ValueError for what the library does not offer."""

    def bind_coalesced(self, works: Sequence[Work]) -> Callable[[], Any]:
        """The same for one call that performs all of them. Raises ValueError where the library has none."""
        raise ValueError("there is no call for many arrays")

    def bind_step(self, step: Step) -> Callable[[], Any]:
        """A training step of its model, as the library wraps it. Raises ValueError where it does not train."""
        raise ValueError("there is no training step")

    @abstractmethod
    def barrier(self) -> None:
        """Waits for all processes of the team."""

    @property
    def between(self) -> Callable[[], None] | None:
        """What is to be done before each call of a batch, and not timed."""
        return None

    @abstractmethod
    def settle(self) -> None:
        """Ends a batch: whatever the library has put off is done here."""

    @abstractmethod
    def close(self) -> None:
        """Leaves the team."""
