# SPDX-License-Identifier: MIT
"""Ranks of torch programs for tests: processes that run a function of the test's own module.

Torch takes seconds to import, so one server does it (`python -m tests.torch.ranks`) and forks the ranks from there. A
function gets a `Rank` first, which makes its group; what it returns, or the traceback of what it raises, comes back.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import json
import os
import pickle
import signal
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from pccl import system

ROOT = Path(__file__).parents[2]
PATIENCE = float(os.environ.get("PCCL_TEST_PATIENCE", "1"))
LIMIT_S = 60.0 * PATIENCE
OPERATION_LIMIT_S = 20.0 * PATIENCE


@dataclass(frozen=True)
class Rank:
    """What a rank's function knows. `store` is a path for a FileStore."""

    rank: int
    world: int
    folder: Path

    def init(self, backend: str = "pccl", name: str = "store", **options: Any) -> None:
        """`init_process_group` of all ranks."""
        import torch.distributed as dist

        options.setdefault("timeout", timedelta(seconds=OPERATION_LIMIT_S))
        where = f"file://{self.folder / name}"
        dist.init_process_group(backend, init_method=where, rank=self.rank, world_size=self.world, **options)

    @contextlib.contextmanager
    def group(self, backend: str = "pccl", **options: Any) -> Iterator[None]:
        """The default group, which is destroyed in the end."""
        import torch.distributed as dist

        self.init(backend, **options)
        try:
            yield
        finally:
            dist.destroy_process_group()


class Ranks:
    """The server, and what it is asked for. `close` ends it."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._number = folder, 0
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.torch.ranks"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(
        self, function: Callable[..., Any], world: int, form: str, *arguments: Any, **environment: str
    ) -> list[Any]:
        """Calls `function(Rank, *arguments)` on each of `world` ranks: what they returned, by rank."""
        return self.outcomes(*self.end_of(function, world, form, *arguments, **environment))

    def outcomes(self, statuses: list[int], folder: Path, killed: Sequence[int] = ()) -> list[Any]:
        """What the ranks of a run returned, but for those that were to be killed."""
        wrong = [f"rank {rank} ended with {statuses[rank]}" for rank in killed if statuses[rank] != signal.SIGKILL]
        others = [rank for rank in range(len(statuses)) if rank not in killed]
        outcomes = {rank: _outcome(folder, rank) for rank in others}
        wrong += [f"rank {it}, status {statuses[it]}: {text}" for it, (good, text) in outcomes.items() if not good]
        assert not wrong, "\n".join([*wrong, (folder / "log").read_text()[-4000:]])
        return [value for _, value in outcomes.values()]

    def survivors(
        self, function: Callable[..., Any], world: int, form: str, *arguments: Any, **environment: str
    ) -> list[Any]:
        """The same, where ranks kill themselves: what the others returned, by rank."""
        statuses, folder = self.end_of(function, world, form, *arguments, **environment)
        left = [rank for rank in range(world) if statuses[rank] != signal.SIGKILL]
        outcomes = [_outcome(folder, rank) for rank in left]
        bad = [f"rank {rank}: {text}" for rank, (good, text) in zip(left, outcomes, strict=True) if not good]
        assert not bad, "\n".join([*bad, (folder / "log").read_text()[-4000:]])
        return [value for _, value in outcomes]

    def end_of(
        self, function: Callable[..., Any], world: int, form: str, *arguments: Any, **environment: str
    ) -> tuple[list[int], Path]:
        """The same, for ranks that may end in other ways: the wait statuses by rank, and the folder of their log."""
        self._number += 1
        folder = self._folder / str(self._number)
        folder.mkdir()
        module = ".".join(Path(function.__code__.co_filename).relative_to(ROOT).with_suffix("").parts)
        asked = {
            "folder": str(folder),
            "module": module,
            "function": function.__name__,
            "world": world,
            "arguments": arguments,
            "environment": {"PCCL_TORCH_BACKEND": form, **environment},
        }
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        print(json.dumps(asked), file=self._server.stdin, flush=True)
        answer = self._server.stdout.readline()
        assert answer, f"the server has ended with {self._server.poll()}"
        return json.loads(answer), folder

    def close(self) -> None:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.close()
        self._server.wait()
        self._server.stdout.close()


def _outcome(folder: Path, rank: int) -> tuple[bool, Any]:
    path = folder / f"outcome.{rank}"
    return pickle.loads(path.read_bytes()) if path.exists() else (False, "ended early")


def _serve() -> None:
    import torch

    import pccl.torch  # noqa: F401

    torch.set_num_threads(1)
    for line in sys.stdin:
        asked = json.loads(line)
        module = importlib.import_module(asked["module"])  # once, not in every rank
        getattr(module, "prepare", lambda: None)()
        children = []
        for rank in range(asked["world"]):
            child = os.fork()
            if child == 0:
                _be(rank, asked)
            children.append(child)
        print(json.dumps(_ends(children)), flush=True)


def _ends(children: list[int]) -> list[int]:
    """The wait statuses of all. Those that take too long have told where they are; they are killed."""
    signal.signal(signal.SIGALRM, lambda *_: [os.kill(it, signal.SIGKILL) for it in left])
    left, statuses = dict.fromkeys(children, True), {}
    signal.alarm(int(LIMIT_S) + 2)
    while left:
        child, status = os.waitpid(-1, 0)
        left.pop(child, None)
        statuses[child] = status
    signal.alarm(0)
    return [statuses[it] for it in children]


def _be(rank: int, asked: dict[str, Any]) -> None:
    folder, status = Path(asked["folder"]), 1
    try:
        system.die_with_parent()
        signal.alarm(0)
        log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for own, instead in ((0, nothing), (1, log), (2, log)):
            os.dup2(instead, own)
        faulthandler.dump_traceback_later(LIMIT_S)
        os.environ.update(asked["environment"])
        warnings.simplefilter("ignore")
        function = getattr(importlib.import_module(asked["module"]), asked["function"])
        outcome = _call(function, Rank(rank, asked["world"], folder), asked["arguments"])
        (folder / f"part.{rank}").write_bytes(pickle.dumps(outcome))
        (folder / f"part.{rank}").rename(folder / f"outcome.{rank}")
        status = 0 if outcome[0] else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _call(function: Callable[..., Any], rank: Rank, arguments: list[Any]) -> tuple[bool, Any]:
    try:
        return True, function(rank, *arguments)
    except BaseException:
        return False, traceback.format_exc()


if __name__ == "__main__":
    _serve()
