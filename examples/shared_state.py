# SPDX-License-Identifier: MIT
"""Shared state: whoever comes late receives what the others agreed on, bit by bit.

pccl master &    # a new one for each run: it remembers the revision that its group reached
python examples/shared_state.py 127.0.0.1:48148 1 & python examples/shared_state.py 127.0.0.1:48148 2
"""

import sys
import time

import numpy as np

import pccl


def main(master: str, seed: int, revisions: int = 5) -> None:
    # Every peer starts with weights of its own; the group agrees on one of them at the first synchronisation.
    weights = np.random.default_rng(seed).standard_normal((512, 512), np.float32)
    steps = np.zeros(1, np.int64)
    state = pccl.SharedState(
        [pccl.TensorInfo.from_numpy(weights, "weights"), pccl.TensorInfo.from_numpy(steps, "steps")]
    )
    with pccl.Communicator(master) as comm:
        comm.connect()
        while comm.world_size < 2:
            time.sleep(0.05)
            comm.update_topology()
        while True:
            info = comm.sync_shared_state(state)
            print(f"revision {info.revision}: {state.hexdigest()}, received {info.rx_bytes} bytes", flush=True)
            if state.revision == revisions:
                break
            # Everybody changes the state in the same way, and says so by the next revision.
            weights *= np.float32(0.5)
            steps += 1
            state.push_revision()
        assert steps[0] == revisions


if __name__ == "__main__":
    main(*[sys.argv[1], *map(int, sys.argv[2:])])
