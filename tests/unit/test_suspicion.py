# SPDX-License-Identifier: MIT
"""Accusations, probes and broken links."""

from __future__ import annotations

from pccl.protocol.suspicion import Accusation, LinkFaults, Suspicions
from pccl.protocol.types import Limits

LIMITS = Limits(link_failures=3, link_window_ms=1_000)
A, B, C = b"a" * 16, b"b" * 16, b"c" * 16


def _accusation(accuser: bytes, epoch: int = 1) -> Accusation:
    return Accusation(accuser, epoch, "reset", link=True)


def test_only_the_answer_to_the_newest_probe_clears() -> None:
    cases = Suspicions(LIMITS)
    assert cases.accuse(B, _accusation(A), nonce=7, now=0)
    assert cases.accuse(B, _accusation(C), nonce=9, now=1)
    assert cases.answered(B, 7) == []
    assert cases.suspected(B)
    assert cases.answered(B, 9) == [_accusation(A), _accusation(C)]
    assert not cases.suspected(B)


def test_the_same_accusation_is_no_news() -> None:
    cases = Suspicions(LIMITS)
    assert cases.accuse(B, _accusation(A), nonce=7, now=0)
    assert not cases.accuse(B, _accusation(A), nonce=8, now=1)
    assert cases.accuse(B, _accusation(A, epoch=2), nonce=9, now=2)
    assert cases.answered(B, 7) == []


def test_probes_are_repeated() -> None:
    cases = Suspicions(LIMITS)
    assert cases.deadline() is None
    cases.accuse(B, _accusation(A), nonce=7, now=100)
    assert cases.deadline() == 100 + LIMITS.probe_ms
    assert cases.due(100) == []
    assert cases.due(100 + LIMITS.probe_ms) == [(B, 7)]
    assert cases.deadline() == 100 + 2 * LIMITS.probe_ms


def test_who_is_gone_neither_accuses_nor_is_suspected() -> None:
    cases = Suspicions(LIMITS)
    cases.accuse(B, _accusation(A), nonce=7, now=0)
    cases.accuse(C, _accusation(B), nonce=8, now=0)
    assert cases.any_of([A, C])
    cases.drop(B)
    assert not cases.any_of([A, B, C])


def test_a_link_that_breaks_again_and_again_is_told() -> None:
    links = LinkFaults(LIMITS)
    assert not links.note(A, B, epoch=1, now=0)
    assert not links.note(B, A, epoch=1, now=1)
    assert not links.note(B, A, epoch=2, now=2)
    assert links.note(A, B, epoch=3, now=3)
    assert links.degree(A, now=3) == 1
    assert links.broken(now=3) == [(A, B)]


def test_old_faults_are_forgotten() -> None:
    links = LinkFaults(LIMITS)
    links.note(A, B, epoch=1, now=0)
    links.note(A, B, epoch=2, now=900)
    assert not links.note(A, B, epoch=3, now=1_100)
    assert links.broken(now=3_000) == []


def test_a_peer_that_is_gone_takes_its_links_with_it() -> None:
    links = LinkFaults(LIMITS)
    links.note(A, B, epoch=1, now=0)
    links.note(A, C, epoch=1, now=0)
    assert links.degree(A, now=1) == 2
    links.drop(B)
    assert links.broken(now=1) == [(A, C)]
