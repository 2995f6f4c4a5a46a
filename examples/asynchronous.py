# SPDX-License-Identifier: MIT
"""Several all_reduces in flight at once, awaited in asyncio while the program does something else.

pccl master &
python examples/asynchronous.py 127.0.0.1:48148 & python examples/asynchronous.py 127.0.0.1:48148
"""

import asyncio
import sys
import time

import numpy as np

import pccl

LAYERS = 8


async def reduce_layer(comm: pccl.Communicator, layer: int, gradient: np.ndarray) -> pccl.ReduceInfo:
    """Operations in flight at once need tags of their own: those of one tag are matched in call order."""
    while True:
        try:
            return await comm.all_reduce_async(gradient, op=pccl.ReduceOp.AVG, tag=layer)
        except pccl.PeerLost:
            continue


async def count_ticks(stop: asyncio.Event) -> int:
    """Something else to do: the event loop stays free while the operations run."""
    ticks = 0
    while not stop.is_set():
        ticks += 1
        await asyncio.sleep(0)
    return ticks


async def run(comm: pccl.Communicator) -> None:
    gradients = [np.full(1 << 18, layer + 1, np.float32) for layer in range(LAYERS)]
    stop = asyncio.Event()
    other = asyncio.create_task(count_ticks(stop))
    infos = await asyncio.gather(*(reduce_layer(comm, layer, gradient) for layer, gradient in enumerate(gradients)))
    stop.set()
    assert all((gradient == layer + 1).all() for layer, gradient in enumerate(gradients))
    peers = {info.world_size for info in infos}
    print(f"{LAYERS} layers averaged over {peers} peers; {await other} turns of the event loop meanwhile")


def main(master: str) -> None:
    with pccl.Communicator(master) as comm:
        comm.connect()
        while comm.world_size < 2:
            time.sleep(0.05)
            comm.update_topology()
        asyncio.run(run(comm))


if __name__ == "__main__":
    main(sys.argv[1])
