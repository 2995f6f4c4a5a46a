# SPDX-License-Identifier: MIT
"""Bytes that arrive otherwise than they were sent, which TCP's own sum lets through now and then."""

from __future__ import annotations

from pathlib import Path

import pytest

from pccl.stress.workload import FORMS
from tests.process.faults import FAULTS
from tests.process.team import LARGE, RSS_BYTES, SMALL, Team

pytestmark = [pytest.mark.process, pytest.mark.alone]


@pytest.mark.parametrize("elements", [SMALL, LARGE])
def test_damaged_data_are_repaired_and_never_a_result(tmp_path: Path, elements: int) -> None:
    """With checksum="always" damage costs the connections it is on, whose bytes are sent again on the others: no
    operation of any collective fails, and each is exact. A link ends only when damage comes faster than connections."""
    with Team(tmp_path, 3, checksum="always", p2p_connection_pool_size=8) as team:
        team.works()
        connections = 3 * 8  # of three pairs
        team.reconnected(connections)
        before = team.footprint(team.all)
        for collective, in_place in FORMS:
            team.reconnected(connections)
            whole = team.traffic(collective, elements, in_place)
            team.data.at(max(1, whole // 2), lambda: FAULTS["corrupt"].strike(team, team.all[1]))
            team.begin(collective, elements, in_place)
            outcome = team.outcomes()
            assert outcome.lost == 0, outcome.texts
        for member in team.all:
            member.data.set(corrupt_every=0)
        team.works()
        team.back_to(before, team.all, 4 * RSS_BYTES)  # with what an engine keeps for large operations to come


@pytest.mark.parametrize("direction", ["up", "down"])
def test_a_damaged_control_plane_disturbs_no_operation(tmp_path: Path, direction: str) -> None:
    """What is said to the master, or by it, is damaged for a while. Votes take longer then; nothing else happens."""
    with Team(tmp_path, 3, master=("--heartbeat-timeout", "10")) as team:
        team.works()
        before = team.footprint(team.all)
        for member in team.all:
            member.control.set(direction, corrupt_every=400)  # type: ignore[arg-type]
        for _ in range(8):
            team.tell(team.all, "stream", steps=20)
            team.answers("streamed", team.all)
            team.vote()
        for member in team.all:
            member.control.set(corrupt_every=0)
        team.settle()
        team.works()
        team.back_to(before, team.all)
        team.recruit()
        team.works()
