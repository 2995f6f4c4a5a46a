# SPDX-License-Identifier: MIT
"""One torch process group as the engine sees it: who is in it, and under which names its operations run.

What for: the one description that both forms of the backend work from. Must not know: torch, sockets, how a runtime
came to be.

The one idea: groups share links, threads and epochs of one runtime and differ by tag alone. A tag is 63 bits of the
hash of the group's key, so that groups that are made at different times on different ranks need no numbering. The key
is torch's name of the group, but where that differs between ranks. What is sent from one rank to another has a tag of
its own for each of torch's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pccl import _native
from pccl.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class Group:
    """`name` is torch's. `ranks` are those of the view, by rank in the torch group; `index` is our own there. `scope`
    is the engine's name for them in `epoch`, 0 for all members of the view. `timeout_ms` is what an operation gets that
    says nothing else; `deferred`: it ends when its local part is done."""

    name: str
    ranks: tuple[int, ...]
    index: int
    epoch: int
    scope: int
    key: str
    timeout_ms: int
    deferred: bool = True
    tag: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tag", tag_of(self.key))

    @property
    def size(self) -> int:
        """Members."""
        return len(self.ranks)

    def tag_for(self, tag: int) -> int:
        """What the engine calls torch's `tag` of a send or receive in this group."""
        return tag_of(self.key, tag)

    def rank_of(self, rank: int) -> int:
        """The rank in this group of a rank of the view. Raises ValueError for one that is not in it."""
        return self.ranks.index(rank)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a group that is to be made. `places` are its members as ranks of the view."""

    name: str
    key: str
    places: tuple[int, ...]
    timeout_s: float


def part_of(whole: Group, ranks: Sequence[int], number: int, name: str | None, timeout_s: float) -> Part | None:
    """That of these ranks of `whole`, of which there were `number` before; None if we are not in it. What torch would
    call it depends on the rank, so its key says where it comes from. Raises InvalidArgument."""
    if len(set(ranks)) != len(ranks) or not set(ranks) <= set(range(whole.size)):
        raise InvalidArgument(f"{list(ranks)} are not ranks of a group of {whole.size}, each once")
    if whole.index not in ranks:
        return None
    key = f"{whole.key}:split:{','.join(map(str, ranks))}:{number}"
    return Part(name or key, key, tuple(whole.ranks[rank] for rank in ranks), timeout_s)


def tag_of(key: str, tag: int | None = None) -> int:
    """63 bits of XXH3-128 (the first eight of its bytes, big-endian, shifted right by one) over the group's key or,
    for sends and receives, the key, a zero byte and torch's tag as eight bytes, little-endian."""
    text = key.encode()
    if tag is not None:
        text += b"\0" + tag.to_bytes(8, "little", signed=True)
    return int.from_bytes(_native.hash128(text)[:8], "big") >> 1
