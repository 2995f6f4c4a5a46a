# SPDX-License-Identifier: MIT
"""Which operations of a frozen epoch commit.

What for: the master's one decision about data. Must not know: peers, views, messages other than report lines.

The one idea: an operation commits if and only if every survivor has its data phase done or better, and all called the
same. If anyone returned success it had seen that *all* had their data done, by frames that each compared what was
called, so the verdict can never contradict a success already returned. Who differ are aborted like any other, and their
retries find the mismatch. Deferred operations return without having seen that; their verdicts mean nothing, and the
commit of their step fails.
"""

from __future__ import annotations

from collections.abc import Sequence

from pccl.messages import OperationName, ReportLine

NOT_STARTED, DATA_PHASE, DATA_DONE, RETURNED = range(4)


class ReportIndex:
    """One survivor's report, as a function from operation to state."""

    def __init__(self, lines: Sequence[ReportLine]) -> None:
        self._below: dict[int, int] = {}
        self.open: dict[tuple[int, int], int] = {}
        self.done: dict[tuple[int, int], int] = {}
        for line in lines:
            self._below[line.tag] = max(line.returned_below, self._below.get(line.tag, 0))
            # RETURNED at the prefix's end is the line of a tag without open operations: it says only the prefix.
            if line.state != RETURNED or line.sequence > line.returned_below:
                self.open[line.tag, line.sequence] = line.state
            if line.state == DATA_DONE:
                self.done[line.tag, line.sequence] = line.fingerprint

    def state(self, tag: int, sequence: int) -> int:
        if sequence < self._below.get(tag, 0):
            return RETURNED
        return self.open.get((tag, sequence), NOT_STARTED)

    def may_commit(self, tag: int, sequence: int, fingerprint: int) -> bool:
        """Whether this survivor has nothing against it: its data is there, and it called what `fingerprint` says."""
        state = self.state(tag, sequence)
        return state == RETURNED or (state == DATA_DONE and self.done[tag, sequence] == fingerprint)


def commits(reports: Sequence[Sequence[ReportLine]]) -> tuple[OperationName, ...]:
    """What to publish wherever it has not returned yet; one element of `reports` per survivor.

    Only operations that some survivor holds as DATA_DONE can be news to anyone: those returned everywhere are settled,
    and those that nobody has done cannot commit.
    """
    indexes = [ReportIndex(lines) for lines in reports]
    decided: list[OperationName] = []
    seen: dict[tuple[int, int], bool] = {}
    for index in indexes:
        for name, fingerprint in index.done.items():
            if name not in seen:
                seen[name] = True
                if all(other.may_commit(*name, fingerprint) for other in indexes):
                    decided.append(OperationName(*name))
    return tuple(sorted(decided, key=lambda name: (name.tag, name.sequence)))
