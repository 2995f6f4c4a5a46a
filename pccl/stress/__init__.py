# SPDX-License-Identifier: MIT
"""The stress tests: a training loop whose every value is known, on several hosts, under faults drawn from a seed.

In reading order, the pure parts first: `scenario` (what is to be done, from a small file), `values` (the formula
behind every number), `faults` (what goes wrong, from a seed), `trial` (how long it took to get over it), `checkers`
(what must not happen), `director` (what happens when, as a state machine over the workers' reports), `timeline` (what
is kept for pictures and reports), `usage` (what a process holds). Then those that touch the world: `worker` (one
peer), `hosts` and `namespaces` (where processes run), `links` and `relay` (how their traffic is disturbed),
`supervisor` (performs what the director says), `screen`, `report` and `picture` (what a person sees).
"""
