# SPDX-License-Identifier: MIT
"""Limits that contradict each other are refused at once, with the rule in the message."""

from __future__ import annotations

from typing import Any

import pytest

from pccl.protocol.types import CALL_NAMES, Limits, VoteKind


@pytest.mark.parametrize(
    ("wrong", "rule"),
    [
        ({"heartbeat_ms": 0}, "heartbeat_ms must be positive"),
        ({"heartbeat_ms": 5_000}, "smaller than heartbeat_limit_ms"),
        ({"probe_ms": 0}, "probe_ms"),
        ({"link_failures": 0}, "link_failures"),
        ({"link_retry_ms": 0}, "link_retry_ms"),
        ({"report_limit_ms": 4_000}, "report_limit_ms must be at least heartbeat_limit_ms"),
    ],
)
def test_inconsistent_limits_are_refused(wrong: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValueError, match=rule):
        Limits(**wrong)


def test_every_joint_call_has_a_name() -> None:
    assert list(CALL_NAMES) == list(VoteKind)
