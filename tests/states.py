# SPDX-License-Identifier: MIT
"""Offers of shared state, for tests of who wins and who fetches: each member is its rank, each content a letter."""

from __future__ import annotations

from hypothesis import strategies as st

from pccl.messages import StateEntry
from pccl.protocol.state_election import Election, Offer, SharedStateSyncStrategy, elect

POPULAR = SharedStateSyncStrategy.ENFORCE_POPULAR
RECEIVE = SharedStateSyncStrategy.RECEIVE_ONLY
SEND = SharedStateSyncStrategy.SEND_ONLY


def peer_of(rank: int) -> bytes:
    return bytes([rank]) * 16


def entry(name: str, content: int, **changes: object) -> StateEntry:
    fields: dict[str, object] = {"dtype": "float32", "shape": (4, 4), "digest": bytes([content]) * 16}
    fields.update(changes)
    return StateEntry(name, **fields)  # type: ignore[arg-type]


def offer(rank: int, revision: int, contents: str, strategy: SharedStateSyncStrategy = POPULAR) -> Offer:
    """An offer of the entries k0, k1, ...; each character of `contents` stands for the content of one of them."""
    entries = tuple(entry(f"k{index}", ord(letter)) for index, letter in enumerate(contents))
    return Offer(peer_of(rank), revision, strategy, entries)


def mixed(rank: int, revision: int, equal: int, unequal: int, strategy: SharedStateSyncStrategy = POPULAR) -> Offer:
    entries = (entry("equal", equal), entry("own", unequal, allow_inequality=True))
    return Offer(peer_of(rank), revision, strategy, entries)


OFFERS_OF_GROUPS = st.lists(
    st.tuples(st.integers(3, 7), st.text("ab", min_size=2, max_size=2), st.sampled_from(SharedStateSyncStrategy)),
    min_size=1,
    max_size=6,
).map(lambda rows: [offer(rank, *row) for rank, row in enumerate(rows)])


def elected(offers: list[Offer], last: int | None) -> Election:
    result = elect(offers, last)
    assert isinstance(result, Election), result
    return result
