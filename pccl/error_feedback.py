# SPDX-License-Identifier: MIT
"""What quantization has taken from each tensor, kept until the next step sends it.

    feedback = pccl.ErrorFeedback()
    while training:
        x = feedback.add("weights", gradient)             # and what was kept back so far
        comm.all_reduce(x, average, quantization_options=options, errors=feedback.errors("weights"))
        feedback.commit()                                 # it has succeeded (deferred: after comm.commit())

So over all steps, what a rank has sent and what it still keeps add up to all that it had to send, however coarse the
format is: the error of a step is made good by later ones instead of adding up.

The one idea: two arrays for each name, of which `commit` makes the new one the one that counts. A call that fails
writes to the new one alone, so whoever calls again starts from what there was. Residuals belong to the rank, so nothing
happens to them when members come or go. For bytes of a checkpoint or of a message: `state_dict`.

Must not know: formats, collectives, membership.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pccl import arrays
from pccl.errors import InvalidArgument

Residual = NDArray[np.float32]


class ErrorFeedback:
    """Residuals of one rank, by the names of tensors. Takes 8 bytes for each element. Not for several threads at once.

    Of vectors of which only some elements are sent, the residual is what `top_k` has left out and what quantization has
    taken from the rest:

        x, errors = feedback.add("weights", gradient), feedback.errors("weights")
        indices, values = pccl.top_k(x, k, errors)
        comm.all_reduce_sparse(indices, values, gradient.size, quantization_options=options, errors=errors)
    """

    def __init__(self) -> None:
        self._settled: dict[str, Residual] = {}
        self._next: dict[str, Residual] = {}
        self._written: dict[str, None] = {}

    def add(self, name: str, array: Any, out: Any = None) -> Any:
        """The array and the residual of that name: a new array (or tensor), or in `out`, which may be `array` itself.
        A name begins with a residual of zeros. `array` is a numpy array or torch CPU tensor of floats; sums are rounded
        to the dtype of what is returned, and what is lost by that is not kept: so let `out` be of float32 where `array`
        is shorter. Raises InvalidArgument, also where the name belongs to another shape."""
        source = _floats("array", array)
        residual = self._of(name, source.shape)
        if out is None:
            out = sys.modules["torch"].empty_like(array.detach()) if arrays.is_tensor(array) else np.empty_like(source)
        target = out.detach() if arrays.is_tensor(out) else out
        if _floats("out", out).shape != source.shape:
            raise InvalidArgument(f"out has the shape {_floats('out', out).shape}, and array {source.shape}")
        if arrays.is_tensor(target):
            target.copy_(sys.modules["torch"].from_numpy(source + residual))
        else:
            np.add(source, residual, out=target, casting="same_kind")
        return out

    def errors(self, name: str) -> Residual:
        """Where the errors of the call under way go: of the same shape, the same one until `commit`. A call overwrites
        what it finds. Raises InvalidArgument where nothing was added under that name yet."""
        if name not in self._next:
            raise InvalidArgument(f"there is no tensor {name!r}: call add first")
        self._written[name] = None
        return self._next[name]

    def commit(self) -> None:
        """What was written to `errors` since the last time is the residual from now on. What is not finite has been
        sent as it is, and nothing of it is kept."""
        for name in self._written:
            fresh = self._next[name]
            finite = np.isfinite(fresh)
            if not finite.all():
                fresh[~finite] = 0
            self._next[name], self._settled[name] = self._settled[name], fresh
        self._written.clear()

    def discard(self) -> None:
        """Forgets what was written since the last `commit`: for a step that will not be repeated."""
        self._written.clear()

    def state_dict(self) -> dict[str, Residual]:
        """Copies of all residuals, as of the last `commit`."""
        return {name: residual.copy() for name, residual in self._settled.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Replaces all that there is by copies of these. Raises InvalidArgument, and changes nothing then."""
        loaded = {name: np.array(_floats(repr(name), it), np.float32, order="C") for name, it in state.items()}
        self._settled = loaded
        self._next = {name: np.zeros_like(it) for name, it in loaded.items()}
        self._written.clear()

    def _of(self, name: str, shape: tuple[int, ...]) -> Residual:
        if name not in self._settled:
            self._settled[name], self._next[name] = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        known = self._settled[name]
        if known.shape != shape:
            raise InvalidArgument(f"tensor {name!r} had the shape {known.shape}, and now has {shape}")
        self._written.pop(name, None)  # a call that is made again
        return known


def _floats(name: str, array: Any) -> NDArray[Any]:
    if arrays.is_tensor(array) and array.is_floating_point() and array.device.type == "cpu":
        return arrays.as_numpy(array)
    if not isinstance(array, np.ndarray) or array.dtype.kind != "f":
        raise InvalidArgument(f"{name} must be an array or CPU tensor of floats, not a {type(array).__name__}")
    return array
