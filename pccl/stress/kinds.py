# SPDX-License-Identifier: MIT
"""The kinds of faults there are, and what they have in common or not. A new kind is a line here and what does it, in
`links` or `supervisor`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """One kind of fault. `what` is what is done, in a few words; `replaced`: its victims' processes end, others take
    their places; `held`: it lasts for a while and is then healed; `links`: the network does it, not a process; `lossy`:
    membership may change by it."""

    what: str
    replaced: bool = False
    held: bool = False
    links: bool = False
    lossy: bool = True
    expels: bool = True


KINDS: dict[str, Kind] = {
    "kill": Kind("SIGKILL", replaced=True),
    "leave": Kind("clean leave", replaced=True),
    "donor": Kind("SIGKILL while a newcomer fetches the state", replaced=True),
    "stop": Kind("SIGSTOP", held=True),
    "master": Kind("SIGKILL of the master", held=True, lossy=False),
    "reset": Kind("all connections reset", links=True, expels=False),
    "half-open": Kind("links to other peers silent both ways", held=True, links=True),
    "one-way": Kind("links from other peers silent", held=True, links=True),
    "cut": Kind("cable pulled", held=True, links=True),
    "slow": Kind("slow links", held=True, links=True, lossy=False, expels=False),
    "partition": Kind("partition, on the side without the master", held=True, links=True),
}
