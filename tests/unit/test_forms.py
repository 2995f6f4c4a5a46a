# SPDX-License-Identifier: MIT
"""Both forms of each collective come from one description, and look as if they had been written out."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import pccl
from pccl.forms import Caller
from pccl.request import Members, Modes, Request


def forms() -> dict[str, tuple[object, object]]:
    """Blocking and starting form by name."""
    names = [name for name in dir(pccl.collectives.Collectives) if not name.startswith("_")]
    blocking = [name for name in names if not name.endswith("_async")]
    return {name: tuple(getattr(pccl.Communicator, it) for it in (name, f"{name}_async")) for name in blocking}


@pytest.mark.parametrize("name", forms())
def test_the_starting_form_takes_what_the_blocking_one_takes(name: str) -> None:
    blocking, starting = (inspect.signature(form) for form in forms()[name])
    assert blocking.parameters == starting.parameters
    if "_object" in name or name.endswith("_sparse"):
        assert starting.return_annotation == f"Job[{blocking.return_annotation}]"
    else:
        assert blocking.parameters["priority"].default == 0
        assert starting.return_annotation == "Handle"
    form = getattr(pccl.Communicator, f"{name}_async")
    assert form.__name__ == f"{name}_async"
    assert form.__doc__.startswith(f"As `{name}`, but returns at once")


class Recorder(pccl.collectives.Collectives):
    """Tells which way a request goes."""

    _modes = Modes.of(deferred=False, preserve_input=True)

    def _run(self, request: Request, priority: int = 0) -> tuple[str, int, int]:  # type: ignore[override]
        return "run", request.call.count, priority

    def _launch(self, request: Request, priority: int = 0) -> tuple[str, int, int]:  # type: ignore[override]
        return "launch", request.call.count, priority

    def _group(self, epoch: int = 0) -> Members:
        return Members(5, 2, 0).within(epoch)


def test_one_runs_and_the_other_starts_the_same_request() -> None:
    x, y = np.ones(4), np.ones(8)
    recorder = Recorder()
    assert recorder.all_gather(x, y, epoch=5) == ("run", 4, 0)
    assert recorder.all_gather_async(x, y, epoch=5, priority=2) == ("launch", 4, 2)
    for form in (recorder.all_gather, recorder.all_gather_async):
        with pytest.raises(pccl.PeerLost):
            form(x, y, epoch=4)
        with pytest.raises(pccl.InvalidArgument):
            form(x, x)


def test_a_caller_has_to_say_how() -> None:
    with pytest.raises(NotImplementedError):
        Caller()._group()
