# SPDX-License-Identifier: MIT
"""DiLoCo in miniature: local steps, one averaged pseudo-gradient, an outer Nesterov step. Peers may come and go.

Fits a linear model; each peer sees data of its own. `pccl demo` is the same at length, with a network and real data.

    pccl master &    # a new one for each run: it remembers the revision that its group reached
    python examples/diloco.py 127.0.0.1:48148 1 & python examples/diloco.py 127.0.0.1:48148 2
"""

import sys
import time

import numpy as np

import pccl

FEATURES, LOCAL_STEPS, ROUNDS = 64, 20, 40
INNER_RATE, OUTER_RATE, MOMENTUM = 0.01, 0.7, 0.9


def average(comm: pccl.Communicator, values: np.ndarray) -> None:
    while True:
        try:
            comm.all_reduce(values, op=pccl.ReduceOp.AVG)
            return
        except pccl.PeerLost:
            continue


def local_steps(weights: np.ndarray, truth: np.ndarray, data: np.random.Generator) -> np.ndarray:
    """What the outer optimiser takes for a gradient: how far the local steps moved, backwards."""
    local = weights.copy()
    for _ in range(LOCAL_STEPS):
        inputs = data.standard_normal((32, FEATURES))
        errors = inputs @ (local - truth)
        local -= INNER_RATE * (inputs.T @ errors) / len(inputs)
    return weights - local


def main(master: str, seed: int) -> None:
    truth = np.random.default_rng(0).standard_normal(FEATURES)
    data = np.random.default_rng(seed)
    weights, momentum = np.zeros(FEATURES), np.zeros(FEATURES)
    named = {"weights": weights, "momentum": momentum}
    state = pccl.SharedState([pccl.TensorInfo.from_numpy(tensor, name) for name, tensor in named.items()])
    with pccl.Communicator(master) as comm:
        comm.connect()
        while comm.world_size < 2:
            time.sleep(0.05)
            comm.update_topology()
        while True:
            comm.sync_shared_state(state)
            if state.revision == ROUNDS:
                break
            pseudo_gradient = local_steps(weights, truth, data)
            average(comm, pseudo_gradient)
            momentum *= MOMENTUM
            momentum += pseudo_gradient
            weights -= OUTER_RATE * (pseudo_gradient + MOMENTUM * momentum)
            state.push_revision()
            if comm.are_peers_pending():
                comm.update_topology()
    error = float(np.abs(weights - truth).max())
    print(f"after {state.revision} rounds the largest error is {error:.4f}; state {state.hexdigest()}")
    assert error < 0.05


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
