# SPDX-License-Identifier: MIT
"""What members of a group do together: every collective, blocking and not.

The one idea: each method only names its arguments. `request.py` and `parts.py` check them, and a Communicator runs what
comes out. Those that combine are in `reductions.py`, those that move in `moves.py`, those of Python objects in
`objects.py`, those of sparse vectors in `sparse_reductions.py`.
"""

from __future__ import annotations

from pccl import request
from pccl._native import ReduceInfo
from pccl.forms import starting
from pccl.moves import Moves
from pccl.objects import Objects
from pccl.reductions import Reductions
from pccl.sparse_reductions import SparseReductions


class Collectives(Reductions, SparseReductions, Moves, Objects):
    """The collectives of a Communicator.

    Each has a form that ends in `_async`, which returns a Handle (or Job) at once: `wait(timeout)`, `done()`, or
    `await` in asyncio. Memory belongs to the operation until it has ended, which it does whether awaited or not:
    cancelling who awaits it ends the waiting only. What every one raises is said at `all_reduce`.
    """

    def barrier(self, *, tag: int = 0, priority: int = 0, timeout: float | None = None) -> ReduceInfo:
        """Returns when all members of the group have called it. Errors as in `all_reduce`."""
        return self._run(request.barrier(tag, timeout, self._modes), priority)

    barrier_async = starting(barrier)
