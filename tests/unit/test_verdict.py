# SPDX-License-Identifier: MIT
"""The verdict against its definition: an operation commits if and only if every survivor has its data."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pccl import scope
from pccl.messages import OperationName, Report, ReportLine, Subgroup
from pccl.protocol.verdict import DATA_DONE, DATA_PHASE, NOT_STARTED, RETURNED, ReportIndex, asked, commits

STATES = st.sampled_from([NOT_STARTED, DATA_PHASE, DATA_DONE, RETURNED])
Truth = dict[int, list[int]]  # tag -> state of each operation, by sequence


def _lines(truth: Truth) -> list[ReportLine]:
    """What an engine reports when this is its state."""
    lines: list[ReportLine] = []
    for tag, states in truth.items():
        below = next((seq for seq, state in enumerate(states) if state != RETURNED), len(states))
        rest = [ReportLine(tag, below, seq, states[seq]) for seq in range(below, len(states))]
        lines += rest or [ReportLine(tag, below, below, RETURNED)]
    return lines


def _state(truth: Truth, tag: int, sequence: int) -> int:
    states = truth.get(tag, [])
    return states[sequence] if sequence < len(states) else NOT_STARTED


TRUTHS = st.dictionaries(st.integers(0, 2), st.lists(STATES, max_size=4), max_size=3)


@given(TRUTHS)
def test_a_report_reads_back_as_the_state_it_was_made_from(truth: Truth) -> None:
    index = ReportIndex(_lines(truth))
    for tag in range(4):
        for sequence in range(6):
            assert index.state(OperationName(tag, sequence)) == _state(truth, tag, sequence)


@given(st.lists(TRUTHS, min_size=1, max_size=4))
def test_the_verdict_is_its_definition(truths: list[Truth]) -> None:
    decided = commits(by_rank([_lines(truth) for truth in truths]))
    names = [OperationName(tag, sequence) for tag in range(4) for sequence in range(6)]
    states = {name: [_state(truth, name.tag, name.sequence) for truth in truths] for name in names}
    done = [name for name in names if all(it >= DATA_DONE for it in states[name])]
    assert list(decided) == [name for name in done if not all(it == RETURNED for it in states[name])]


def by_rank(lines: list[list[ReportLine]] | dict[int, list[ReportLine]], *subgroups: Subgroup) -> dict[int, Report]:
    """Those of all members, or of these ranks. Whoever has the data of a subgroup's operation names its members."""
    told = lines if isinstance(lines, dict) else dict(enumerate(lines))

    def named(ours: list[ReportLine]) -> tuple[Subgroup, ...]:
        return tuple(it for it in subgroups if any(it.scope == one.scope and one.state == DATA_DONE for one in ours))

    return {rank: Report(1, b"", 4, "", tuple(ours), named(ours)) for rank, ours in told.items()}


def test_what_was_called_differently_does_not_commit() -> None:
    ours, theirs = ReportLine(1, 0, 0, DATA_DONE, 5), ReportLine(1, 0, 0, DATA_DONE, 6)
    behind = ReportLine(1, 0, 1, DATA_DONE, 7)
    returned = [ReportLine(1, 1, 1, DATA_DONE, 7)]
    assert commits(by_rank([[ours, behind], [theirs, behind]])) == (OperationName(1, 1),)
    assert commits(by_rank([[ours, behind], [ours, behind]])) == (OperationName(1, 0), OperationName(1, 1))
    # Whoever returned success had seen that all called the same.
    assert commits(by_rank([[ours, behind], returned])) == (OperationName(1, 0), OperationName(1, 1))


def test_nobody_and_nothing() -> None:
    assert commits({}) == ()
    assert commits(by_rank([[], []])) == ()


def test_the_line_of_an_idle_tag_is_no_returned_operation() -> None:
    idle = [ReportLine(9, 5, 5, RETURNED)]
    assert ReportIndex(idle).state(OperationName(9, 4)) == RETURNED
    assert ReportIndex(idle).state(OperationName(9, 5)) == NOT_STARTED
    assert commits(by_rank([idle, [ReportLine(9, 5, 5, DATA_DONE)]])) == ()


PAIR_STATES = st.dictionaries(st.integers(0, 3), STATES, max_size=4)  # by rank; who has no state is gone


@given(PAIR_STATES)
def test_of_a_pair_only_the_two_are_asked_and_one_must_be_there_that_receives(states: dict[int, int]) -> None:
    whose = scope.of_pair(1, 2)
    reports = {
        rank: [ReportLine(5, int(state == RETURNED), int(state == RETURNED), state, 7, whose), ReportLine(5, 0, 0, 1)]
        for rank, state in states.items()
    }
    for rank, state in states.items():
        if state == RETURNED:
            reports[rank][0] = ReportLine(5, 1, 1, NOT_STARTED, 0, whose)
    two = [states[rank] for rank in (1, 2) if rank in states]
    good = 2 in states and all(it >= DATA_DONE for it in two) and DATA_DONE in states.values()
    name = OperationName(5, 0, whose)
    assert commits(by_rank(reports)) == ((name,) if good else ())
    assert asked(name, list(states)) == ([rank for rank in states if rank in (1, 2)] if 2 in states else ())


@given(PAIR_STATES, st.lists(st.integers(0, 3), min_size=1, max_size=4, unique=True))
def test_of_a_subgroup_its_members_are_asked_and_nobody_else(states: dict[int, int], members: list[int]) -> None:
    """Others cannot have started it: what they say of that scope and tag counts for nothing."""
    whose = Subgroup(scope.OF_RANKS | 5, tuple(members))
    lines = {rank: [ReportLine(5, 0, 0, state, 7, whose.scope)] for rank, state in states.items()}
    for rank, state in states.items():
        if state == RETURNED:
            lines[rank] = [ReportLine(5, 1, 1, NOT_STARTED, 0, whose.scope)]
    told = [states[rank] for rank in members if rank in states]
    good = bool(told) and all(it >= DATA_DONE for it in told) and DATA_DONE in states.values()
    assert commits(by_rank(lines, whose)) == ((OperationName(5, 0, whose.scope),) if good else ())
    assert commits(by_rank(lines)) == (), "nobody says who is asked"


def test_the_same_tag_and_number_of_other_scopes_is_another_operation() -> None:
    there, back = scope.of_pair(0, 1), scope.of_pair(1, 0)
    done = [ReportLine(5, 0, 0, DATA_DONE, 7, there), ReportLine(5, 0, 0, DATA_PHASE, 7, back)]
    mixed = [ReportLine(5, 0, 0, DATA_DONE, 7, there), ReportLine(5, 0, 0, DATA_DONE, 7, back)]
    assert commits(by_rank([done, mixed])) == (OperationName(5, 0, there),)
    assert commits(by_rank([[ReportLine(5, 3, 3, NOT_STARTED)], mixed])) == ()
