# SPDX-License-Identifier: MIT
"""How ranks find their master through a store."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch.distributed as dist

import pccl
from pccl import system
from pccl.torch import rendezvous
from pccl.torch.rendezvous import Meeting


def _at_once(calls: list[Callable[[], Any]]) -> list[Any]:
    """What each returned or raised."""
    found: list[Any] = [None] * len(calls)

    def work(number: int) -> None:
        try:
            found[number] = calls[number]()
        except Exception as failure:
            found[number] = failure

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(calls))]
    for it in threads:
        it.start()
    for it in threads:
        it.join()
    return found


def _host(store: Any, size: int, interface: str | None = None) -> pccl.MasterNode:
    return Meeting(store, 0, size, 20.0).host(5.0, interface)


def _find(store: Any, rank: int, size: int) -> str:
    return Meeting(store, rank, size, 20.0).find()


def test_ranks_of_one_host_meet_on_loopback_again_and_again() -> None:
    store = dist.HashStore()
    for _ in range(3):
        others = [partial(_find, store, rank, 3) for rank in (1, 2)]
        node, *found = _at_once([partial(_host, store, 3), *others])
        assert found == [node.address] * 2
        assert node.address.startswith("127.0.0.1:")
        node.destroy()


def test_the_chosen_interface_counts() -> None:
    node = _host(dist.HashStore(), 1, "127.0.0.0/8")
    assert node.address.startswith("127.")
    node.destroy()


def test_a_master_that_cannot_listen_is_everybody_s_failure() -> None:
    store = dist.HashStore()
    own, other = _at_once([partial(_host, store, 2, "no-such-interface"), partial(_find, store, 1, 2)])
    assert isinstance(own, pccl.InvalidArgument)
    assert isinstance(other, pccl.MasterLost)
    assert "no-such-interface" in str(other)


def test_who_waits_in_vain_is_told_how_many_are_here() -> None:
    with pytest.raises(pccl.OperationTimeout, match=r"for all 3 ranks to come to the group \(1 of 3 are here\)"):
        Meeting(dist.HashStore(), 0, 3, 0.2).host(5.0, None)
    with pytest.raises(pccl.OperationTimeout, match=r"rank 2 waited 0\.2 s for rank 0 to say where the master is"):
        Meeting(dist.HashStore(), 2, 3, 0.2).find()


def test_ranks_of_several_hosts_use_an_address_that_others_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    outward = [it for _, it in system.interface_addresses() if not it.startswith("127.") and it != "::1"]
    if not outward:
        pytest.skip("this machine has no address but loopback")
    store, names = dist.HashStore(), iter([1, 2, 1, 1])
    monkeypatch.setattr(rendezvous.system, "host_id", lambda: next(names, 1))
    other = Meeting(store, 1, 2, 20.0)
    other._tell_host()
    node = _host(store, 2)
    assert node.address.rpartition(":")[0].strip("[]") in outward
    node.destroy()
