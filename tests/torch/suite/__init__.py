# SPDX-License-Identifier: MIT
"""PyTorch's own distributed tests, those inside its wheel, run against a backend that they do not know.

`runs` has what is run and what Gloo achieves there; `adjust` makes torch's test module take our backend for one that it
knows; `worker` runs one test at a time in a process of its own; `__main__` hands tests to workers and compares. Nothing
in site-packages is changed: every adjustment is made in the memory of processes that are started here.
"""
