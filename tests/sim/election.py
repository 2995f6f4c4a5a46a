# SPDX-License-Identifier: MIT
"""Which offer has to win a synchronisation, said a second time.

What for: a reference that the election of the product is compared with. Must not use pccl.protocol.state_election.

The one idea: for offers of the simulated program, which all have the same two tensors, the rules fit a few lines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pccl.messages import StateOffer
from tests.sim.content import Content

POPULAR, RECEIVE_ONLY, SEND_ONLY = range(3)


@dataclass(frozen=True, slots=True)
class Choice:
    """The content that all members must hold in the end."""

    content: Content


def choose(offers: Sequence[StateOffer], last: int | None) -> Choice | None:
    """The winner among `offers` in rank order, None if none may win. `last`: the revision that the group agreed on."""
    authorities = [it for it in offers if it.strategy == SEND_ONLY]
    candidates = authorities or [it for it in offers if it.strategy == POPULAR]
    if last is not None and not authorities:
        if any(it.revision > last + 1 for it in candidates):
            return None
        candidates = [it for it in candidates if it.revision >= last]
    if not candidates:
        return None
    newest = max(it.revision for it in candidates)
    digests = [tuple(entry.digest for entry in it.entries) for it in candidates if it.revision == newest]
    if authorities and len(set(digests)) > 1:
        return None
    counts = Counter(digests)
    model, optimizer = next(it for it in digests if counts[it] == max(counts.values()))
    return Choice(Content(0, newest, model, optimizer))
