# SPDX-License-Identifier: MIT
"""The flight recorder's files: `record` what they hold, `file` how it is written, `dump` when, `merge` what several
peers' files say together, `table` and `chrome` how that is shown. `pccl trace` is the command."""
