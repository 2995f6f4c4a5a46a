# SPDX-License-Identifier: MIT
"""The stories of links: what is avoided, offered again, and given up."""

from __future__ import annotations

from pccl.protocol.links import Links, between
from pccl.protocol.types import Limits

LIMITS = Limits(link_failures=3, link_window_ms=1_000, link_patience_ms=20, link_retry_ms=100)
A, B, C, D = (name * 16 for name in (b"a", b"b", b"c", b"d"))


def _twice(links: Links, one: bytes, other: bytes, epoch: int, now: int) -> None:
    links.failed(one, other, epoch, now)
    links.failed(one, other, epoch + 1, now)


def test_both_ends_tell_of_one_fault() -> None:
    links = Links(LIMITS)
    links.failed(A, B, 1, 0)
    links.failed(B, A, 1, 5)
    assert links.avoided([A, B, C]) == []
    assert links.shaky([A, B, C], 900) == [(A, B)]
    links.failed(B, A, 2, 6)
    assert links.avoided([A, B, C]) == [(A, B)]
    assert links.shaky([A, B, C], 900) == []
    assert links.avoided([A, C]) == []


def test_a_link_that_held_begins_a_new_story() -> None:
    links = Links(LIMITS)
    for epoch in range(5):
        links.failed(A, B, epoch + 1, 1_100 * epoch)
    assert links.avoided([A, B]) == []
    assert links.shaky([A, B], 10_000) == []


def test_a_doubt_counts_until_the_link_stands() -> None:
    links = Links(LIMITS)
    links.doubted(A, B, 1, 0)
    links.stands(B, A)
    links.failed(A, B, 1, 10)
    assert links.avoided([A, B]) == []
    links.doubted(A, C, 1, 0)
    links.failed(A, C, 1, 10)
    assert links.avoided([A, C]) == [(A, C)]
    links.doubted(A, D, 1, 0)
    links.failed(A, D, 2, 10)
    assert links.avoided([A, D]) == [], "the next epoch dials afresh"


def test_trials_come_at_growing_intervals_until_the_link_stands() -> None:
    links = Links(LIMITS)
    assert links.deadline() is None
    _twice(links, A, B, 1, 0)
    times: list[int] = []
    while len(times) < 9:
        due = links.deadline()
        assert due is not None
        assert links.trials(due - 1) == []
        assert links.trials(due) == [(A, B)]
        times.append(due)
    assert times[:4] == [100, 300, 700, 1_500]
    assert times[8] - times[7] == times[7] - times[6] == 6_400
    links.stands(A, B)
    assert links.deadline() is None
    assert (links.avoided([A, B]), links.avoided([A, B], offering=True)) == ([(A, B)], [])
    links.offer([A, B], times[8])
    assert links.avoided([A, B]) == []


def test_who_is_cut_off_goes_only_when_nothing_is_left_to_try() -> None:
    links = Links(LIMITS)
    members = [A, B, C]
    _twice(links, A, C, 1, 0)
    assert links.cut_off(members, 1) == []
    assert links.avoided(members) == [(A, C)]
    _twice(links, B, C, 3, 10)
    assert links.cut_off(members, 11) == []
    assert links.avoided(members) == [], "both are offered once more"
    links.failed(A, C, 5, 20)
    assert links.cut_off(members, 21) == []
    links.failed(B, C, 6, 30)
    assert links.cut_off(members, 31) == [C]
    assert between(links.avoided(members), [C], {A: 0, B: 1, C: 2}) == "0-2, 1-2"
    links.drop(C)
    assert links.avoided(members) == []


def test_of_equal_parts_the_higher_ranks_go() -> None:
    links = Links(LIMITS)
    gone: list[list[bytes]] = []
    for epoch in range(3):
        for one in (A, B):
            for other in (C, D):
                links.failed(one, other, 1 + epoch, 10 * epoch)
        gone.append(links.cut_off([A, B, C, D], 10 * epoch))
    assert gone == [[], [], [C, D]]


def test_what_is_offered_need_not_save_everybody() -> None:
    links = Links(LIMITS)
    for epoch in range(1, 4):
        assert links.cut_off([A, B, C], 10 * epoch) == []
        links.failed(A, C, epoch, 10 * epoch)
        links.failed(B, C, epoch, 10 * epoch)
    _twice(links, A, B, 2, 30)
    assert links.cut_off([A, B, C], 30) == [C], "the link between the others is offered once more"
    assert links.avoided([A, B, C]) == [(A, C), (B, C)]


def test_a_link_that_cannot_be_dialled_is_given_up_after_its_faults() -> None:
    links = Links(LIMITS)
    for epoch in range(1, 4):
        assert links.cut_off([A, B], 0) == []
        links.doubted(B, A, epoch, 0)
        links.failed(A, B, epoch, 0)
    assert links.cut_off([A, B], 0) == [], "A may be able to dial B"
    links.doubted(B, A, 4, 0)
    links.doubted(A, B, 4, 0)
    links.failed(A, B, 4, 0)
    assert links.cut_off([A, B], 0) == [B]


def test_nobody_goes_while_operations_get_done_between_faults() -> None:
    links = Links(LIMITS)
    for epoch in range(1, 9):
        now = 15 * epoch
        links.failed(A, B, epoch, now)
        assert links.cut_off([A, B], now) == []
        links.worked([A, B], now)
    links.failed(A, B, 9, 8 * 15 + 19)
    assert links.cut_off([A, B], 8 * 15 + 19) == []
    links.failed(A, B, 10, 8 * 15 + 20)
    assert links.cut_off([A, B], 8 * 15 + 20) == [B]


def test_failed_trials_count_for_nothing() -> None:
    links = Links(LIMITS)
    _twice(links, A, B, 1, 0)
    for epoch in range(3, 9):
        links.failed(A, B, epoch, 100 * epoch)
    assert links.cut_off([A, B], 900) == [], "it is offered once more"
    links.failed(A, B, 9, 950)
    assert links.cut_off([A, B], 951) == [B]


def test_a_restarted_master_goes_on_avoiding() -> None:
    links = Links(LIMITS)
    links.remember([(B, A)], 50)
    assert links.avoided([A, B, C]) == [(A, B)]
    assert links.deadline() == 150
