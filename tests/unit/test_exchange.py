# SPDX-License-Identifier: MIT
"""What members tell each other before objects move, and how they judge it: alike, whatever a peer sends."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pccl import CollectiveMismatch, InvalidArgument, ObjectError, PCCLError, exchange
from pccl.exchange import CALLS, OWN_TAGS, Exchange, Notice, judge
from pccl.packing import Packer, Pickled, Plain
from pccl.request import Members, Modes, Request

SIZE = exchange._NOTICE.size
GOOD = Notice(0, Plain.number, False, 0, 10, 100)


def made(rank: int = 0, **fields: Any) -> Exchange:
    packer: Packer = fields.pop("packer", Plain)
    values = {"tag": 5, "timeout": None, "max_bytes": 100, **fields}
    modes = Modes.of(deferred=False, preserve_input=True)
    return Exchange(Members(9, 3, rank), modes, values["tag"], values["timeout"], packer, values["max_bytes"])


def told(one: Request, notices: list[bytes]) -> None:
    """As if the all_gather had ended so."""
    memory = one.owner[1].owner  # type: ignore[index]
    for row, raw in zip(memory, notices, strict=True):
        row[:] = list(raw)


@pytest.mark.parametrize(
    ("notices", "kind", "text"),
    [
        (
            [GOOD, GOOD._replace(call=1)],
            CollectiveMismatch,
            r"rank 0 calls broadcast_object\(plain data, root=0\), rank 1",
        ),
        ([GOOD, GOOD._replace(root=1)], CollectiveMismatch, r"rank 1 calls broadcast_object\(plain data, root=1\)"),
        ([GOOD, GOOD, GOOD._replace(packer=2)], CollectiveMismatch, r"rank 2 calls broadcast_object\(pickle, root=0\)"),
        ([GOOD, GOOD._replace(call=99, packer=99)], CollectiveMismatch, r"call 99\(packer 99, root=0\)"),
        ([GOOD, GOOD._replace(failed=True, text=b"a set\xff")], ObjectError, "rank 1 has nothing to hand over: a set"),
        ([GOOD, GOOD._replace(max_bytes=9)], ObjectError, "rank 0 has an object of 10 bytes, rank 1 takes 9 at most"),
        ([GOOD, GOOD._replace(size=2**63)], ObjectError, "rank 1 has an object of 9223372036854775808 bytes"),
    ],
)
def test_what_does_not_fit_together_is_said_to_all(notices: list[Notice], kind: type[PCCLError], text: str) -> None:
    with pytest.raises(kind, match=text):
        raise judge(notices) or AssertionError
    assert judge([GOOD, GOOD._replace(size=100)]) is None


@given(st.lists(st.binary(min_size=SIZE, max_size=SIZE), min_size=2, max_size=4))
def test_any_notices_are_judged(raw: list[bytes]) -> None:
    notices = [Notice.read(it) for it in raw]
    verdict = judge(notices)
    assert verdict is None or str(verdict)
    assert judge(notices) == verdict or repr(judge(notices)) == repr(verdict)
    assert [Notice.read(it.write()) for it in notices] == notices


@given(st.binary(min_size=SIZE, max_size=SIZE), st.binary(max_size=30))
def test_a_peer_may_tell_and_send_anything(notice: bytes, sent: bytes) -> None:
    assert outcome(notice, sent)


@given(st.integers(1, 100), st.binary(max_size=100))
def test_a_peer_that_tells_what_fits_may_send_anything(size: int, sent: bytes) -> None:
    assert outcome(GOOD._replace(size=size).write(), sent)


def outcome(notice: bytes, sent: bytes) -> str:
    """Of a broadcast from rank 0, which tells and sends this."""
    steps = made(rank=1).broadcast(None, 0)
    told(next(steps), [notice, GOOD.write(), GOOD.write()])
    try:
        move = next(steps)
        memory = move.owner[0].owner  # type: ignore[index]
        memory[:] = list(sent[: len(memory)].ljust(len(memory), b"\0"))
        next(steps)
    except (ObjectError, CollectiveMismatch) as failure:
        return str(failure)
    except StopIteration as end:
        return repr(end.value)
    return ""


@pytest.mark.parametrize("call", CALLS)
def test_pickled_objects_are_never_unpickled_unasked(call: str) -> None:
    """Whatever a peer says: the caller's own choice decides how bytes are read."""
    number = CALLS.index(call)
    steps: Any = getattr(made(rank=1), call.removesuffix("_object"))
    steps = steps(None) if call == "all_gather_object" else steps(None, 0)
    theirs = Notice(number, Pickled.number, False, 0, 20, 100).write()
    told(next(steps), [theirs, Notice(number, Plain.number, False, 0, 1, 100).write(), theirs])
    with pytest.raises(CollectiveMismatch, match=r"rank 0 calls .*pickle.*rank 1 calls .*plain data"):
        next(steps)


def test_arguments_are_refused_before_anything_is_sent() -> None:
    for wrong in ({"tag": -1}, {"tag": OWN_TAGS}, {"timeout": 0}, {"max_bytes": 0}, {"max_bytes": 2**41}):
        with pytest.raises(InvalidArgument, match=next(iter(wrong))):
            next(made(**wrong).all_gather(1))
    for call in (made().broadcast(1, 3), made().gather(1, -1), made().scatter([1, 2, 3], 7)):
        with pytest.raises(InvalidArgument, match="root"):
            next(call)


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        (lambda: made().broadcast({1}, 0), "value is a set"),
        (lambda: made().all_gather("x" * 200), "value takes 202 bytes, and max_bytes is 100"),
        (lambda: made().scatter([1, 2], 0), "values must be a list of 3 objects"),
        (lambda: made().scatter(None, 0), "values must be a list of 3 objects"),
        (lambda: made().scatter([1, 2, 3j], 0), "value is a complex"),
    ],
)
def test_what_cannot_be_handed_over_is_told_before_it_is_raised(steps: Any, text: str) -> None:
    """The others would wait for it."""
    begun = steps()
    ours = Notice.read(bytes(next(begun).owner[0].owner))
    assert ours.failed
    assert text.encode() in ours.text
    with pytest.raises(InvalidArgument, match=text):
        next(begun)


def test_all_that_moves_is_of_one_epoch_and_of_its_own_tags() -> None:
    steps = made(rank=0).scatter(["a", "bb", "ccc"], 0)
    first = next(steps)
    told(first, [Notice(3, 1, False, 0, 4, 100).write()] * 3)
    second = next(steps)
    second.owner[1].owner[0] = 2  # type: ignore[index]
    third = next(steps)
    assert [it.call.tag - OWN_TAGS for it in (first, second, third)] == [5, 5, 5]
    assert [it.call.expected_epoch for it in (first, second, third)] == [9, 9, 9]
