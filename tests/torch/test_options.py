# SPDX-License-Identifier: MIT
"""What may be said of a group, and what is refused."""

from __future__ import annotations

import pytest

from pccl.torch.options import Options, checked


def test_arguments_go_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PCCL_MASTER", "other:1")
    monkeypatch.setenv("PCCL_SOCKET_IFNAME", "eth7")
    assert Options().given_master() == "other:1"
    assert Options().chosen_interface() == "eth7"
    assert Options(master="own:1").given_master() == "own:1"
    assert Options(interface="lo").chosen_interface() == "lo"
    monkeypatch.setenv("PCCL_MASTER", "")
    assert Options().given_master() is None


def test_what_is_no_option_is_refused() -> None:
    with pytest.raises(TypeError, match="no_such"):
        Options(no_such=1)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="commit"):
        Options(commit="sometimes")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"pccl\.torch\.Options, not a dict"):
        checked({"commit": "each"})
    assert checked(None) == Options()
