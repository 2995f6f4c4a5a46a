# SPDX-License-Identifier: MIT
"""Names of groups for the engine: the same in every process and form, and different for different groups."""

from __future__ import annotations

import pytest

from pccl.errors import InvalidArgument
from pccl.torch.group import Group, Part, part_of, tag_of


def test_tags_are_those_that_other_forms_and_processes_know() -> None:
    assert tag_of("0") == 0x67478AC409415200
    assert tag_of("0", 0) == 0x2C7CB943F42B40AB
    assert tag_of("0", -1) == 0x15E23BBADBC7B51E


def test_tags_stay_in_the_users_half_and_differ() -> None:
    tags = [tag_of(name, tag) for name in ("0", "1", "00", "ptd:0") for tag in (None, 0, 1, 2**31 - 1, -1)]
    assert len(set(tags)) == len(tags)
    assert all(0 <= it < 2**63 for it in tags)


def test_a_group_knows_its_members_by_their_places() -> None:
    group = Group("g", (4, 2, 7), 1, 3, 9, "g", 1000)
    assert group.size == 3
    assert group.rank_of(7) == 2
    assert group.tag == tag_of("g")
    assert group.tag_for(5) == tag_of("g", 5)


def test_parts_are_named_after_what_they_are_parts_of() -> None:
    whole = Group("g", (4, 2, 7), 1, 3, 9, "k", 1000)
    assert part_of(whole, [2, 1], 5, None, 0.5) == Part("k:split:2,1:5", "k:split:2,1:5", (7, 2), 0.5)
    assert part_of(whole, [0, 1], 6, "torch's", 1.0) == Part("torch's", "k:split:0,1:6", (4, 2), 1.0)
    assert part_of(whole, [0, 2], 7, None, 1.0) is None
    for wrong in ([1, 1], [1, 3], [-1, 1]):
        with pytest.raises(InvalidArgument, match="each once"):
            part_of(whole, wrong, 8, None, 1.0)
