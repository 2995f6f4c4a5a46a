# SPDX-License-Identifier: MIT
"""What `pccl._quick` stands in for does the same as the rules in Python, whatever the arguments. What passes through an
engine's door is compared with what takes a slot in test_native.py."""

from __future__ import annotations

import gc
import itertools
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pccl import Algorithm, Collective, DataType, PremulSum, Recv, ReduceOp, Send, _native, arrays, parts, request
from pccl._cffi import ffi
from pccl.arrays import NOTHING
from pccl.request import Members, Modes

pytestmark = pytest.mark.skipif(_native._quick is None, reason="pccl._quick was not built")

MODES = Modes.of(deferred=False, preserve_input=False)
ROUNDS = 20_000


def outcome(call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """What it returns, or its exception in words."""
    try:
        return call(*arguments, **named)
    except Exception as failure:
        return type(failure), str(failure)


def plain(value: Any) -> Any:
    """A struct within a struct as what it holds."""
    if isinstance(value, ffi.CData) and ffi.typeof(value).kind == "struct":
        return {name: getattr(value, name) for name, _ in ffi.typeof(value).fields}
    return value


def told(made: Any) -> Any:
    """A request, or several, so that two can be compared; anything else as it is."""
    if isinstance(made, list):
        return [told(one) for one in made]
    if not isinstance(made, _native.Call):
        return made
    names = [name for name, _ in ffi.typeof("pccl_call").fields]
    fields = {name: plain(getattr(made.call, name)) for name in names if not name.endswith("_counts")}
    counts = [getattr(made.call, name) for name in names if name.endswith("_counts")]
    return fields, [list(ffi.unpack(it, 3)) if it else [] for it in counts], kept(made.owner)


def kept(owner: Any) -> set[int]:
    """The arrays whose memory is kept alive."""
    if isinstance(owner, arrays.Borrowed):
        return {id(owner.owner)}
    if isinstance(owner, tuple):
        return set().union(*map(kept, owner))
    return set() if isinstance(owner, ffi.CData) else {id(owner)}


def numpy_arrays() -> dict[str, Any]:
    made = {f"of type {code}": np.zeros(3, code) for code in np.typecodes["All"]}
    made |= {f"swapped {code}": np.zeros(3, np.dtype(code).newbyteorder()) for code in "?bhiqefdFD"}
    read_only, overlapping = np.ones(3), np.broadcast_arrays(np.ones(3), np.ones(3))[0]
    read_only.flags.writeable = False
    long = np.arange(24, dtype=np.float32)
    return made | {
        "read-only": read_only,
        "warns before it is written to": overlapping,
        "empty": long[:0],
        "of no dimension": np.array(1.0),
        "of many": long.reshape(2, 3, 4),
        "empty in one dimension": np.zeros((3, 0, 2), np.int8),
        "strided": long[::2],
        "backwards": long[::-1],
        "strided, but of one element": long[::24],
        "in columns": np.asfortranarray(long.reshape(4, 6)),
        "not aligned": np.frombuffer(bytearray(13), np.uint8)[1:].view(np.int32),
        "of records": np.zeros(2, "i4, f4"),
        "of pieces": np.zeros(2, np.dtype((np.int32, {"low": (np.int16, 0), "high": (np.int16, 2)}))),
        "of annotated numbers": np.zeros(2, np.dtype(np.float32, metadata={"unit": "m"})),
        "masked": np.ma.masked_array(np.ones(3), [1, 0, 0]),
        "of a subclass": np.ones(3).view(type("Own", (np.ndarray,), {})),
        "recarray": np.ones(3).view(np.recarray),
    }


def things() -> dict[str, Any]:
    torch = pytest.importorskip("torch")
    return numpy_arrays() | {
        "a tensor": torch.ones(3),
        "a strided tensor": torch.ones(6)[::2],
        "a list": [1.0],
        "nothing": None,
        "a scalar": np.float32(1),
        "bytes": bytearray(4),
    }


def test_borrowing() -> None:
    taken = 0
    for what, thing in things().items():
        for writable in (True, False, 1):
            ours = outcome(arrays.borrow, thing, writable, "x")
            rule = outcome(_native.RULES["borrow"], thing, writable, "x")
            if isinstance(rule, arrays.Borrowed):
                taken += 1
                assert isinstance(ours, arrays.Borrowed), what
                assert (ours[:3], type(ours.dtype)) == (rule[:3], type(rule.dtype)), what
                assert ours.owner is rule.owner or not isinstance(thing, np.ndarray), what
            else:
                assert ours == rule, what
    assert taken > 3 * len(DataType.__members__)
    assert arrays.borrow(np.ones(2), name="x", writable=True).elements == 2
    assert outcome(arrays.borrow, 1)[0] is outcome(_native.RULES["borrow"], 1)[0] is TypeError


def test_building() -> None:
    one, other = arrays.borrow(np.ones(4), True, "x"), arrays.borrow(np.ones(8, np.int16), True, "y")
    tags = (0, request.TAG_MAX, request.TAG_MAX + 1, -1, True, np.int64(3), 1.5, None)
    no_factor: Any = None
    ops = (*ReduceOp, 3, 99, None, PremulSum(2.5), PremulSum(1), PremulSum(no_factor), Algorithm.RING)
    algorithms = (Algorithm.AUTO, Algorithm.RING, 1, 99, None, ReduceOp.AVG)
    memories = ((one, other), (one, one), (NOTHING, other), (other, NOTHING), (NOTHING, NOTHING))
    for tag, op, algorithm, (source, target) in itertools.product(tags, ops, algorithms, memories):
        given = (Collective.SCAN, 16, source, target, 4, tag, None)
        compare_builds(*given, op=op, algorithm=algorithm)
    for timeout, elements in itertools.product((None, 1, 0.5, 0, -1, 5e6, "no"), (0, 2**64 - 1, 2**64, -1)):
        compare_builds(Collective.REDUCE, 0, one, one, elements, 0, timeout)
    for epoch, root in itertools.product((0, 9, 2**64 - 1, 2**64, -1), (0, 7, 2**32 - 1, 2**32)):
        compare_builds(Collective.REDUCE, 0, one, one, 4, 0, None, epoch, root)
        compare_builds(Collective.REDUCE, 0, one, one, 4, 0, None, epoch, root=root)
    for wrong in ((), (1,), range(10), (Collective.SCAN, 0, None, one, 4, 0, None), ("x", 0, one, one, 4, 0, None)):
        compare_builds(*wrong)
    compare_builds(Collective.SCAN, 0, one, one, 4, 0, None, other=1)


def compare_builds(*arguments: Any, **named: Any) -> None:
    ours, rule = (told(outcome(build, *arguments, **named)) for build in (request.build, _native.RULES["build"]))
    assert ours == rule, (arguments, named)


def test_reducing_in_one_step() -> None:
    x, y, torch_like = np.ones(4), np.ones(4), things()
    arguments: list[tuple[Any, ...]] = [
        (send, recv, ReduceOp.SUM, 0, Algorithm.AUTO, None, MODES)
        for send, recv in itertools.product([x, *torch_like.values()], [None, x, y, *torch_like.values()])
    ]
    discards = Modes.of(deferred=True, preserve_input=False)
    for modes in (MODES, discards, discards.reducing(True), tuple(MODES), None):
        arguments += [(x, recv, ReduceOp.MAX, 3, Algorithm.RING, None, modes) for recv in (None, x, y)]
    for tag, op in itertools.product((request.TAG_MAX, request.TAG_MAX + 1, -1, True, 1.5), (*ReduceOp, 3, 99, None)):
        arguments.append((x, y, op, tag, Algorithm.AUTO, None, MODES))
    for algorithm, timeout in itertools.product((Algorithm.STAR, 1, 99, None, ReduceOp.AVG), (None, 2, 0, "no")):
        arguments.append((x, y, PremulSum(2.5), 0, algorithm, timeout, MODES))
        arguments.append((x, y, ReduceOp.SUM, 0, algorithm, timeout, MODES))
    made = 0
    for it in [*arguments, (), (x,), (*arguments[0], 1)]:
        ours, rule = (told(outcome(build, *it)) for build in (request.all_reduce, _native.RULES["all_reduce"]))
        assert ours == rule, it
        made += isinstance(ours[0], dict)
    assert made > 100
    named = {"recv": None, "op": ReduceOp.SUM, "tag": 1, "algorithm": 0, "timeout": None, "modes": MODES}
    assert request.all_reduce(x, **named).call.tag == 1


def requests() -> list[Callable[[], Any]]:
    """Each way to make one, some with arguments that are refused."""
    long, same, block, other = np.ones(12), np.ones(12), np.ones(4), np.ones(4, np.int8)
    group = Members(epoch=9, size=3, rank=1)
    made: list[Callable[[], Any]] = [
        lambda: request.barrier(3, None, MODES),
        lambda: request.commit(None),
        lambda: request.commit(2.0),
        lambda: request.all_reduces([block, long], ReduceOp.SUM, 5, None, MODES),
        lambda: request.all_reduces([long, long[3:5]], ReduceOp.SUM, 5, None, MODES),
        lambda: request.batch([Send(block, 0), Recv(long, 2, 4), Recv(other)], 0, None, MODES, group),
        lambda: request.question(Collective.ALL_TO_ALL, long, 0, 0, None, MODES, group),
        lambda: parts.all_gather(block, long, [4, 4, 4], 0, None, MODES, group),
        lambda: parts.reduce_scatter(long, [4, 4, 4], block, ReduceOp.MAX, 0, None, MODES, group),
        lambda: parts.all_to_all(long, [4, 0, 8], same, [1, 1, 10], 0, None, MODES, group),
    ]

    def add(make: Callable[..., Any], *arguments: Any) -> None:
        made.append(lambda: make(*arguments))

    for x, y in itertools.product((long, block, other, long[::2], None), repeat=2):
        for op in (ReduceOp.SUM, PremulSum(2.0)):
            add(request.all_reduce, x, y, op, 1, Algorithm.AUTO, None, MODES)
            add(request.scan, True, x, y, op, 1, Algorithm.AUTO, None, MODES)
            add(request.reduce_scatter, x, y, op, 1, Algorithm.AUTO, None, MODES, group)
            for root in (0, 1, 3):
                add(request.reduce, x, y, root, op, 1, Algorithm.AUTO, None, MODES, group)
        add(request.all_gather, x, y, 1, Algorithm.AUTO, 3.0, MODES, group)
        add(request.all_to_all, x, y, 1, Algorithm.AUTO, None, MODES, group)
        for root in (0, 1, 3):
            add(request.gather, x, y, root, 1, Algorithm.RING, None, MODES, group)
            add(request.scatter, x, y, root, 1, Algorithm.AUTO, None, MODES, group)
            add(request.broadcast, x, root, 1, Algorithm.AUTO, None, MODES, group)
            add(request.send, x, root, 1, None, MODES, group)
            add(request.recv, x, root, 1, 0, None, MODES, group)
    return made


def test_requests_of_all_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    makes = requests()
    ours = [told(outcome(make)) for make in makes]
    monkeypatch.setattr(request, "all_reduce", _native.RULES["all_reduce"])
    for module in (request, parts):
        monkeypatch.setattr(module, "build", _native.RULES["build"])
    monkeypatch.setattr(arrays, "borrow", _native.RULES["borrow"])
    assert ours == [told(outcome(make)) for make in makes]


def test_a_call_is_the_same_before_and_after_somebody_looked_at_it() -> None:
    x = np.ones(3)
    one = request.all_reduce(x, None, ReduceOp.MIN, 7, Algorithm.AUTO, None, MODES)
    seen = one.call
    seen.priority = 2
    assert one.call is seen
    del one
    gc.collect()
    assert (seen.op, seen.tag, seen.priority, seen.count) == (ReduceOp.MIN, 7, 2, 3), "it has memory of its own"


def test_nothing_is_leaked() -> None:
    x, y = np.ones(3), np.ones(3)

    def work() -> None:
        for _ in range(ROUNDS):
            one = request.all_reduce(x, y, ReduceOp.SUM, 2**40, Algorithm.AUTO, None, MODES)
        assert one.call.count == 3
        for wrong in (x[::2], None):
            outcome(request.all_reduce, x, wrong, 99, -1, Algorithm.AUTO, None, MODES)

    watched = (x, y, arrays.Borrowed, arrays.NOTHING, _native.Call, ReduceOp.SUM, Algorithm.AUTO, True, int)
    work()
    gc.collect()
    before, blocks = [sys.getrefcount(it) for it in watched], sys.getallocatedblocks()
    work()
    gc.collect()
    assert max(now - then for now, then in zip(map(sys.getrefcount, watched), before, strict=True)) < ROUNDS // 10
    assert sys.getallocatedblocks() - blocks < ROUNDS // 10


def test_all_goes_on_without_it() -> None:
    code = """
import sys
sys.modules["pccl._quick"] = None
from pccl import _native, arrays, request
import numpy as np
assert _native.Call is _native.PlainCall and _native.RULES["borrow"] is arrays.borrow
options = _native.EngineOptions(bytes(16), bytes(16), "127.0.0.1", min_world_size=1)
engine = _native.Engine(options)
engine.install(1, 0, [_native.Member(bytes(16), "127.0.0.1", engine.port, 1)], [0])
modes = request.Modes.of(deferred=False, preserve_input=True)
assert engine.run(request.all_reduce(np.ones(3), None, 0, 0, 0, None, modes)).world_size == 1
engine.close()
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
