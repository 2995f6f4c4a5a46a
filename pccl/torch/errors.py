# SPDX-License-Identifier: MIT
"""Failures of pccl as torch's exceptions, and back.

The one idea: torch's C++ can raise its own classes only, with a text. So the text carries the status, as its phrase,
and `cause` finds the typed error again, whichever form of the backend raised it.
"""

from __future__ import annotations

from torch.distributed import DistBackendError

from pccl import _native
from pccl.errors import InvalidArgument, PCCLError, Status, Unsupported, error_for

PREFIX = "pccl: "
"""What each text of ours begins with; the phrase of the status and a colon follow, then what pccl says."""

OVER = " - this process group has ended: destroy it and make another one (an elastic run: reconfigure)"
"""What texts end with where a communicator might go on, and a group of torch cannot."""
_FINAL = (Status.PEER_LOST, Status.EXPELLED, Status.MASTER_LOST)

_PHRASES = {_native.status_phrase(status): status for status in Status if status < Status.VERSION}


def text_of(failure: PCCLError) -> str:
    """The text of the exception that torch's users see."""
    over = OVER if failure.status in _FINAL else ""
    return f"{PREFIX}{_native.status_phrase(failure.status)}: {failure}{over}"


def translated(failure: PCCLError) -> Exception:
    """What to raise in its place: wrong arguments stay what they are, all else becomes a DistBackendError."""
    if isinstance(failure, InvalidArgument | Unsupported):
        return failure
    raised = DistBackendError(text_of(failure))
    raised.__cause__ = failure
    return raised


def cause(failure: BaseException) -> PCCLError | None:
    """The pccl error behind an exception that torch raised, None if there is none: `except DistBackendError as e: if
    isinstance(pccl.torch.cause(e), pccl.PeerLost): ...`."""
    if isinstance(failure, PCCLError):
        return failure
    if isinstance(failure.__cause__, PCCLError):
        return failure.__cause__
    _, found, rest = str(failure).partition(PREFIX)
    phrase, colon, text = rest.partition(": ")
    if not found or not colon or phrase not in _PHRASES:
        return None
    return error_for(_PHRASES[phrase], text)
