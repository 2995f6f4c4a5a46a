# SPDX-License-Identifier: MIT
"""One peer of the demo: the loop that a user of pccl would write, plus a line to the supervisor to report on.

`train` is worth reading first. Peers are alike: none knows that another will be killed, that the master will be away,
or whether it came first or late. Joint calls (state, newcomers) stand between cycles of a few rounds; within a cycle
nobody needs the master.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from numpy.typing import NDArray

import pccl
from pccl.demo import digits, mlp
from pccl.demo.digits import Digits
from pccl.demo.diloco import Outer, local_steps
from pccl.fleet import Line, gather


class Peer:
    """A communicator, the shared state, and what has gone over the wire so far."""

    def __init__(self, comm: pccl.Communicator, line: Line, data: Digits, steps: int, rounds_per_cycle: int) -> None:
        self._comm = comm
        self._line = line
        self._steps = steps
        self._rounds_per_cycle = rounds_per_cycle
        self._data = data
        self._outer = Outer()
        self._state = pccl.SharedState(
            [pccl.TensorInfo.from_numpy(tensor, name) for name, tensor in self._outer.tensors().items()]
        )
        self._tx_bytes = 0
        self._rx_bytes = 0
        self._asked_to_finish = False

    def train(self) -> None:
        """Trains until the supervisor asked one of the peers to finish and all have agreed on it."""
        while True:
            self._synchronise()
            for _ in range(self._rounds_per_cycle):
                loss, pseudo_gradient = local_steps(
                    self._outer, self._data, self._comm.rank, self._comm.group_world_size, self._steps
                )
                retries = self._all_reduce(pseudo_gradient, pccl.ReduceOp.AVG)
                self._outer.step(pseudo_gradient)
                self._report_round(loss, retries)
            self._state.revision += 1
            if self._agree_to_finish():
                break
            self._line.send(kind="joint")
            if self._comm.are_peers_pending():
                self._comm.update_topology()
        self._synchronise()

    def _all_reduce(self, values: NDArray[np.generic], op: pccl.ReduceOp) -> int:
        """Reduces in place. Returns how often a peer was lost on the way: after PeerLost the survivors just call
        again.
        """
        retries = 0
        while True:
            try:
                info = self._comm.all_reduce(values, values, op=op)
            except pccl.PeerLost as loss:
                retries += 1
                self._line.send(kind="lost", why=str(loss))
                continue
            self._tx_bytes += info.tx_bytes
            self._rx_bytes += info.rx_bytes
            return retries

    def _synchronise(self) -> None:
        """Newcomers receive the state here; the others prove that theirs is the same."""
        info = self._comm.sync_shared_state(self._state)
        self._tx_bytes += info.tx_bytes
        self._rx_bytes += info.rx_bytes
        self._line.send(kind="synced", round=int(self._outer.round[0]), received_bytes=info.rx_bytes)

    def _agree_to_finish(self) -> bool:
        """True on all peers once any of them was asked to finish: a decision that is reduced cannot differ."""
        command = self._line.receive(timeout_s=0)
        if command is not None and command["kind"] == "finish":
            self._asked_to_finish = True
        wish = np.array([self._asked_to_finish], np.int32)
        self._all_reduce(wish, pccl.ReduceOp.MAX)
        return bool(wish[0])

    def _report_round(self, loss: float, retries: int) -> None:
        self._line.send(
            kind="round",
            at_s=time.monotonic(),
            rank=self._comm.rank,
            world_size=self._comm.group_world_size,
            epoch=self._comm.epoch,
            round=int(self._outer.round[0]),
            loss=loss,
            retries=retries,
            tx_bytes=self._tx_bytes,
            rx_bytes=self._rx_bytes,
            digest=self._outer.digest(),
        )

    def report_end(self) -> None:
        """The last message: what the supervisor judges."""
        accuracy = mlp.accuracy(self._outer.parameters, self._data.test_images, self._data.test_labels)
        round_ = int(self._outer.round[0])
        self._line.send(kind="finished", accuracy=accuracy, digest=self._outer.digest(), round=round_)


def main() -> None:
    """Runs one peer on the line of stdin and stdout."""
    parser = argparse.ArgumentParser()
    parser.add_argument("master", help="HOST:PORT of the master")
    parser.add_argument("--gather", type=int, required=True, help="wait for so many peers before training")
    parser.add_argument("--steps", type=int, required=True, help="local steps of a round")
    parser.add_argument("--rounds-per-cycle", type=int, required=True, help="rounds between joint calls")
    options = parser.parse_args()
    line = Line.to_supervisor()
    data = digits.load()  # before it joins: a member that is not ready yet would keep the others waiting
    with pccl.Communicator(options.master) as comm:
        comm.connect()
        line.send(kind="joined", rank=comm.rank, world_size=comm.group_world_size, epoch=comm.epoch)
        gather(comm, options.gather)
        peer = Peer(comm, line, data, options.steps, options.rounds_per_cycle)
        peer.train()
        peer.report_end()


if __name__ == "__main__":
    main()
