# SPDX-License-Identifier: MIT
"""What this process has of pccl, for people and for reports of faults: `print(pccl.torch.info())`.

Must not change anything. Only the C++ form is compiled first where that is to be done, as the first group would do it:
else nothing could be said of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pccl.torch import native
from pccl.torch.registration import FORM, asked_form
from pccl.torch.runtime import Statement, statements
from pccl.torch.toolchain import installed_torch


@dataclass(frozen=True)
class Info:
    """`form` is the one that groups get; `why` says what made it so. `origin` and `path` are those of the C++ object:
    built with the wheel, found in the cache, or compiled just now; None in the Python form. `torch` is its version,
    `cxx11_abi` how it was compiled. `runtimes` are those with a group, oldest first."""

    form: Literal["native", "python"]
    why: str
    origin: native.Origin | None
    path: str | None
    torch: str
    cxx11_abi: bool
    runtimes: tuple[Statement, ...]

    def __str__(self) -> str:
        where = f" ({self.path})" if self.path else ""
        abi = "" if self.cxx11_abi else ", old C++ ABI"
        lines = [f"pccl in torch {self.torch}{abi}: {self.form} form, {self.why}{where}"]
        return "\n".join([*lines, *map(str, self.runtimes)])


def info() -> Info:
    """As things are now. Raises InvalidArgument for a PCCL_TORCH_BACKEND that is none."""
    here, runtimes = installed_torch(), statements()
    asked = asked_form()
    try:
        found = None if asked == "python" else native.load()
        why = f"{FORM}=python" if found is None else found.origin
    except native.Unavailable as failure:
        found, why = None, str(failure)
    if found is None:
        return Info("python", why, None, None, here.version, here.cxx11_abi, runtimes)
    return Info("native", why, found.origin, str(found.path), here.version, here.cxx11_abi, runtimes)


__all__ = ["Info", "info"]
