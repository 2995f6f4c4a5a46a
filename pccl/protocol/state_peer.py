# SPDX-License-Identifier: MIT
"""The peer's half of a shared-state synchronisation, behind the seam of `types`.

It passes the master's plan to the shell as a `Transfer`, and the shell's report, which is a StateFetched or
StateFailed, to the master. The one idea: the report is kept until the vote has ended and said again after every new
connection, so a lost connection needs no case of its own; a plan of another number or round makes the earlier report
void.
"""

from __future__ import annotations

from dataclasses import dataclass

from pccl.messages import Message, StateFailed, StateFetched, StatePlan, View
from pccl.protocol.types import PeerOutput, StateOutput, Tell


@dataclass(frozen=True, slots=True)
class Transfer(StateOutput):
    """Serve and fetch as `plan` says, in place of any earlier plan, until the vote has ended. When all is fetched and
    verified (but not swapped in), or cannot be, pass a StateFetched or StateFailed to `PeerProtocol.state_event`."""

    plan: StatePlan


class PeerStateSync:
    """A `types.PeerSync`."""

    def __init__(self) -> None:
        self._call: int | None = None
        self._plan: StatePlan | None = None
        self._report: StateFetched | StateFailed | None = None

    def voted(self, call: int, body: bytes, now: int) -> list[PeerOutput]:
        """A vote was sent, perhaps again: only a new one is a new beginning."""
        if call != self._call:
            self._call, self._plan, self._report = call, None, None
        return []

    def received(self, message: Message, now: int) -> list[PeerOutput]:
        """A plan for the open vote; plans for others and repeated ones change nothing."""
        if not isinstance(message, StatePlan) or message.call != self._call:
            return []
        if self._plan is not None and (self._plan.sync, self._plan.round) == (message.sync, message.round):
            return self._again()
        self._plan, self._report = message, None
        return [Transfer(message)]

    def event(self, event: object, now: int) -> list[PeerOutput]:
        """The shell's report, unless it belongs to a plan that was replaced."""
        if self._plan is None or not isinstance(event, StateFetched | StateFailed):
            return []
        if (event.sync, event.round) != (self._plan.sync, self._plan.round):
            return []
        self._report = event
        return self._again()

    def view(self, view: View, now: int) -> list[PeerOutput]:
        """The master knows better who is lost."""
        return []

    def reregistered(self, now: int) -> list[PeerOutput]:
        """The report may have been lost with the connection."""
        return self._again()

    def ended(self, status: int, now: int) -> list[PeerOutput]:
        """The vote has its answer."""
        self._call = self._plan = self._report = None
        return []

    def _again(self) -> list[PeerOutput]:
        return [Tell(self._report)] if self._report is not None else []
