# SPDX-License-Identifier: MIT
"""What is run, and what Gloo achieves there with torch 2.13.0: `gloo.txt` has a line for each test, a column for each
run, and in it the first letter of pass, fail, skip or timeout, or a dot where the test is no part of the run.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

BASELINE = Path(__file__).with_name("gloo.txt")
OUTCOMES = {"p": "pass", "f": "fail", "s": "skip", "t": "timeout"}


@dataclass(frozen=True)
class Run:
    """Some of the tests, with so many ranks, by a backend that is taken for others."""

    name: str
    world: int
    likes: tuple[str, ...]
    timeout_s: int
    pretend_cuda: bool = False


RUNS = (
    Run("ws3", 3, ("gloo", "mpi"), 90),
    Run("ws2", 2, ("gloo", "mpi"), 90),
    Run("ws4", 4, ("gloo", "mpi"), 90),
    Run("cuda", 2, ("gloo",), 100, pretend_cuda=True),
    Run("nccl", 2, ("gloo", "nccl"), 60, pretend_cuda=True),
)

# Torch up to 2.13 refuses monitored_barrier to every backend but the one that is called gloo.
IMPOSSIBLE = frozenset(
    f"test_monitored_barrier_{name}" for name in ("failure_order", "gloo", "gloo_subgroup", "wait_all_ranks")
)

# What `make test` runs, with three ranks: a bit of everything, that takes about a second each.
REDUCED = (
    "test_DistributedDataParallelCPU",
    "test_accumulate_gradients_no_sync",
    "test_all_gather",
    "test_all_gather_coalesced_with_empty",
    "test_all_gather_group",
    "test_all_gather_object_subgroup",
    "test_all_reduce_coalesced_group_max",
    "test_all_reduce_full_group_min",
    "test_all_reduce_sum_async",
    "test_all_reduce_sum_complex",
    "test_all_to_all_single_unequal_split_group",
    "test_barrier_group",
    "test_barrier_timeout_group",
    "test_batch_isend_irecv_gloo",
    "test_broadcast",
    "test_ddp_create_graph",
    "test_destroy_group",
    "test_gather_group",
    "test_get_backend",
    "test_get_future",
    "test_grads_same_across_ranks_with_no_sync",
    "test_isend_torch_profiler",
    "test_reduce_group_product",
    "test_reduce_sum_twice",
    "test_scatter_checks",
    "test_scatter_object_list",
    "test_send_recv_any_source",
    "test_send_recv_with_tag",
    "test_sparse_all_reduce_sum",
    "test_static_graph_api_cpu",
)


def baseline(run: str) -> dict[str, str]:
    """Outcome by test, of the tests that are part of a run."""
    heading, *lines = BASELINE.read_text().splitlines()
    column = heading.split().index(run)
    rows = (line.split() for line in lines)
    return {row[0]: OUTCOMES[row[column]] for row in rows if row[column] in OUTCOMES}
