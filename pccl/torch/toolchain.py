# SPDX-License-Identifier: MIT
"""How the C++ form of the backend is compiled: from which sources, with which command.

What for: the build of a wheel, which runs this file as a script, and `native.py`, which compiles where no built object
fits. Must not know: the rest of the package, and torch but for where it lies, so that it can run before there is one.

The one idea: an object belongs to one minor version of torch, whose classes' layout it knows, and to one state of the
sources, whose digest it carries and tells.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PATIENCE_S = 600.0
"""How long the compiler may take."""


class CannotCompile(Exception):
    """There is no compiler, or it failed; the text says why."""


@dataclass(frozen=True)
class Torch:
    """What has to be known of an installation of torch."""

    version: str
    root: Path
    cxx11_abi: bool

    @property
    def minor(self) -> str:
        """As "2.13"."""
        return ".".join(self.version.split(".")[:2])

    @property
    def name(self) -> str:
        """Of the object for it."""
        return f"pccl_torch-{self.minor}{'' if self.cxx11_abi else '-oldabi'}.so"


@dataclass(frozen=True)
class Sources:
    """`bindings` has the C++ sources, `api` the header of the C API."""

    bindings: Path
    api: Path

    @classmethod
    def beside(cls, package: Path) -> Sources:
        """Those that were installed with the package, or of the tree that it lies in."""
        installed = package / "torch" / "source"
        if (installed / "pccl.h").exists():
            return cls(installed, installed)
        return cls(package.parent / "bindings" / "torch", package.parent / "csrc")

    @property
    def units(self) -> list[Path]:
        """What is compiled."""
        return sorted(self.bindings.glob("*.cpp"))

    def digest(self) -> str:
        """Of all that goes into the object. Raises CannotCompile where there is nothing."""
        found = {file.name: file for file in (*self.units, *self.bindings.glob("*.h"), self.api / "pccl.h")}
        files = [found[name] for name in sorted(found)]
        if len(files) < 3 or not all(file.exists() for file in files):
            raise CannotCompile(f"the sources are not in {self.bindings}")
        whole = hashlib.sha256()
        for file in files:
            whole.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
        return whole.hexdigest()[:32]


def compiler() -> list[str]:
    """The command of the C++ compiler: CXX, or what there is. Raises CannotCompile."""
    given = os.environ.get("CXX", "").split()
    for command in [given] if given else [["c++"], ["g++"], ["clang++"]]:
        if shutil.which(command[0]):
            return command
    raise CannotCompile(f"there is no C++ compiler{f' {given[0]}' if given else ''}")


def compiler_version(command: list[str]) -> str:
    """What it says of itself."""
    asked = [*command, "--version"]
    return subprocess.run(asked, capture_output=True, text=True, timeout=PATIENCE_S, check=False).stdout


def compile_object(torch: Torch, sources: Sources, output: Path, command: list[str]) -> None:
    """Makes `output`. All in one unit: torch's headers take most of the time. Raises CannotCompile."""
    include, library = torch.root / "include", torch.root / "lib"
    if not (include / "torch" / "csrc" / "distributed" / "c10d" / "Backend.hpp").exists():
        raise CannotCompile(f"this torch has no headers in {include}")
    whole = "".join(f'#include "{unit.name}"\n' for unit in sources.units)
    arguments = [
        *("-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-x", "c++", "-"),
        f'-DPCCL_TORCH_SOURCES="{sources.digest()}"',
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.cxx11_abi)}",
        *(f"-I{it}" for it in (sources.bindings, sources.api)),
        *("-isystem", str(include), "-isystem", str(include / "torch" / "csrc" / "api" / "include")),
        *("-o", str(output), f"-L{library}", "-Wl,--no-undefined", "-lc10", "-ltorch_cpu"),
    ]
    try:
        done = subprocess.run(
            [*command, *arguments], input=whole, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as failure:
        raise CannotCompile(f"{command[0]}: {failure}") from failure
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines()
        raise CannotCompile(f"{command[0]} failed: {lines[0] if lines else f'status {done.returncode}'}")


def installed_torch() -> Torch:
    """That of this interpreter. Raises ImportError."""
    import torch

    return Torch(torch.__version__, Path(torch.__file__).parent, bool(torch.compiled_with_cxx11_abi()))


def main() -> int:
    """For the build: an object for this interpreter's torch; where there is none, or no way, that is no failure."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--bindings", type=Path, required=True)
    parser.add_argument("--api", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True, help="a folder")
    arguments = parser.parse_args()
    try:
        torch = installed_torch()
        sources = Sources(arguments.bindings, arguments.api)
        arguments.output.mkdir(parents=True, exist_ok=True)
        compile_object(torch, sources, arguments.output / torch.name, compiler())
    except (ImportError, CannotCompile) as failure:
        print(f"no object for torch is built: {failure}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
