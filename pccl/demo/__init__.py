# SPDX-License-Identifier: MIT
"""The demo: peers train a small network on handwritten digits while one of them, and then the master, is killed.

In reading order: `digits` (the data), `mlp` (the network), `diloco` (the outer optimiser), `peer` (the loop that a
user of pccl would write), `story` (what happens when, as a pure state machine), `screen` and `chart` (what a person
sees), `supervisor` (starts the processes, performs the story, gives the verdict).
"""
