# SPDX-License-Identifier: MIT
"""Many operations, retried in their order, a few at a time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pccl import CollectiveMismatch, PeerLost, ReduceInfo, TooFewPeers
from pccl.retry import until_done


class Story:
    """Operations that end as their scripts say, and what was in flight at each start."""

    def __init__(self, scripts: list[list[BaseException | None]]) -> None:
        self.scripts = scripts
        self.flying: list[int] = []
        self.started: list[int] = []
        self.most = 0

    def starts(self) -> list[Callable[[], Pending]]:
        return [lambda index=index: self._start(index) for index in range(len(self.scripts))]

    def _start(self, index: int) -> Pending:
        self.started.append(index)
        self.flying.append(index)
        self.most = max(self.most, len(self.flying))
        return Pending(self, index)


class Pending:
    """As `Handle`."""

    def __init__(self, story: Story, index: int) -> None:
        self._story = story
        self._index = index

    def wait(self) -> ReduceInfo:
        self._story.flying.remove(self._index)
        outcome = self._story.scripts[self._index].pop(0)
        if outcome is not None:
            raise outcome
        return ReduceInfo(2, 10, 20, 0, len(self._story.started), 1)


def lost() -> PeerLost:
    return PeerLost("gone")


def test_all_once_when_all_is_well() -> None:
    story = Story([[None] for _ in range(5)])
    info = until_done(story.starts(), 2)  # type: ignore[arg-type]
    assert story.started == [0, 1, 2, 3, 4]
    assert (info.tx_bytes, info.rx_bytes, info.world_size) == (50, 100, 2)
    assert story.most == 2


def test_the_lowest_unfinished_one_is_always_next() -> None:
    story = Story([[None], [lost(), None], [lost(), lost(), None], [None], [None]])
    info = until_done(story.starts(), 3)  # type: ignore[arg-type]
    assert story.started == [0, 1, 2, 3, 1, 2, 4, 2]
    assert info.tx_bytes == 50
    assert story.most == 3


def test_another_failure_is_raised_when_nothing_flies_any_more() -> None:
    story = Story([[None], [CollectiveMismatch("first")], [TooFewPeers("second")], [None]])
    with pytest.raises(CollectiveMismatch, match="first"):
        until_done(story.starts(), 3)  # type: ignore[arg-type]
    assert story.flying == []
    assert story.started == [0, 1, 2, 3]


def test_a_start_that_fails_is_no_different() -> None:
    story = Story([[None], [None]])
    tries = iter([TooFewPeers("alone")])

    def refused() -> Pending:
        raise next(tries)

    with pytest.raises(TooFewPeers):
        until_done([*story.starts(), refused], 8)  # type: ignore[list-item]
    assert story.flying == []


def test_a_start_may_meet_a_loss() -> None:
    story = Story([[None], [None]])
    first, second = story.starts()
    losses = iter([lost()])

    def late() -> Pending:
        for loss in losses:
            raise loss
        return second()

    assert until_done([first, late], 2).tx_bytes == 20  # type: ignore[list-item]
    assert story.started == [0, 1]


def test_ctrl_c_starts_what_had_to_wait_once() -> None:
    story = Story([[lost(), None], [KeyboardInterrupt()], [None], [None], [None]])
    with pytest.raises(KeyboardInterrupt):
        until_done(story.starts(), 2)  # type: ignore[arg-type]
    assert story.started == [0, 1, 0, 2, 3, 4]


def test_ctrl_c_after_a_failure_starts_nothing() -> None:
    story = Story([[TooFewPeers("alone")], [KeyboardInterrupt()], [None]])
    with pytest.raises(KeyboardInterrupt):
        until_done(story.starts(), 2)  # type: ignore[arg-type]
    assert story.started == [0, 1]


def test_ctrl_c_ends_even_if_what_had_to_wait_cannot_be_started() -> None:
    story = Story([[KeyboardInterrupt()], [None]])
    refusals: list[int] = []

    def refused() -> Pending:
        refusals.append(1)
        raise TooFewPeers("alone")

    with pytest.raises(KeyboardInterrupt):
        until_done([story.starts()[0], refused, refused], 1)  # type: ignore[list-item]
    assert refusals == [1]
