# SPDX-License-Identifier: MIT
"""One torch process group as the engine sees it: who is in it, and under which names its operations run.

What for: the one description that both forms of the backend work from. Must not know: torch, sockets, how a runtime
came to be.

The one idea: groups share links, threads and epochs of one runtime and differ by tag alone. A tag is 63 bits of the
hash of the group's name, so that groups that are made at different times on different ranks need no numbering. What is
sent from one rank to another has a tag of its own for each of torch's.
"""

from __future__ import annotations

from dataclasses import dataclass

from pccl import _native


@dataclass(frozen=True, slots=True)
class Group:
    """`ranks` are those of the view, by rank in the torch group; `index` is our own there. `scope` is the engine's name
    for them in `epoch`, 0 for all members of the view. `timeout_ms` is what an operation gets that says nothing else;
    `deferred`: it ends when its local part is done."""

    name: str
    ranks: tuple[int, ...]
    index: int
    epoch: int
    scope: int
    tag: int
    timeout_ms: int
    deferred: bool = True

    @property
    def size(self) -> int:
        """Members."""
        return len(self.ranks)

    def tag_for(self, tag: int) -> int:
        """What the engine calls torch's `tag` of a send or receive in this group."""
        return tag_of(self.name, tag)

    def rank_of(self, rank: int) -> int:
        """The rank in this group of a rank of the view. Raises ValueError for one that is not in it."""
        return self.ranks.index(rank)


def tag_of(name: str, tag: int | None = None) -> int:
    """63 bits of XXH3-128 (the first eight of its bytes, big-endian, shifted right by one) over the group's name or,
    for sends and receives, the name, a zero byte and torch's tag as eight bytes, little-endian."""
    text = name.encode()
    if tag is not None:
        text += b"\0" + tag.to_bytes(8, "little", signed=True)
    return int.from_bytes(_native.hash128(text)[:8], "big") >> 1
