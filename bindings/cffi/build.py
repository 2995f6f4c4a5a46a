# SPDX-License-Identifier: MIT
"""Writes the C source of the extension module `pccl._cffi` from the public headers csrc/pccl*.h.

These headers are the only description of the C API: the C compiler's preprocessor strips them to plain declarations
(PCCL_CFFI hides their includes, which cffi knows by itself), and cffi turns those into an API-mode module, whose
calls release the GIL and whose struct layouts the C compiler checks. Nothing of the headers is repeated here.
"""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

from cffi import FFI


def declarations(compiler: str, header: Path) -> str:
    """The header as cffi can parse it: preprocessed, without line markers and includes."""
    command = [compiler, "-E", "-P", "-DPCCL_CFFI", str(header)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("headers", type=Path, nargs="+", help="each behind those that it includes")
    parser.add_argument("--compiler", default="cc")
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()

    builder = FFI()
    for header in arguments.headers:
        builder.cdef(declarations(arguments.compiler, header))
    builder.set_source("pccl._cffi", "\n".join(f'#include "{header.name}"' for header in arguments.headers))
    builder.emit_c_code(str(arguments.output))


if __name__ == "__main__":
    main()
