# SPDX-License-Identifier: MIT
"""The two forms of each collective: one that waits for its end, and one that returns a Handle at once.

The one idea: a collective is written once, as a method that blocks and ends in `self._run(request)`. The other form is
the same method, called on a stand-in for the communicator whose `_run` starts the operation instead. So tools and
readers see plain methods, and the blocking form costs nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from pccl._native import ReduceInfo
from pccl.handle import Handle
from pccl.lanes import Job
from pccl.request import Members, Modes, Request

P = ParamSpec("P")
C = TypeVar("C", bound="Caller")
T = TypeVar("T")


class Caller:
    """What the collectives need of a Communicator."""

    _modes: Modes

    def _run(self, request: Request, priority: int = 0) -> ReduceInfo:
        """Waits for the end of one operation."""
        raise NotImplementedError

    def _launch(self, request: Request, priority: int = 0) -> Handle:
        """Starts one operation."""
        raise NotImplementedError

    def _submit(self, name: str, tag: int, steps: Generator[Request, ReduceInfo, Any]) -> Job[Any]:
        """Takes steps, one operation each, in the lane of `tag`. Raises at once what the first one's making raises."""
        raise NotImplementedError

    def _follow(self, name: str, tag: int, steps: Generator[Request, ReduceInfo, Any]) -> Any:
        """As `_submit`, and waits for the end."""
        return self._submit(name, tag, steps).wait()

    def _group(self, epoch: int = 0) -> Members:
        """The view of now. Raises PeerLost when `epoch` is neither its epoch nor 0."""
        raise NotImplementedError


class _Starter:
    """A communicator that starts what it is asked to wait for."""

    __slots__ = ("_follow", "_group", "_modes", "_run")

    def __init__(self, caller: Caller) -> None:
        self._modes = caller._modes
        self._group = caller._group
        self._run = caller._launch
        self._follow = caller._submit


def starting(blocking: Callable[Concatenate[C, P], ReduceInfo]) -> Callable[Concatenate[C, P], Handle]:
    """The form of a collective that returns at once. It takes the same arguments and raises at once what is wrong with
    them; what the operation ends with comes from the handle."""
    return _started(blocking, "Handle", "its ReduceInfo")


def submitting(blocking: Callable[Concatenate[C, P], T]) -> Callable[Concatenate[C, P], Job[T]]:
    """The same for what takes several operations."""
    return _started(blocking, f"Job[{blocking.__annotations__['return']}]", "what that returns")


def _started(blocking: Callable[..., Any], kind: str, outcome: str) -> Callable[..., Any]:
    @wraps(blocking)
    def start(self: Caller, /, *arguments: Any, **named: Any) -> Any:
        return blocking(_Starter(self), *arguments, **named)

    name = blocking.__name__
    start.__name__ = f"{name}_async"
    start.__qualname__ = f"{blocking.__qualname__}_async"
    start.__doc__ = f"As `{name}`, but returns at once: a {kind}, whose `wait`, or `await` in asyncio, gives {outcome}."
    start.__annotations__ = {**blocking.__annotations__, "return": kind}
    start.__signature__ = inspect.signature(blocking).replace(return_annotation=kind)  # type: ignore[attr-defined]
    return start
