# SPDX-License-Identifier: MIT
"""The name "pccl" is known to torch whatever is imported first, and torch gives the right names back."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
import torch.distributed as dist

from pccl.torch import Options
from tests.torch.ranks import LIMIT_S, ROOT, Rank, Ranks

pytestmark = pytest.mark.process

KNOWN = "import torch.distributed as dist; assert dist.Backend('PCCL') == dist.Backend.PCCL == 'pccl'"
NOTHING_ELSE = "import sys; assert 'pccl' not in sys.modules; "


@pytest.mark.parametrize(
    ("autoload", "program"),
    [
        ("1", f"import torch; {NOTHING_ELSE} {KNOWN}"),
        ("1", f"import pccl; import sys; assert 'torch' not in sys.modules; {KNOWN}"),
        ("0", f"import pccl; {KNOWN}"),
        ("0", f"import torch.distributed; import pccl, pccl; {KNOWN}"),
        ("0", f"import pccl.torch; {KNOWN}; import importlib; importlib.reload(pccl.torch); {KNOWN}"),
    ],
)
def test_the_name_is_known_whatever_comes_first(autoload: str, program: str) -> None:
    """B91."""
    environment = {"TORCH_DEVICE_BACKEND_AUTOLOAD": autoload, "PYTHONPATH": str(ROOT), "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def names(rank: Rank, backend: str) -> None:
    with rank.group(backend):
        assert dist.get_backend() == backend.lower()  # as torch gives back what it was asked for
        assert dist.get_backend(dist.new_group([0, 1])) == backend.lower()
        assert dist.get_backend_config().startswith("cpu:pccl")
        assert dist.group.WORLD._get_backend(torch.device("cpu")).name() == "pccl"
        assert dist.distributed_c10d._get_group_size_by_name(dist.group.WORLD.group_name) == 2
        dist.barrier()


@pytest.mark.parametrize("backend", ["pccl", "PCCL", "cpu:pccl", "cpu:pccl,cuda:pccl"])
def test_groups_have_the_name_in_every_spelling(ranks: Ranks, form: str, backend: str) -> None:
    ranks.run(names, 2, form, backend)


def unknown_options(rank: Rank) -> None:
    with pytest.raises(ValueError, match="pg_options of a pccl group"):
        rank.init(pg_options={"commit": "each"})
    with rank.group(name="another store", pg_options=Options(commit="each", shm="off", stripes=2)):
        dist.barrier()


def test_options_are_ours_or_refused(ranks: Ranks, form: str) -> None:
    ranks.run(unknown_options, 2, form)


def unknown_form(rank: Rank) -> None:
    with pytest.raises(ValueError, match='PCCL_TORCH_BACKEND is "auto", "native" or "python", not'):
        rank.init()


def test_an_unknown_form_is_refused(ranks: Ranks) -> None:
    ranks.run(unknown_form, 1, "fortran")
