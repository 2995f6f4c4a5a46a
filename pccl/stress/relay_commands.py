# SPDX-License-Identifier: MIT
"""A link's calls as JSON objects, for `pccl relay --control`.

    {"do": "set", "direction": "up", "hold": true}       fields of Faults; direction "both" where it is missing
    {"do": "cut"}  {"do": "reset", "limit": 1}           connections, the oldest first
    {"do": "refuse", "on": true}
    {"do": "at", "direction": "up", "bytes": 4096, "then": {"do": "reset"}}
    {"do": "counts"}

Any may have a "name" where connections have names. Each gets one answer: {"done": ...}, counts with their values, or
{"error": ...} when nothing was done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from pccl.errors import InvalidArgument, PCCLError
from pccl.fleet import Message
from pccl.stress.relay import Link


def answer(link: Link, command: Any) -> Message:
    """Obeys one command."""
    try:
        return _action(link, command)()
    except PCCLError as failure:
        return {"error": str(failure)}


def _action(link: Link, command: Any) -> Callable[[], Message]:
    """What the command asks for, ready to be called. Raises InvalidArgument."""
    if not isinstance(command, dict):
        raise InvalidArgument(f"a command is an object, not {command!r}")
    verb, fields = command.get("do"), {key: value for key, value in command.items() if key != "do"}
    if not isinstance(verb, str) or verb not in _VERBS:
        raise InvalidArgument(f"a relay cannot {verb!r}; it can {', '.join(_VERBS)}")
    call = _VERBS[verb]

    def act() -> Message:
        try:
            return {"done": verb, **call(link, **fields)}
        except TypeError:
            raise InvalidArgument(f"{verb!r} does not take {fields!r}") from None

    return act


def _set(link: Link, **fields: Any) -> Message:
    link.set(**fields)
    return {}


def _cut(link: Link, name: str | None = None, limit: int | None = None) -> Message:
    return {"connections": link.cut(name, limit)}


def _reset(link: Link, name: str | None = None, limit: int | None = None) -> Message:
    return {"connections": link.reset(name, limit)}


def _refuse(link: Link, on: bool = True) -> Message:
    link.refuse(on)
    return {}


def _at(link: Link, direction: Any, bytes: int, then: Any, name: str | None = None) -> Message:
    link.at(direction, bytes, _action(link, then), name=name)
    return {}


def _counts(link: Link) -> Message:
    return asdict(link.counts())


_VERBS: dict[str, Callable[..., Message]] = {
    "set": _set,
    "cut": _cut,
    "reset": _reset,
    "refuse": _refuse,
    "at": _at,
    "counts": _counts,
}
