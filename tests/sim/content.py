# SPDX-License-Identifier: MIT
"""The shared state of the simulated training: two tensors, reduced to their digests, and a step number.

What for: equal contents are equal bits, and every outcome of an operation changes them. Must not know: who holds what.

The one idea: `lineage` is the synchronisation in which a group last agreed, so two contents of one lineage and one step
that differ prove that a guarantee is broken.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from pccl.messages import StateEntry


@dataclass(frozen=True, slots=True)
class Content:
    """`strayed`: it was changed behind the program's back (a cosmic ray, a library without determinism)."""

    lineage: int
    step: int
    model: bytes
    optimizer: bytes
    strayed: bool = False

    @property
    def digest(self) -> bytes:
        """All of it in one."""
        return _digest(self.model, self.optimizer)

    def entries(self) -> tuple[StateEntry, ...]:
        """What is offered for it, by name."""
        return (
            StateEntry("model", "uint8", (16,), self.model),
            StateEntry("optimizer", "uint8", (16,), self.optimizer),
        )

    def with_part(self, index: int, digest: bytes) -> Content:
        """With the entry `index` as somebody else has it."""
        return replace(self, optimizer=digest) if index else replace(self, model=digest)

    def at_step(self, other: Content) -> Content:
        """As far as `other` is."""
        return replace(self, step=other.step)

    def grown(self, what: object) -> Content:
        """After a step."""
        model = _digest(self.model, repr(what).encode())
        return Content(self.lineage, self.step + 1, model, _digest(self.optimizer, model))

    def drifted(self, how: int) -> Content:
        """Spoilt in one of its parts, in one of a few ways, so that some spoilt ones agree with each other."""
        part = how % 2
        old = self.optimizer if part else self.model
        return replace(self.with_part(part, _digest(old, bytes([how]))), strayed=True)

    def agreed(self, sync: int) -> Content:
        """A group holds this now. A fresh one becomes something that only this group has."""
        model = self.model if self.step else _digest(self.model, sync.to_bytes(8, "little"))
        return Content(sync, self.step, model, self.optimizer)


def _digest(*parts: bytes) -> bytes:
    return hashlib.blake2b(b"".join(parts), digest_size=16).digest()


FRESH = Content(0, 0, bytes(16), bytes(16))
