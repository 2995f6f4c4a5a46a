# SPDX-License-Identifier: MIT
"""The call in which a peer waits for others (to be admitted, then one joint call after the other), until its answer.

What for: it knows which call is open, when its patience ends, and that a withdrawn one still has an answer to come.
Must not know: phases, views, connections, what a vote is about.

The one idea: a call ends only by the master's answer, also a withdrawn one, since the master alone knows whether it was
complete already. So a withdrawal is one more thing to say until it is answered: `unanswered` is either the vote or,
once the peer gave it up, the withdrawal in its place. It never becomes a vote again, or a restarted master would count
a voice that nobody stands behind.

The wish to be admitted is the call CONNECT_CALL, for which no Vote is said. What it waits for is that the others call
update_topology, so it is withdrawn as one of those.

There are two ways to give up. When the deadline passes the caller stays and hears the answer. When the caller is gone
(Ctrl-C) nobody hears it, and the next call of the peer waits here, untold, until it has come.
"""

from __future__ import annotations

from pccl.errors import Status
from pccl.messages import Vote, Withdraw
from pccl.protocol.types import CALL_NAMES, CONNECT_CALL, PeerOutput, Reject, Tell, VoteKind


class OpenCall:
    """At most one vote that the master may know of, and at most one that waits for the end of an abandoned one.
    `timeout_ms` counts from the call, whether it waits here or at the master."""

    def __init__(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self._vote: Vote | None = None
        self._withdrawal: Withdraw | None = None
        self._until: int | None = None
        self._next: Vote | None = None
        self._next_until = 0

    @property
    def vote(self) -> Vote | None:
        """What was told and has no answer yet."""
        return self._vote

    @property
    def abandoned(self) -> bool:
        """Whether its caller is gone."""
        return self._withdrawal is not None and self._withdrawal.abandoned

    @property
    def unanswered(self) -> Vote | Withdraw | None:
        """What has to be said to a master that may not have heard it."""
        return self._withdrawal or (None if self._is_join() else self._vote)

    def join(self, now: int) -> None:
        """The first call: the peer wishes to be admitted."""
        self._vote, self._until = Vote(CONNECT_CALL, int(VoteKind.UPDATE_TOPOLOGY), b""), now + self.timeout_ms

    def open(self, vote: Vote, now: int) -> Reject | None:
        """A new call, rejected if another caller waits. It becomes `vote`, unless it has to wait for the end of an
        abandoned one."""
        waiting = self._next or (None if self.abandoned else self._vote)
        if waiting is not None:
            name, other = _name(vote), _name(waiting)
            return Reject(vote.call, Status.INVALID, f"{name}: another joint call ({other}) of this peer is open")
        if self._vote is not None:
            self._next, self._next_until = vote, now + self.timeout_ms
        else:
            self._vote, self._until = vote, now + self.timeout_ms
        return None

    def abandon(self, call: int) -> list[PeerOutput]:
        """The caller of `call` is gone; nothing happens if that has ended."""
        if self._next is not None and self._next.call == call:
            self._next = None
        if self._vote is None or self._vote.call != call or self.abandoned:
            return []
        self._until = None
        return self._withdraw(self._vote, abandoned=True)

    def under_way(self, call: int) -> bool:
        """The master works on vote `call`: it is complete, and its own rules bound it from now on. Whether anybody is
        interested."""
        if self._vote is None or self._vote.call != call or self.abandoned:
            return False
        self._until = self._withdrawal = None
        return True

    def said_again(self, now: int) -> None:
        """A master, perhaps a new one, is told what is unanswered: a vote that was complete may have to wait again."""
        if self._vote is not None and self._withdrawal is None and self._until is None:
            self._until = now + self.timeout_ms

    def timed_out(self, now: int) -> list[PeerOutput]:
        """Withdraws what has waited too long."""
        out: list[PeerOutput] = []
        if self._vote is not None and self._until is not None and now >= self._until:
            self._until = None
            out += self._withdraw(self._vote, abandoned=False)
        if self._next is not None and now >= self._next_until and self._vote is not None:
            waited = f"{_name(self._next)}: waited {self.timeout_ms} ms"
            text = f"{waited}, and the master has not answered the withdrawal of {_name(self._vote)}"
            out.append(Reject(self._next.call, Status.TIMEOUT, text))
            self._next = None
        return out

    def deadline(self) -> int | None:
        """When `timed_out` has something to do."""
        times = [self._until, self._next_until if self._next is not None else None]
        return min((time for time in times if time is not None), default=None)

    def answered(self) -> None:
        """The vote has its answer. The one that waited for that is now `vote`, and to be told."""
        self._vote, self._until = self._next, self._next_until if self._next is not None else None
        self._next = self._withdrawal = None

    def end(self, status: Status, text: str) -> list[PeerOutput]:
        """No answer comes any more: whoever still waits hears why."""
        waiting = (None if self.abandoned else self._vote, self._next)
        self._vote = self._next = self._withdrawal = self._until = None
        return [Reject(vote.call, status, text) for vote in waiting if vote is not None]

    def explain(self) -> list[str]:
        """What a member waits for, one line each."""
        if self._vote is None:
            return []
        awaited = "waiting for the other peers" if self._withdrawal is None else "withdrawn, waiting for the master"
        return [f"{_name(self._vote)}: {awaited}"]

    def _is_join(self) -> bool:
        return self._vote is not None and self._vote.call == CONNECT_CALL

    def _withdraw(self, vote: Vote, abandoned: bool) -> list[PeerOutput]:
        self._withdrawal = Withdraw(vote.call, vote.kind, abandoned)
        return [Tell(self._withdrawal)]


def _name(vote: Vote) -> str:
    return CALL_NAMES[VoteKind(vote.kind)]
