# SPDX-License-Identifier: MIT
"""What a newcomer must have to go on like the others: parameters, buffers, optimizer, and the numbers of a loop.

The one idea: everything that a training step changes is a tensor or a number at a path ("optimizer.state.3.exp_avg").
Tensors are shared where they lie; numbers are gathered in one array for as long as members compare and fetch, and put
back where they came from. What is neither must be the same on all ranks by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from pccl.errors import InvalidArgument
from pccl.shared_state import SharedState, TensorInfo

Number = int | float


class _Leaf(NamedTuple):
    """A value at a path, and how to put another one in its place."""

    path: str
    value: Tensor | Number
    put: Callable[[Number], object]


class State:
    """Parts by name: modules, optimizers, tensors, numbers, and what has `state_dict` and `load_state_dict`.

        state = pccl.torch.State(model=model, optimizer=optimizer, step=0)
        state.step += 1

    Tensors are contiguous and on the CPU, and each is its rank's own copy of one value: no shard of a DTensor. An
    optimizer gets its state at once, by a step that changes nothing, as members can only share what they all have (SGD
    with dampening damps its first gradient, too, then).
    Raises InvalidArgument for what cannot be shared.
    """

    revision: int

    def __init__(self, **parts: Any) -> None:
        object.__setattr__(self, "_parts", dict(parts))
        object.__setattr__(self, "revision", 0)
        for name, part in parts.items():
            if isinstance(part, Optimizer):
                _materialise(part)
            elif not isinstance(part, nn.Module | Tensor | int | float) and not hasattr(part, "load_state_dict"):
                raise InvalidArgument(f"{name} is a {type(part).__name__}, which has no state that could be shared")

    def __getattr__(self, name: str) -> Any:
        parts = object.__getattribute__(self, "_parts")
        if name in parts:
            return parts[name]
        raise AttributeError(f"the state has no part {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "revision":
            object.__setattr__(self, name, value)
        elif name in self._parts:
            self._parts[name] = value
        else:
            raise AttributeError(f"the state has no part {name!r}: name all of them when it is made")

    def shared(self) -> tuple[SharedState, Callable[[], None]]:
        """What `Communicator.sync_shared_state` takes, and what brings the numbers back that it has changed."""
        dicts = {name: part.state_dict() for name, part in self._parts.items() if _keeps_a_dict(part)}
        leaves = list(self._leaves(dicts))
        tensors = [TensorInfo(leaf.path, _plain(leaf.path, leaf.value)) for leaf in leaves if _is_tensor(leaf)]
        numbers = [leaf for leaf in leaves if not _is_tensor(leaf)]
        whole = [leaf for leaf in numbers if isinstance(leaf.value, int)]
        broken = [leaf for leaf in numbers if not isinstance(leaf.value, int)]
        counted = torch.tensor([leaf.value for leaf in whole], dtype=torch.int64)
        measured = torch.tensor([leaf.value for leaf in broken], dtype=torch.float64)
        tensors += [TensorInfo("whole numbers", counted), TensorInfo("broken numbers", measured)]

        def bring_back() -> None:
            for leaf, value in zip(whole, counted.tolist(), strict=True):
                leaf.put(bool(value) if isinstance(leaf.value, bool) else value)
            for leaf, value in zip(broken, measured.tolist(), strict=True):
                leaf.put(value)
            for name, changed in dicts.items():
                self._parts[name].load_state_dict(changed)

        return SharedState(tensors, self.revision), bring_back

    def _leaves(self, dicts: dict[str, Any]) -> Iterator[_Leaf]:
        for name, part in self._parts.items():
            if isinstance(part, nn.Module):
                yield from _walk(name, part.state_dict())
            elif isinstance(part, Optimizer):
                yield from _walk(f"{name}.groups", part.param_groups, skipping=("params",))
                for index, parameter in enumerate(_parameters(part)):
                    yield from _walk(f"{name}.state.{index}", part.state.get(parameter, {}))
            elif name in dicts:
                yield from _walk(name, dicts[name])
            else:
                yield from _walk(name, self._parts, only=name)


def _walk(path: str, box: Any, *, skipping: tuple[str, ...] = (), only: str | None = None) -> Iterator[_Leaf]:
    """Tensors and numbers in dicts and lists, in an order that depends on nothing but names."""
    if only is not None:
        items: list[tuple[Any, Any]] = [(only, box[only])]
    elif isinstance(box, dict):
        items = sorted(box.items(), key=lambda item: str(item[0]))
    else:
        items = list(enumerate(box))
    for key, value in items:
        where = path if only is not None else f"{path}.{key}"
        if key in skipping:
            continue
        if isinstance(value, Tensor | int | float):
            yield _Leaf(where, value, lambda found, key=key: box.__setitem__(key, found))  # type: ignore[misc]
        elif isinstance(value, dict | list):
            yield from _walk(where, value, skipping=skipping)


def _is_tensor(leaf: _Leaf) -> bool:
    return isinstance(leaf.value, Tensor)


def _keeps_a_dict(part: Any) -> bool:
    return hasattr(part, "load_state_dict") and not isinstance(part, nn.Module | Optimizer)


def _plain(path: str, value: Any) -> Tensor:
    if type(value).__name__ == "DTensor":
        raise InvalidArgument(f"{path} is a DTensor: each rank holds another part of it, and nobody else has a copy")
    found: Tensor = value.detach()
    return found


def _parameters(optimizer: Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _materialise(optimizer: Optimizer) -> None:
    """Makes what an optimizer makes in its first step. Gradients and learning rates of zero, and no decay, change no
    parameter; what the step counted is taken back."""
    lazy = [parameter for parameter in _parameters(optimizer) if parameter not in optimizer.state]
    if not lazy:
        return
    kept = [{key: group[key] for key in _quiet(group)} for group in optimizer.param_groups]
    gradients = [(parameter, parameter.grad) for parameter in _parameters(optimizer)]
    before = [(parameter, parameter.detach().clone()) for parameter in lazy]
    for parameter, _ in gradients:
        parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None
    for group in optimizer.param_groups:
        group.update(
            {key: torch.zeros_like(it) if isinstance(it := group[key], Tensor) else 0.0 for key in _quiet(group)}
        )
    try:
        optimizer.step()
    finally:
        for group, values in zip(optimizer.param_groups, kept, strict=True):
            group.update(values)
        for parameter, gradient in gradients:
            parameter.grad = gradient
    with torch.no_grad():
        for parameter, value in before:
            parameter.copy_(value)
            for key, made in optimizer.state.get(parameter, {}).items():
                if isinstance(made, Tensor):
                    made.zero_()
                elif isinstance(made, int | float) and not isinstance(made, bool):
                    optimizer.state[parameter][key] = type(made)(0)


def _quiet(group: dict[str, Any]) -> list[str]:
    """What must be zero for a step that changes no parameter."""
    return [key for key in ("lr", "weight_decay") if key in group]
