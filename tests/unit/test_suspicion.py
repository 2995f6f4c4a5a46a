# SPDX-License-Identifier: MIT
"""Accusations and probes, and what needs none."""

from __future__ import annotations

import pytest

from pccl.errors import Status
from pccl.messages import Suspect
from pccl.protocol.suspicion import Accusation, Suspicions
from pccl.protocol.types import Limits
from tests.cores import Bench, identity

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


@pytest.mark.parametrize("frozen", [False, True])
def test_a_member_that_has_ended_for_certain_is_not_probed(frozen: bool) -> None:
    """Its connection stands for a while, so the router would take it for one that is only slow."""
    bench = Bench()
    bench.together("a", "b", "c")
    if frozen:
        bench.died("a", "b")
    else:
        bench.peer("b").deaf = True
        bench.suspect("a", "b", "its process has ended", Status.PEER_DIED)
    bench.lines.clear()
    bench.run()
    assert not any("Probe" in it for it in bench.lines)
    for survivor in "ac":
        view = bench.peer(survivor).core.view
        assert view is not None
        assert [it.id for it in view.members] == [identity("a"), identity("c")]
        assert "rank 1 (peer 62626262" in view.text


def test_what_is_said_of_a_death_in_another_group_counts_for_nothing() -> None:
    bench = Bench()
    bench.together("a", "b")
    assert bench.master is not None
    bench.say("a", Suspect(2, identity("z"), int(Status.PEER_DIED), "its process has ended"))
    bench.say("a", Suspect(2, identity("a"), int(Status.PEER_DIED), "its process has ended"))
    bench.run()
    assert {bench.peer(it).core.epoch for it in "ab"} == {2}
