# SPDX-License-Identifier: MIT
"""`python -m pccl` is the command `pccl`."""

from pccl.cli import main

main()
