# SPDX-License-Identifier: MIT
"""Which operations of a frozen epoch commit.

What for: the master's one decision about data. Must not know: peers, views, messages other than report lines.

The one idea: an operation commits if and only if every survivor that takes part in it has its data phase done or
better, and all called the same. If anyone returned success it had seen that *all* had their data done, by frames that
each compared what was called, so the verdict can never contradict a success already returned. Who differ are aborted
like any other, and their retries find the mismatch. Deferred operations return without having seen that; their verdicts
mean nothing, and the commit of their step fails.

Of the operations of a subgroup only its members are asked; who has the data done says who they are. Of a send and its
receive only the two are asked. The one that sends is done when it has posted all, so its word alone
says nothing of what has come: without the one that receives nothing commits, and nobody else can have been told that it
did. Without the one that sends, the one that has it all keeps it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pccl import scope
from pccl.messages import OperationName, Report, ReportLine

NOT_STARTED, DATA_PHASE, DATA_DONE, RETURNED = range(4)


class ReportIndex:
    """One survivor's report, as a function from operation to state."""

    def __init__(self, lines: Sequence[ReportLine]) -> None:
        self._below: dict[tuple[int, int], int] = {}
        self.open: dict[OperationName, int] = {}
        self.done: dict[OperationName, int] = {}
        for line in lines:
            tag, name = (line.scope, line.tag), OperationName(line.tag, line.sequence, line.scope)
            self._below[tag] = max(line.returned_below, self._below.get(tag, 0))
            # RETURNED at the prefix's end is the line of a tag without open operations: it says only the prefix.
            if line.state != RETURNED or line.sequence > line.returned_below:
                self.open[name] = line.state
            if line.state == DATA_DONE:
                self.done[name] = line.fingerprint

    def state(self, name: OperationName) -> int:
        if name.sequence < self._below.get((name.scope, name.tag), 0):
            return RETURNED
        return self.open.get(name, NOT_STARTED)

    def may_commit(self, name: OperationName, fingerprint: int) -> bool:
        """Whether this survivor has nothing against it: its data is there, and it called what `fingerprint` says."""
        state = self.state(name)
        return state == RETURNED or (state == DATA_DONE and self.done[name] == fingerprint)


def asked(name: OperationName, ranks: Sequence[int], members: Collection[int] = ()) -> Sequence[int]:
    """Which of the survivors `ranks` have a say in an operation; `members` are those of its subgroup. Nobody: it cannot
    commit."""
    if scope.is_subgroup(name.scope):
        return [rank for rank in ranks if rank in members]
    two = scope.pair(name.scope)
    if two is None:
        return ranks
    return [rank for rank in ranks if rank in two] if two[1] in ranks else ()


def commits(reports: Mapping[int, Report]) -> tuple[OperationName, ...]:
    """What to publish wherever it has not returned yet, from the reports of all survivors by their ranks in the epoch
    that ends.

    Only operations that some survivor holds as DATA_DONE can be news to anyone: those returned everywhere are settled,
    and those that nobody has done cannot commit.
    """
    indexes = {rank: ReportIndex(report.lines) for rank, report in reports.items()}
    subgroups = {it.scope: frozenset(it.ranks) for report in reports.values() for it in report.subgroups}
    ranks = list(indexes)
    decided: list[OperationName] = []
    seen: dict[OperationName, bool] = {}
    for index in indexes.values():
        for name, fingerprint in index.done.items():
            if name not in seen:
                seen[name] = True
                having_a_say = asked(name, ranks, subgroups.get(name.scope, ()))
                if having_a_say and all(indexes[rank].may_commit(name, fingerprint) for rank in having_a_say):
                    decided.append(name)
    return tuple(sorted(decided, key=lambda name: (name.tag, name.scope, name.sequence)))
