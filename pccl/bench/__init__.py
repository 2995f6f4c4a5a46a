# SPDX-License-Identifier: MIT
"""`pccl bench`: times collectives between processes of this machine, beside other libraries under the same conditions.

In reading order: `work` (what is reduced, and what must come out), `contenders` (one file for each library), `worker`
(the timing loop, the same for all), `team` (the processes of one contender), `metrics` (times to bandwidths),
`report`, `run`.
"""
