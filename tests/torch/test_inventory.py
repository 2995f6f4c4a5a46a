# SPDX-License-Identifier: MIT
"""What `pccl.torch.info()` tells."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

import pccl.torch
from pccl.torch import native
from tests.torch.ranks import Rank, Ranks

pytestmark = pytest.mark.process


def what_there_is(rank: Rank, form: str) -> None:
    assert pccl.torch.info().runtimes == ()
    with rank.group():
        group = dist.new_group([0, 1])
        dist.send(torch.ones(1), 1) if rank.rank == 0 else dist.recv(torch.ones(1), 0)
        dist.barrier(group=group)
        found = pccl.torch.info()
        assert found.form == form
        assert (found.origin, found.path is None) == ((None, True) if form == "python" else (found.why, False))
        assert found.torch == torch.__version__
        (runtime,) = found.runtimes
        assert (runtime.ranks, runtime.rank, runtime.hosts_master) == ((0, 1), rank.rank, rank.rank == 0)
        assert runtime.transports == {1 - rank.rank: "shm"}
        assert len(runtime.groups) == 2
        text = str(found)
        assert f"{form} form" in text
        assert f"master {runtime.master}" in text
        assert f"{1 - rank.rank} by shm" in text
        dist.barrier(group=group)
    assert pccl.torch.info().runtimes == ()


def test_it_tells_the_form_and_who_is_there(ranks: Ranks, form: str) -> None:
    ranks.run(what_there_is, 2, form, form)


def test_it_says_why_there_is_no_native_form(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> native.Native:
        raise native.Unavailable("no compiler")

    monkeypatch.delenv("PCCL_TORCH_BACKEND", raising=False)
    monkeypatch.setattr(native, "load", nowhere)
    found = pccl.torch.info()
    assert (found.form, found.why, found.path) == ("python", "no compiler", None)
    monkeypatch.setenv("PCCL_TORCH_BACKEND", "fortran")
    with pytest.raises(ValueError, match="PCCL_TORCH_BACKEND"):
        pccl.torch.info()
