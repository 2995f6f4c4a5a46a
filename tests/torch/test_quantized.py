# SPDX-License-Identifier: MIT
"""Quantized collectives through torch: the same bits on all ranks, errors within the documented bounds, nothing that is
lost untold, wrong use refused, in both forms of the backend. Hooks that use them: `test_quantized_hooks.py`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

import pccl
import pccl.torch
from pccl import QuantizationAlgorithm, QuantizationOptions
from pccl.torch import quantized
from tests.torch.ranks import Rank, Ranks

pytestmark = pytest.mark.process

COUNT = 5000
"""Several blocks, the last one short."""
INT4 = QuantizationOptions("int4")

FORMATS = {
    "bfloat16": QuantizationOptions("bfloat16"),
    "float16": QuantizationOptions("float16"),
    "uint8": QuantizationOptions("uint8"),
    "uint8 zero point": QuantizationOptions("uint8", QuantizationAlgorithm.ZERO_POINT_SCALE),
    "int8": QuantizationOptions("int8", QuantizationAlgorithm.BLOCK, block=64),
    "int4": INT4,
    "int2": QuantizationOptions("int2"),
    "float8_e4m3fn": QuantizationOptions("float8_e4m3fn"),
    "float8_e5m2": QuantizationOptions("float8_e5m2"),
    "int8, stochastic": QuantizationOptions("int8", rounding="stochastic", seed=2**64 - 5),
    "int4, rotated": QuantizationOptions("int4", rotate=True, seed=7),
}


def own(rank: int, count: int = COUNT, step: int = 0) -> torch.Tensor:
    return torch.randn(count, generator=torch.Generator().manual_seed(100 * step + rank))


def digest(tensor: torch.Tensor) -> str:
    return hashlib.sha256(tensor.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()[:16]


def bound(options: QuantizationOptions, values: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(options.bound(values))


# ---------------------------------------------------------------------------------------------- calls


def sums(rank: Rank) -> list[str]:
    found = []
    with rank.group():
        inputs = [own(it) for it in range(rank.world)]
        for options in FORMATS.values():
            x, errors = own(rank.rank), torch.empty(COUNT)
            assert quantized.all_reduce(x, quantization_options=options, errors=errors) is None
            found.append(digest(x))
            missing = sum(inputs).double() - x
            allowed = sum(bound(options, it) for it in inputs)
            final = sum(inputs) + allowed.float()
            allowed += bound(options, final) + bound(options, sum(inputs))
            assert (missing.abs() <= allowed).all(), options
            lost = errors.double()
            dist.all_reduce(lost)
            assert (lost - missing).abs().max() < 1e-4, options
            assert errors.abs().max() > 0
    return found


def test_sums_are_alike_and_within_their_bounds(ranks: Ranks, form: str) -> None:
    results = ranks.run(sums, 3, form)
    assert results[0] == results[1] == results[2]
    assert len(set(results[0])) == len(FORMATS)


def moves(rank: Rank) -> None:
    """What each rank gets of another one's values is what `round_trip` says of them, on that rank, too."""
    world, own_values = rank.world, own(rank.rank)
    with rank.group():
        for options in (INT4, QuantizationOptions("uint8", block=64)):
            seen, errors = torch.empty(world, COUNT), torch.empty(COUNT)
            arguments: dict[str, Any] = {"quantization_options": options, "errors": errors}
            quantized.all_gather_into_tensor(seen, own_values, **arguments)
            for other in range(world):
                assert torch.equal(seen[other], options.round_trip(own(other)))
            assert torch.allclose(own_values - errors, seen[rank.rank], atol=1e-6)

            x = own(rank.rank)
            quantized.broadcast(x, world - 1, **arguments)
            assert torch.equal(x, options.round_trip(own(world - 1)))
            assert bool(errors.any()) == (rank.rank == world - 1)

            parts, got = own(rank.rank, 64 * world), torch.empty(64 * world)
            quantized.all_to_all_single(got, parts, quantization_options=options)
            for other, part in enumerate(got.chunk(world)):
                sent = own(other, 64 * world)[64 * rank.rank :][:64]
                assert torch.equal(part, sent if other == rank.rank else options.round_trip(sent))

            rows = [other + 1 for other in range(world)]  # to each rank; so each gets as many from all
            given, got = own(rank.rank, 64 * sum(rows)).view(-1, 64), torch.empty((rank.rank + 1) * world, 64)
            quantized.all_to_all_single(got, given, [rank.rank + 1] * world, rows, quantization_options=options)
            for other, part in enumerate(got.split(rank.rank + 1)):
                sent = own(other, 64 * sum(rows)).view(-1, 64).split(rows)[rank.rank]
                kept = options.round_trip(sent.contiguous())
                assert torch.equal(part, sent if other == rank.rank else kept)


def test_what_moves_arrives_as_it_was_sent(ranks: Ranks, form: str) -> None:
    ranks.run(moves, 3, form)


def scatters(rank: Rank) -> None:
    world = rank.world
    with rank.group():
        for op, divisor in ((dist.ReduceOp.SUM, 1), (dist.ReduceOp.AVG, world)):
            inputs = [own(it, COUNT * world) for it in range(world)]
            given, got, errors = own(rank.rank, COUNT * world), torch.empty(COUNT), torch.empty(COUNT * world)
            quantized.reduce_scatter_tensor(got, given, op, quantization_options=INT4, errors=errors)
            assert torch.equal(given, inputs[rank.rank]), "the input stays as it is"
            sums = [torch.empty(COUNT) for _ in range(world)]
            dist.all_gather(sums, got)
            dist.all_reduce(errors)
            assert (sum(inputs) - torch.cat(sums) * divisor - errors).abs().max() < 1e-4, "nothing is lost"
            assert errors.abs().max() > 0.1


def test_a_scattered_sum_and_its_errors_are_all_there_was(ranks: Ranks, form: str) -> None:
    ranks.run(scatters, 3, form)


def mixes(rank: Rank) -> None:
    """Calls of both kinds, left to run together, of tensors that are staged, in a part of the ranks."""
    with rank.group():
        pair = dist.new_group([0, 2])
        before = dist.group.WORLD._get_sequence_number_for_group()
        exact, coarse, wide = own(rank.rank), own(rank.rank), own(rank.rank, 4000).view(40, 100).t()
        works = [
            dist.all_reduce(exact, async_op=True),
            quantized.all_reduce(coarse, dist.ReduceOp.AVG, async_op=True, quantization_options=INT4),
            quantized.all_reduce(wide, async_op=True, quantization_options=INT4),
        ]
        assert works[1].get_future().wait()[0] is not None
        for work in works:
            work.wait()
        assert dist.group.WORLD._get_sequence_number_for_group() == before + 3
        assert torch.allclose(exact, sum(own(it) for it in range(rank.world)), atol=1e-5)
        for got, divisor in ((coarse, rank.world), (wide.t().reshape(-1), 1)):
            sums = sum(own(it, got.numel()) for it in range(rank.world))
            assert (got * divisor - sums).abs().max() < 2
            assert not torch.equal(got * divisor, sums)
        if rank.rank != 1:
            x = own(rank.rank)
            quantized.broadcast(x, 2, pair, quantization_options=INT4)
            assert torch.equal(x, INT4.round_trip(own(2)))


def test_calls_mix_with_others(ranks: Ranks, form: str) -> None:
    ranks.run(mixes, 3, form)


def wrapped(rank: Rank) -> None:
    """Torch puts a backend of its own around ours where it debugs; that of a mixed group is one of several."""
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    with rank.group():
        x = torch.full((64,), 1.0 + rank.rank)
        quantized.all_reduce(x, quantization_options=INT4)
        assert torch.equal(x, torch.full((64,), 3.0))
    dist.set_debug_level(dist.DebugLevel.OFF)
    with rank.group("cpu:pccl,cuda:gloo", name="mixed"):
        quantized.broadcast(x.fill_(rank.rank), 1, quantization_options=INT4)
        assert torch.equal(x, torch.ones(64))


def test_what_torch_puts_around_a_backend_does_not_matter(ranks: Ranks, native_form: None) -> None:
    ranks.run(wrapped, 2, "native", GLOO_SOCKET_IFNAME="lo")


# ---------------------------------------------------------------------------------------------- wrong use


def raises(kind: type[Exception], text: str, call: Callable[..., Any], *arguments: Any, **options: Any) -> None:
    with pytest.raises(kind, match=text):
        call(*arguments, **{"quantization_options": INT4, **options})


def refused(rank: Rank) -> None:
    x, call = torch.ones(64), quantized.all_reduce
    with rank.group():
        raises(ValueError, "this is of torch.int64", call, torch.ones(4, dtype=torch.int64))
        raises(ValueError, "must be a QuantizationOptions", call, x, quantization_options="int4")
        raises(ValueError, "contiguous, writable array of 64 float32", call, x, errors=torch.empty(63))
        raises(ValueError, "sum, avg, premul_sum, min and max", call, x, dist.ReduceOp.PRODUCT)
        raises(ValueError, "65", quantized.all_gather_into_tensor, torch.empty(65), x)
        value = torch.full((64,), float("nan")) if rank.rank == 1 else x
        with pytest.raises(dist.DistBackendError, match="rank 1") as failure:
            call(value, quantization_options=INT4)
        assert isinstance(pccl.torch.cause(failure.value), pccl.QuantizationError)
        y = torch.ones(64)
        call(y, quantization_options=INT4)
        assert torch.equal(y, torch.full((64,), float(rank.world))), "the next call works"
        with pytest.raises(dist.DistBackendError) as failure:
            call(y, quantization_options=QuantizationOptions(("int8", "int2")[rank.rank]))
        assert isinstance(pccl.torch.cause(failure.value), pccl.CollectiveMismatch)


def test_wrong_use_is_an_error_and_the_next_call_works(ranks: Ranks, form: str) -> None:
    ranks.run(refused, 2, form)


def ended(rank: Rank) -> None:
    raises(ValueError, "call init_process_group", quantized.all_reduce, torch.ones(2))
    rank.init()
    group = dist.group.WORLD
    dist.destroy_process_group()
    raises(dist.DistBackendError, "destroyed", quantized.all_reduce, torch.ones(2), group=group)


def test_a_group_that_has_ended_says_so(ranks: Ranks, form: str) -> None:
    ranks.run(ended, 2, form)


def of_another_backend(rank: Rank) -> None:
    with rank.group("gloo"):
        raises(pccl.Unsupported, "cpu is gloo, and only pccl's", quantized.all_reduce, torch.ones(2))


def test_another_backend_is_refused_before_traffic(ranks: Ranks) -> None:
    ranks.run(of_another_backend, 2, "auto", GLOO_SOCKET_IFNAME="lo")
