# SPDX-License-Identifier: MIT
"""pccl/trace/file.py: what is written is read back; nothing else is."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pccl.trace import file
from pccl.trace.file import BadTrace
from pccl.trace.record import EVENT_KINDS, Event, Header, Link, Operation, Trace, TraceMember, Wait

NUMBERS = st.integers(0, 2**64 - 1)
TEXTS = st.text(max_size=20)
PEERS = st.binary(min_size=16, max_size=16).map(bytes.hex)
WAITS = st.lists(st.builds(Wait, NUMBERS, NUMBERS), max_size=3).map(tuple)
OPERATIONS = st.builds(
    Operation,
    **dict.fromkeys(("epoch", "tag", "sequence", "scope", "count", "payload_bytes", "world_size", "rank"), NUMBERS),
    **dict.fromkeys(("status", "called_ns", "started_ns", "data_done_ns", "ended_ns", "tx_bytes", "rx_bytes"), NUMBERS),
    **dict.fromkeys(("collective", "dtype", "op", "algorithm", "text"), TEXTS),
    deferred=st.booleans(),
    absent=st.booleans(),
    waits_count=NUMBERS,
    waits=WAITS,
    last_peer=PEERS,
)
EVENTS = st.builds(Event, st.sampled_from(EVENT_KINDS), NUMBERS, NUMBERS, NUMBERS, NUMBERS, PEERS, NUMBERS, TEXTS)
LINKS = st.builds(Link, NUMBERS, PEERS, TEXTS, NUMBERS, NUMBERS, TEXTS, NUMBERS, NUMBERS)
MEMBERS = st.lists(st.builds(TraceMember, PEERS, TEXTS, NUMBERS), max_size=3).map(tuple)
HEADERS = st.builds(
    Header, PEERS, NUMBERS, st.integers(-1, 100), NUMBERS, TEXTS, NUMBERS, TEXTS, TEXTS, NUMBERS, NUMBERS, MEMBERS
)
TRACES = st.builds(
    Trace,
    HEADERS,
    st.lists(OPERATIONS, max_size=3).map(tuple),
    st.lists(EVENTS, max_size=3).map(tuple),
    st.lists(LINKS, max_size=3).map(tuple),
)

HEADER = Header("ab" * 16, 0, 1, 7, "host", 123, "PeerLost", "rank 2 was lost", 10**18, 10**9)


def lines(trace: Trace) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.encode(trace).splitlines()]


def packed(*objects: Any) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in objects)


@given(TRACES)
def test_what_is_written_is_read_back(trace: Trace) -> None:
    assert file.decode(file.encode(trace)) == trace


@given(TRACES, st.data())
def test_a_cut_or_altered_file_is_read_or_refused(trace: Trace, data: st.DataObject) -> None:
    written = bytearray(file.encode(trace))
    for _ in range(data.draw(st.integers(0, 3))):
        written[data.draw(st.integers(0, len(written) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(written[: data.draw(st.integers(0, len(written)))])
    with contextlib.suppress(BadTrace):
        assert isinstance(file.decode(cut), Trace)


@given(st.binary(max_size=200))
def test_garbage_is_refused(data: bytes) -> None:
    with pytest.raises(BadTrace):
        file.decode(data)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | TEXTS, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner)
    )
)
def test_other_json_is_refused(value: Any) -> None:
    with pytest.raises(BadTrace):
        file.decode(packed(lines(Trace(HEADER))[0], value))


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"pccl_trace": 3}, "version 3; this pccl reads version 2"),
        ({"pccl_trace": True}, "not a trace of pccl"),
        ({"rank": -2}, "line 1: header.rank: not a number"),
        ({"rank": 1.0}, "line 1: header.rank: not int"),
        ({"pid": 2**64}, "header.pid: not a number"),
        ({"text": 5}, "header.text: not str"),
        ({"members": [{"peer": "x"}]}, "header.members: not its 3 fields"),
        ({"members": {}}, "header.members: not a list"),
        ({"more": 1}, "header: not its 11 fields"),
    ],
)
def test_wrong_headers_are_named(changed: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadTrace, match=complaint):
        file.decode(packed({**lines(Trace(HEADER))[0], **changed}))


def test_wrong_records_are_named() -> None:
    head = lines(Trace(HEADER))[0]
    event = {"kind": "born", "at_ns": 1, "epoch": 1, "world_size": 1, "rank": 0, "peer": "", "status": 0, "text": ""}
    for line, complaint in [
        ({"event": event}, "line 2: unknown event 'born'"),
        ({"party": {}}, "line 2: unknown record 'party'"),
        ({"event": {}, "link": {}}, "line 2: not one record"),
        ([1], "line 2: not an object"),
    ]:
        with pytest.raises(BadTrace, match=complaint):
            file.decode(packed(head, line))
    with pytest.raises(BadTrace, match="line 2: not JSON"):
        file.decode(packed(head) + b"[" * 100_000 + b"\n")
    with pytest.raises(BadTrace, match="line 1: the file is empty"):
        file.decode(b"")
    with pytest.raises(BadTrace, match="cut off"):
        file.decode(file.encode(Trace(HEADER))[:-5])
