# SPDX-License-Identifier: MIT
"""Training over slow links: the same model with exact averages, with int8, and with int4 and error feedback.

Model, data and rounds are those of `pccl demo` (needs scikit-learn). Each peer trains on data of its own; all end with
the same bits, and print the accuracy for each seed and its mean, and what one peer sent for one model.

    pccl master &
    python examples/quantized_training.py 127.0.0.1:48148 2 &
    python examples/quantized_training.py 127.0.0.1:48148 2
"""

import sys
import time

import numpy as np

import pccl
from pccl.demo import digits, diloco, mlp

SEEDS, ROUNDS, LOCAL_STEPS = (1, 2, 3), 30, 40
WAYS = {"float32": None, "int8": pccl.QuantizationOptions("int8"), "int4": pccl.QuantizationOptions("int4")}
WITH_FEEDBACK = ("int4",)


def average(
    comm: pccl.Communicator,
    moved: np.ndarray,
    options: pccl.QuantizationOptions | None,
    feedback: pccl.ErrorFeedback | None,
) -> int:
    """In place; returns the bytes sent. What quantization takes from `moved` comes with the next one."""
    errors = None
    if feedback is not None:
        feedback.add("moved", moved, out=moved)
        errors = feedback.errors("moved")
    while True:
        try:
            info = comm.all_reduce(moved, op=pccl.ReduceOp.AVG, quantization_options=options, errors=errors)
        except pccl.PeerLost:
            continue  # `moved` is intact, and so is what was kept back before
        if feedback is not None:
            feedback.commit()
        return info.tx_bytes


def train(comm: pccl.Communicator, data: digits.Digits, seed: int, way: str) -> tuple[float, int]:
    """The accuracy in the end, and the bytes that were sent."""
    outer, sent = diloco.Outer(mlp.initial_parameters(seed)), 0
    feedback = pccl.ErrorFeedback() if way in WITH_FEEDBACK else None
    for _ in range(ROUNDS):
        _, moved = diloco.local_steps(outer, data, comm.rank, comm.world_size, LOCAL_STEPS)
        sent += average(comm, moved, WAYS[way], feedback)
        outer.step(moved)
    return mlp.accuracy(outer.parameters, data.test_images, data.test_labels), sent


def main(master: str, peers: int) -> None:
    data = digits.load()
    with pccl.Communicator(master) as comm:
        comm.connect()
        while comm.world_size < peers:
            time.sleep(0.05)
            comm.update_topology()
        for way in WAYS:
            results = [train(comm, data, seed, way) for seed in SEEDS]
            accuracies = "  ".join(f"{100 * accuracy:.2f} %" for accuracy, _ in results)
            mean = 100 * np.mean([accuracy for accuracy, _ in results])
            print(f"{way:8} {accuracies}   mean {mean:.2f} %   {results[0][1] / 1e6:.2f} MB", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
