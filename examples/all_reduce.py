# SPDX-License-Identifier: MIT
"""The loop that outlives its peers: sum a vector, and when somebody is lost, just call again.

pccl master &
python examples/all_reduce.py 127.0.0.1:48148 &     # as often as you like; kill any of them at any time
"""

import sys
import time

import numpy as np

import pccl


def total(comm: pccl.Communicator, values: np.ndarray) -> pccl.ReduceInfo:
    """In place. After PeerLost the values are as they were, and the survivors are already a group again."""
    while True:
        try:
            return comm.all_reduce(values, op=pccl.ReduceOp.SUM)
        except pccl.PeerLost as loss:
            print(loss, flush=True)


def main(master: str, rounds: int = 20) -> None:
    with pccl.Communicator(master) as comm:
        comm.connect()
        while comm.world_size < 2:  # the first one waits for company
            time.sleep(0.05)
            comm.update_topology()
        for number in range(rounds):
            values = np.ones(1 << 20, np.float32)
            try:
                info = total(comm, values)
            except pccl.TooFewPeers:
                break  # all others have left
            assert (values == info.world_size).all()
            print(f"round {number}: {info.world_size} peers, {info.tx_bytes} bytes sent", flush=True)
            if comm.are_peers_pending():
                comm.update_topology()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
