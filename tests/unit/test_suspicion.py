# SPDX-License-Identifier: MIT
"""Accusations and probes."""

from __future__ import annotations

from pccl.protocol.suspicion import Accusation, Suspicions
from pccl.protocol.types import Limits

LIMITS = Limits()
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
