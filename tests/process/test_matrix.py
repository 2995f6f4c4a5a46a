# SPDX-License-Identifier: MIT
"""Every fault in every phase of every collective, in place and not: `pytest -m matrix`, about two hours.

What runs of it in each test run: each fault in the middle of the data of one collective and in the finish phase of
another, taking turns.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pccl.stress.workload import FORMS, FORMS_OF_ALL_LINKS
from tests.process.faults import FAULTS, OPTIONS, Case
from tests.process.team import LARGE, SMALL, Team

pytestmark = [pytest.mark.process, pytest.mark.alone]

MASTER = ("--heartbeat-timeout", "2")
FRAME_BYTES = 112
PHASES = {
    "first bytes": (0.0, 0),
    "data": (0.5, 0),
    "end of data": (1.0, 9 * FRAME_BYTES),
    "finish": (1.0, 4 * FRAME_BYTES),
    "last frame": (1.0, FRAME_BYTES),
}
"""Share of the operation's traffic and bytes less: three members' finish phase has six frames."""


@pytest.mark.matrix
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("elements", [SMALL, LARGE])
@pytest.mark.parametrize("fault", FAULTS)
def test_fault_in_phase(tmp_path: Path, fault: str, elements: int, phase: str) -> None:
    with Team(tmp_path, 3, master=MASTER, **OPTIONS) as team:
        case = Case(team, fault)
        gone = FAULTS[fault].gone  # else a link may be out of use for a while
        for collective, in_place in [*FORMS, *(FORMS_OF_ALL_LINKS if gone else [])]:
            case.play(collective, elements, in_place, *PHASES[phase])


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_in_data_and_finish(tmp_path: Path, fault: str) -> None:
    turn = list(FAULTS).index(fault)
    with Team(tmp_path, 3, master=MASTER, **OPTIONS) as team:
        case = Case(team, fault)
        collective, in_place = FORMS[turn % len(FORMS)]
        case.play(collective, LARGE, in_place, *PHASES["data"])
        collective, in_place = FORMS[(turn + len(FAULTS)) % len(FORMS)]
        case.play(collective, SMALL, in_place, *PHASES["finish"])
