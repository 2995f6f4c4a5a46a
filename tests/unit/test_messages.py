# SPDX-License-Identifier: MIT
"""Messages: everything survives the wire, and nothing malformed becomes an object."""

from __future__ import annotations

import dataclasses
import typing
from typing import Annotated, Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pccl import messages
from pccl.errors import ProtocolError
from pccl.messages import (
    KINDS,
    MAX_TEXT_CHARACTERS,
    PROTOCOL_VERSION,
    Hello,
    Limit,
    OtherVersion,
    Refused,
    Report,
    StatusRequest,
    Suspect,
    clip,
    decode,
    encode,
)
from tests.strategies import objects

ANY = st.one_of([objects(cls) for cls in KINDS.values()])


def _is_known(made: Any) -> bool:
    return type(made) in KINDS.values() or isinstance(made, OtherVersion)


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.__name__)
@settings(max_examples=25)
@given(data=st.data())
def test_every_message_survives_the_wire(kind: type[Any], data: st.DataObject) -> None:
    made = data.draw(objects(kind))
    back = decode(encode(made))
    if isinstance(made, Hello | StatusRequest) and made.version != PROTOCOL_VERSION:
        assert back == OtherVersion(made.version)
    else:
        assert back == made


@given(st.binary(max_size=200))
def test_random_bytes_are_refused_or_parsed_whole(data: bytes) -> None:
    try:
        made = decode(data)
    except ProtocolError:
        return
    assert _is_known(made)


@given(ANY, st.data())
def test_a_damaged_message_is_refused_or_parsed_whole(made: Any, data: st.DataObject) -> None:
    wire = bytearray(encode(made))
    place = data.draw(st.integers(0, len(wire) - 1))
    wire[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(wire)))
    for damaged in (bytes(wire), bytes(wire[:cut]), bytes(wire) + b"\0"):
        try:
            back = decode(damaged)
        except ProtocolError:
            continue
        assert _is_known(back)


SIMPLE = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=8,
)


@given(st.sampled_from(sorted(KINDS)), st.lists(SIMPLE, max_size=12))
def test_well_formed_msgpack_of_wrong_types_is_refused(kind: int, fields: list[Any]) -> None:
    try:
        back = decode(msgpack.packb([kind, *fields]))
    except ProtocolError:
        return
    assert _is_known(back)


def test_true_is_no_integer_and_one_is_no_flag() -> None:
    with pytest.raises(ProtocolError, match="epoch"):
        decode(msgpack.packb([3, True]))
    good = msgpack.unpackb(encode(messages.VoteResult(1, 0, "", True, b"", 1, messages.Census(1, 1, 1))))
    good[4] = 1
    with pytest.raises(ProtocolError, match="flag"):
        decode(msgpack.packb(good))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not a message"),
        (b"\xc1", "not a message"),
        (msgpack.packb({}), "no kind"),
        (msgpack.packb([]), "no kind"),
        (msgpack.packb([0]), "unknown message kind 0"),
        (msgpack.packb([200, 1]), "unknown message kind 200"),
        (msgpack.packb([3]), "0 fields instead of 1"),
        (msgpack.packb([3, 1, 2]), "2 fields instead of 1"),
        (msgpack.packb([3, -1]), "Heartbeat.epoch"),
        (msgpack.packb([3, 1]) + b"\x00", "not a message"),
        (b"\xdd\xff\xff\xff\xff", "not a message"),  # an array of four billion elements
        (b"\xc6\xff\xff\xff\xff", "not a message"),  # bytes of four billion
        (b"\x91" * 5000, "not a message"),
        (msgpack.packb([3, msgpack.ExtType(4, b"x")]), "not a message"),
    ],
)
def test_malformed_bytes_say_what_is_wrong(data: bytes, why: str) -> None:
    with pytest.raises(ProtocolError, match=why):
        decode(data)


def test_an_optional_id_has_no_other_length_than_none_or_full() -> None:
    for length, good in ((0, True), (1, False), (15, False), (16, True), (17, False)):
        wire = encode(Report(1, bytes(length), 0, "", ()))
        if good:
            assert len(decode(wire).suspect) == length
        else:
            with pytest.raises(ProtocolError, match="suspect"):
                decode(wire)


def test_limits_are_held_at_the_border(monkeypatch: pytest.MonkeyPatch) -> None:
    assert decode(encode(Suspect(1, bytes(16), 0, "x" * MAX_TEXT_CHARACTERS))).text
    with pytest.raises(ProtocolError, match="text"):
        decode(encode(Suspect(1, bytes(16), 0, "x" * (MAX_TEXT_CHARACTERS + 1))))
    monkeypatch.setattr(messages, "MAX_MESSAGE_BYTES", 4)
    with pytest.raises(ProtocolError, match="over the limit"):
        decode(encode(Suspect(1, bytes(16), 0, "")))


def test_another_version_is_recognised_whatever_follows_it() -> None:
    assert decode(msgpack.packb([1, PROTOCOL_VERSION + 1, "anything", {}][:3])) == OtherVersion(PROTOCOL_VERSION + 1)


def test_what_never_changes_between_versions_has_not_changed() -> None:
    assert KINDS[1] is Hello
    assert dataclasses.fields(Hello)[0].name == "version"
    assert KINDS[64] is Refused
    assert encode(Refused(1, 100, "no")) == msgpack.packb([64, 1, 100, "no"])


def test_clip_makes_any_text_fit_a_text_field() -> None:
    for text in ("", "x" * 5000, "\ud800", "ä" * 600):
        clipped = clip(text)
        assert decode(encode(Suspect(1, bytes(16), 0, clipped))).text == clipped


def test_the_fields_of_all_messages_have_limits() -> None:
    for cls in KINDS.values():
        for name, hint in typing.get_type_hints(cls, include_extras=True).items():
            if typing.get_origin(hint) is Annotated:
                assert isinstance(typing.get_args(hint)[1], Limit), f"{cls.__name__}.{name}"
            else:
                assert hint is bool or dataclasses.is_dataclass(hint), f"{cls.__name__}.{name}"
