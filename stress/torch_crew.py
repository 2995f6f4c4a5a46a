# SPDX-License-Identifier: MIT
"""The ranks of `torch_kills.py` and what each contender starts: its program, and what ranks meet at."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

from pccl.fleet import Child, Fleet, Master, Message

ANSWER_LIMIT_S = 60
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class Failed(Exception):
    """Other parameters, a hang, the end of somebody who was to live."""


class Lighthouse:
    """Torchft's, in this process, with short limits or with its own."""

    def __init__(self, least: bool) -> None:
        self._limits = {"join_timeout_ms": 50, "quorum_tick_ms": 10, "heartbeat_timeout_ms": 200} if least else {}
        self._server: Any = None
        self.address = ""

    def __enter__(self) -> Lighthouse:
        from torchft.coordination import LighthouseServer

        self._server = LighthouseServer(bind="127.0.0.1:0", min_replicas=1, **self._limits)
        self.address = self._server.address()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()


CONTENDERS = {
    "torchft": ("torchft_trainer.py", ("--least",)),
    "torchft-defaults": ("torchft_trainer.py", ()),
}
"""Programs and options. The first one with the shortest time limits that the job bears, as its own are long."""


class Crew:
    """All ranks by serial number, of a form of pccl or of a contender. A context manager."""

    def __init__(self, whose: str, peers: int) -> None:
        self.ranks: dict[int, Child] = {}
        self._program, self._options = CONTENDERS.get(whose, ("torch_trainer.py", ()))
        self._environment = {**ONE_THREAD, "PCCL_TORCH_BACKEND": whose}
        self._master: Master | Lighthouse = Master(options=["--founders", str(peers)])
        if whose in CONTENDERS:
            self._environment = ONE_THREAD
            self._master = Lighthouse("--least" in self._options)
        self._fleet = Fleet()
        self._next_serial = 0
        self._digests: dict[int, tuple[str, int]] = {}

    def __enter__(self) -> Crew:
        self._master.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._fleet.close()
        self._master.__exit__(kind, error, trace)

    def start(self, *options: str) -> int:
        """A process, which says when it is ready."""
        serial, self._next_serial = self._next_serial, self._next_serial + 1
        program = str(Path(__file__).with_name(self._program))
        arguments = [program, self._master.address, str(serial), *self._options, *options]
        self.ranks[serial] = self._fleet.start(f"rank {serial}", arguments, self._environment)
        return serial

    def tell(self, serials: list[int], **command: object) -> None:
        """The same command for several ranks."""
        for serial in serials:
            self.ranks[serial].tell(**command)

    def told(self, key: str, serials: list[int], dying: int | None = None) -> dict[int, list[Message]]:
        """What each of them says until it has said `key`. `dying` may end."""
        said: dict[int, list[Message]] = {serial: [] for serial in serials}
        waiting = set(serials)
        while waiting:
            serial, message = self._next()
            if message is None and serial == dying:
                del self.ranks[serial]
                waiting.discard(serial)
            elif message is None:
                raise Failed(f"rank {serial} has ended: {self.ranks[serial].exit_code}")
            elif serial in said:
                said[serial].append(message)
                self._check(serial, message)
                if key in message:
                    waiting.discard(serial)
        return said

    def _next(self) -> tuple[int, Message | None]:
        for _ in range(ANSWER_LIMIT_S):  # second by second: those in which the whole machine stood still do not count
            arrived = self._fleet.next(1.0)
            if arrived is not None:
                child, message = arrived
                return next(serial for serial, rank in self.ranks.items() if rank is child), message
        raise Failed(f"a hang: nobody said anything for {ANSWER_LIMIT_S} s")

    def _check(self, serial: int, message: Message) -> None:
        """After the same step, the same parameters and as many ranks."""
        if "digest" in message:
            own = message["digest"], message["size"]
            others = self._digests.setdefault(message["step"], own)
            if own != others:
                raise Failed(f"rank {serial} has {own} after step {message['step']}, others have {others}")
