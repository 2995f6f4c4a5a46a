# SPDX-License-Identifier: MIT
"""Pure state machines of the control plane: membership, votes, verdicts, shared-state election, ring order.

Nothing in this package does I/O, reads a clock or draws a random number: messages, time (integer milliseconds) and
randomness come in as arguments, and what is to be done comes out as lists of outputs, to be performed in order.
"""
