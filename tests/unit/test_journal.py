# SPDX-License-Identifier: MIT
"""The journal: what is written is replayed; a torn end is cut off, damage is refused."""

from __future__ import annotations

import struct
import zlib

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pccl.errors import ProtocolError
from pccl.messages import Census, Member, OperationName, Prices
from pccl.protocol import journal
from pccl.protocol.types import Admission, Answer, Change, GroupView, Memory, Past, Record, Settings

IDS = st.sampled_from([name * 16 for name in (b"a", b"b", b"c", b"d")])
U32 = st.integers(0, 2**32 - 1)
NAMES = st.builds(OperationName, U32, U32)
CENSUSES = st.builds(Census, U32, U32, U32)
MEMBERS = st.lists(IDS, unique=True, max_size=4)


def _admission(peer: bytes, group: int) -> Admission:
    return Admission(peer, peer[::-1], group, Member(peer, "10.0.0.1", 7, 9, 2))


@st.composite
def histories(draw: st.DrawFn) -> list[Record]:
    """Settings, then changes as a master makes them: epochs rise, members of views are admitted."""
    records: list[Record] = [Settings(b"s" * 16)]
    epoch = 0
    for _ in range(draw(st.integers(0, 6))):
        if draw(st.booleans()):
            memory = Memory(draw(st.integers(0, 2)), draw(st.binary(max_size=8)))
            answers = [Answer(peer, epoch, 0, "", False, b"y") for peer in draw(MEMBERS)]
            records.append(Change(answers=tuple(answers), memories=(memory,)))
            continue
        epoch += 1
        members = draw(MEMBERS)
        group = draw(st.integers(0, 2))
        view = GroupView(
            epoch,
            epoch - 1,
            group,
            tuple(members),
            tuple(range(len(members))),
            (),
            tuple(draw(st.lists(NAMES, max_size=2))),
            draw(st.integers(0, 16)),
            draw(st.text(max_size=5)),
            census=draw(CENSUSES),
            prices=Prices(*draw(st.tuples(*[st.integers(0, 2**40)] * 4))),
        )
        answers = [Answer(peer, epoch, 0, "", draw(st.booleans()), b"x", epoch, draw(CENSUSES)) for peer in members]
        records.append(Change(tuple(_admission(peer, group) for peer in members), (view,), tuple(answers)))
    return records


def _write(records: list[Record]) -> bytes:
    return b"".join(journal.encode(record) for record in records)


def _apply(records: list[Record]) -> Past:
    past = Past()
    for record in records:
        journal.apply(past, record)
    return past


@given(histories())
def test_replay_is_what_applying_the_records_gives(records: list[Record]) -> None:
    data = _write(records)
    assert journal.replay(data) == (_apply(records), len(data))


@given(histories())
def test_a_snapshot_replays_to_the_same_state(records: list[Record]) -> None:
    past = _apply(records)
    assert journal.replay(_write(journal.snapshot(past)))[0] == past


@given(histories())
def test_a_journal_cut_anywhere_keeps_its_whole_records(records: list[Record]) -> None:
    data = _write(records)
    ends = [0]
    for record in records:
        ends.append(ends[-1] + len(journal.encode(record)))
    for cut in range(len(data) + 1):
        past, valid = journal.replay(data[:cut])
        assert valid == max(end for end in ends if end <= cut)
        assert past == _apply(records[: ends.index(valid)])


HISTORY: list[Record] = [
    Settings(b"s" * 16),
    Change((_admission(b"a" * 16, 0),), (GroupView(1, 0, 0, (b"a" * 16,), (0,), (0,), (), 0, ""),), ()),
    Change(answers=(Answer(b"a" * 16, 1),), memories=(Memory(0, b"12345678"),)),
]


def test_a_tail_of_zeros_is_a_torn_write() -> None:
    data = _write(HISTORY)
    assert journal.replay(data + bytes(4_096)) == (_apply(HISTORY), len(data))


def test_a_torn_last_record_with_garbage_in_it_is_cut() -> None:
    data = bytearray(_write(HISTORY))
    data[-1] ^= 1
    past, valid = journal.replay(bytes(data))
    assert valid == len(_write(HISTORY[:2]))
    assert past == _apply(HISTORY[:2])


def test_damage_before_the_end_is_refused() -> None:
    data = bytearray(_write(HISTORY))
    data[len(_write(HISTORY[:1])) + 12] ^= 1
    with pytest.raises(ProtocolError, match="damaged"):
        journal.replay(bytes(data))


@given(histories(), st.data())
def test_a_flipped_bit_is_refused_or_costs_the_last_record_only(records: list[Record], data: st.DataObject) -> None:
    written = bytearray(_write(records))
    bit = data.draw(st.integers(0, 8 * len(written) - 1))
    written[bit // 8] ^= 1 << bit % 8
    try:
        past, valid = journal.replay(bytes(written))
    except ProtocolError:
        return
    assert valid == len(_write(records[:-1]))
    assert past == _apply(records[:-1])


@given(histories(), st.data())
def test_noise_in_place_of_any_part_is_refused_or_cut(records: list[Record], data: st.DataObject) -> None:
    written = _write(records)
    begin = data.draw(st.integers(0, len(written)))
    end = data.draw(st.integers(begin, len(written)))
    damaged = written[:begin] + data.draw(st.binary(max_size=60)) + written[end:]
    try:
        past, valid = journal.replay(damaged)
    except ProtocolError:
        return
    whole = [count for count in range(len(records) + 1) if _write(records[:count]) == damaged[:valid]]
    assert whole, "only whole records that were written"
    assert past == _apply(records[: whole[0]])


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-5, 2**64 - 1) | st.binary(max_size=16) | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=9),
        max_leaves=30,
    )
)
def test_a_record_of_any_content_is_refused_or_applied(content: object) -> None:
    data = _write(HISTORY[:1]) + _frame(content)
    try:
        journal.replay(data)
    except ProtocolError:
        return
    assert isinstance(content, list)


def test_records_that_changed_places_are_refused() -> None:
    changes = [
        Change((_admission(b"a" * 16, 0),), (GroupView(epoch, 0, 0, (b"a" * 16,), (0,), (0,), (), 0, ""),), ())
        for epoch in (1, 2)
    ]
    for order in ([1, 0], [0, 0]):
        with pytest.raises(ProtocolError, match="comes after"):
            journal.replay(_write([HISTORY[0], *(changes[place] for place in order)]))


def test_an_empty_file_is_a_fresh_run() -> None:
    assert journal.replay(b"") == (Past(), 0)


def _frame(payload: object) -> bytes:
    packed: bytes = msgpack.packb(payload)
    head = struct.pack("<II", len(packed), zlib.crc32(packed))
    return head + struct.pack("<I", zlib.crc32(head)) + packed


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        ([1, 99, b"s" * 16], "version 99"),
        ([2, [], [], [], []], "does not begin with its settings"),
        ([9], "unknown record kind"),
        ([1], "unreadable"),
        ("text", "unknown record kind|unreadable"),
        ([2, 1, 2, 3], "unreadable"),
    ],
)
def test_a_file_that_is_no_journal_of_ours_is_refused(payload: object, why: str) -> None:
    with pytest.raises(ProtocolError, match=why):
        journal.replay(_frame(payload))


def test_an_ended_group_keeps_its_epoch_number_and_its_memory() -> None:
    records = [*HISTORY, Change((), (GroupView(2, 1, 0, (), (), (), (), 0, "the group has ended"),), ())]
    past = journal.replay(_write(journal.snapshot(_apply(records))))[0]
    assert past.epoch == 2
    assert past.views == {}
    assert past.admissions == {}
    assert past.memories == {0: b"12345678"}
