# SPDX-License-Identifier: MIT
"""The simulator of the control plane; `python -m tests.sim.run`."""
