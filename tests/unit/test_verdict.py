# SPDX-License-Identifier: MIT
"""The verdict against its definition: an operation commits if and only if every survivor has its data."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pccl.messages import OperationName, ReportLine
from pccl.protocol.verdict import DATA_DONE, DATA_PHASE, NOT_STARTED, RETURNED, ReportIndex, commits

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
            assert index.state(tag, sequence) == _state(truth, tag, sequence)


@given(st.lists(TRUTHS, min_size=1, max_size=4))
def test_the_verdict_is_its_definition(truths: list[Truth]) -> None:
    decided = commits([_lines(truth) for truth in truths])
    names = [OperationName(tag, sequence) for tag in range(4) for sequence in range(6)]
    states = {name: [_state(truth, name.tag, name.sequence) for truth in truths] for name in names}
    done = [name for name in names if all(it >= DATA_DONE for it in states[name])]
    assert list(decided) == [name for name in done if not all(it == RETURNED for it in states[name])]


def test_what_was_called_differently_does_not_commit() -> None:
    ours, theirs = ReportLine(1, 0, 0, DATA_DONE, 5), ReportLine(1, 0, 0, DATA_DONE, 6)
    behind = ReportLine(1, 0, 1, DATA_DONE, 7)
    returned = [ReportLine(1, 1, 1, DATA_DONE, 7)]
    assert commits([[ours, behind], [theirs, behind]]) == (OperationName(1, 1),)
    assert commits([[ours, behind], [ours, behind]]) == (OperationName(1, 0), OperationName(1, 1))
    # Whoever returned success had seen that all called the same.
    assert commits([[ours, behind], returned]) == (OperationName(1, 0), OperationName(1, 1))


def test_nobody_and_nothing() -> None:
    assert commits([]) == ()
    assert commits([[], []]) == ()


def test_the_line_of_an_idle_tag_is_no_returned_operation() -> None:
    idle = [ReportLine(9, 5, 5, RETURNED)]
    assert ReportIndex(idle).state(9, 4) == RETURNED
    assert ReportIndex(idle).state(9, 5) == NOT_STARTED
    assert commits([idle, [ReportLine(9, 5, 5, DATA_DONE)]]) == ()
