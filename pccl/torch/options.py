# SPDX-License-Identifier: MIT
"""What a user may say of a group: `init_process_group("pccl", pg_options=pccl.torch.Options(...))`."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pccl.arguments import choice, truth
from pccl.errors import InvalidArgument

MASTER = "PCCL_MASTER"
INTERFACE = "PCCL_SOCKET_IFNAME"


@dataclass(frozen=True)
class Options:
    """`commit="deferred"`: an operation ends when this rank's part is done, as with Gloo and NCCL. "each": it succeeds
    or fails alike on all ranks.

    What follows belongs to the runtime (the processes that one membership spans), so it counts where the first group of
    some ranks is made. `master` is the HOST:PORT of a `pccl master --founders N` with N the number of ranks (default:
    PCCL_MASTER, else rank 0's process carries one); the others mean what they mean to `pccl.Communicator` and
    `pccl.MasterNode`. `interface` also says where that master listens (default: PCCL_SOCKET_IFNAME, else the address
    of torch's store, or loopback where all ranks share a host). `elastic`: groups outlive the loss of ranks, and take
    in new ones (`pccl.torch.reconfigure`); a master of its own is then better than rank 0's, whose end is that of all.
    """

    commit: Literal["deferred", "each"] = "deferred"
    master: str | None = None
    interface: str | None = None
    advertise: str | None = None
    deterministic: bool = False
    stripes: int = 0
    shm: Literal["auto", "off"] = "auto"
    checksum: Literal["auto", "always", "never"] = "auto"
    link_timeout: float = 10.0
    master_timeout: float = 60.0
    heartbeat_timeout: float = 5.0
    elastic: bool = False
    trace_dir: str | os.PathLike[str] | None = None
    enters: str | None = field(default=None, repr=False)
    """Set by `pccl.torch.join` alone."""

    def __post_init__(self) -> None:
        choice("commit", self.commit, ("deferred", "each"))
        truth("deterministic", self.deterministic)
        truth("elastic", self.elastic)

    @property
    def deferred(self) -> bool:
        """Whether operations end when the local part is done."""
        return self.commit == "deferred"

    def newcomer(self, master: str) -> Options:
        """For a process alone that is going to enter the run of that master."""
        return replace(self, elastic=True, master=None, enters=master)

    def given_master(self) -> str | None:
        """The master that the ranks are told of, if any."""
        return None if self.enters else self.master or os.environ.get(MASTER) or None

    def chosen_interface(self) -> str | None:
        """Where to listen, as far as somebody said so."""
        return self.interface or os.environ.get(INTERFACE) or None


def checked(given: Any) -> Options:
    """What torch passes on as `pg_options`. Raises InvalidArgument for what is not ours."""
    if given is None:
        return Options()
    if not isinstance(given, Options):
        raise InvalidArgument(f"pg_options of a pccl group are pccl.torch.Options, not a {type(given).__name__}")
    return given
