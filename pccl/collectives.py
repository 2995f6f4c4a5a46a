# SPDX-License-Identifier: MIT
"""What members of a group do together: every collective, blocking and not.

The one idea: each method only names its arguments. `request.py` checks them, and a Communicator runs what comes out.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from pccl import descriptors, request, retry
from pccl._native import ReduceInfo
from pccl.descriptors import QuantizationOptions, ReduceOperandDescriptor
from pccl.enums import Algorithm, Collective, PremulSum, ReduceOp
from pccl.handle import Handle
from pccl.request import Members, Modes, Request, whole


class Collectives:
    """The collectives of a Communicator.

    Each has a form that ends in `_async`, which returns a Handle at once: `wait(timeout)`, `done()`, or `await` in
    asyncio. Memory belongs to the operation until then. What every one raises is said at `all_reduce`.
    """

    _modes: Modes

    def _run(self, operation: Request) -> ReduceInfo:
        raise NotImplementedError

    def _launch(self, operation: Request) -> Handle:
        raise NotImplementedError

    def _group(self) -> Members:
        raise NotImplementedError

    def all_reduce(
        self,
        send: Any,
        recv: Any = None,
        *,
        op: ReduceOp | PremulSum = ReduceOp.SUM,
        tag: int = 0,
        algorithm: Algorithm = Algorithm.AUTO,
        deterministic: bool | None = None,
        timeout: float | None = None,
        operand_descriptor: ReduceOperandDescriptor | None = None,
        quantization_options: QuantizationOptions | None = None,
    ) -> ReduceInfo:
        """Combines `send` of all members element by element into `recv` of each; without `recv`, in place.

        Both are numpy arrays or torch CPU tensors, contiguous, of one dtype and count. Blocks until done, at most
        `timeout` seconds without progress. `deterministic` replaces what the Communicator was told, here and in all
        that reduces; all members ask for the same. Raises InvalidArgument, Unsupported, TooFewPeers before any traffic;
        PeerLost (call again: the next epoch is installed and `send` is intact), CollectiveMismatch, OperationTimeout.
        """
        modes = self._modes.reducing(deterministic)
        if operand_descriptor is not None or quantization_options is not None:
            descriptors.check(send, operand_descriptor, quantization_options)
        return self._run(request.all_reduce(send, recv, op, tag, algorithm, timeout, modes))

    def all_reduce_async(
        self,
        send: Any,
        recv: Any = None,
        *,
        op: ReduceOp | PremulSum = ReduceOp.SUM,
        tag: int = 0,
        algorithm: Algorithm = Algorithm.AUTO,
        deterministic: bool | None = None,
        timeout: float | None = None,
        operand_descriptor: ReduceOperandDescriptor | None = None,
        quantization_options: QuantizationOptions | None = None,
    ) -> Handle:
        """As `all_reduce`, but returns at once; the handle's `wait`, or `await` in asyncio, gives the ReduceInfo."""
        modes = self._modes.reducing(deterministic)
        if operand_descriptor is not None or quantization_options is not None:
            descriptors.check(send, operand_descriptor, quantization_options)
        return self._launch(request.all_reduce(send, recv, op, tag, algorithm, timeout, modes))

    def all_reduce_multiple_with_retry(
        self,
        descriptors_or_arrays: Sequence[Any],
        *,
        op: ReduceOp | PremulSum = ReduceOp.SUM,
        tag: int = 0,
        max_in_flight: int = 4,
        deterministic: bool | None = None,
        timeout: float | None = None,
    ) -> ReduceInfo:
        """All-reduces several arrays concurrently, each again after a PeerLost until it succeeded with whoever is left.

        Takes ReduceOpDescriptors (with their own op and tag), or arrays that are reduced in place with `op` and the
        tags `tag`, `tag + 1`, ... Different ones may have been reduced with different world sizes; the info has the
        last one's, and all bytes. Raises TooFewPeers when nobody else is left, and what `all_reduce` raises; arrays
        that were reduced before hold their results then. Ctrl-C ends the wait only: all operations are started and go
        on, as the others count on them, but none is repeated.
        """
        modes = self._modes.reducing(deterministic)
        whole("max_in_flight", max_in_flight, 1, 2**16)
        requests = request.all_reduces(descriptors_or_arrays, op, tag, timeout, modes)
        return retry.until_done([partial(self._launch, one) for one in requests], max_in_flight)

    def reduce_scatter(
        self,
        send: Any,
        recv: Any,
        *,
        op: ReduceOp | PremulSum = ReduceOp.SUM,
        tag: int = 0,
        algorithm: Algorithm = Algorithm.AUTO,
        deterministic: bool | None = None,
        timeout: float | None = None,
    ) -> ReduceInfo:
        """Combines `send` of all members; rank r gets block r of the result in `recv`, whose count times the world size
        is that of `send`. In place where `recv` is that block of `send`. Otherwise as `all_reduce`."""
        modes = self._modes.reducing(deterministic)
        return self._run(request.reduce_scatter(send, recv, op, tag, algorithm, timeout, modes, self._group()))

    def reduce_scatter_async(
        self,
        send: Any,
        recv: Any,
        *,
        op: ReduceOp | PremulSum = ReduceOp.SUM,
        tag: int = 0,
        algorithm: Algorithm = Algorithm.AUTO,
        deterministic: bool | None = None,
        timeout: float | None = None,
    ) -> Handle:
        """As `reduce_scatter`, but returns at once."""
        modes = self._modes.reducing(deterministic)
        return self._launch(request.reduce_scatter(send, recv, op, tag, algorithm, timeout, modes, self._group()))

    def all_gather(
        self,
        send: Any,
        recv: Any,
        *,
        tag: int = 0,
        algorithm: Algorithm = Algorithm.AUTO,
        timeout: float | None = None,
    ) -> ReduceInfo:
        """Block r of `recv` becomes `send` of rank r; the count of `recv` is that of `send` times the world size. In
        place where `send` is this rank's block of `recv`. Errors as in `all_reduce`."""
        return self._run(request.all_gather(send, recv, tag, algorithm, timeout, self._modes, self._group()))

    def all_gather_async(
        self,
        send: Any,
        recv: Any,
        *,
        tag: int = 0,
        algorithm: Algorithm = Algorithm.AUTO,
        timeout: float | None = None,
    ) -> Handle:
        """As `all_gather`, but returns at once."""
        return self._launch(request.all_gather(send, recv, tag, algorithm, timeout, self._modes, self._group()))

    def reduce(
        self,
        send: Any,
        recv: Any = None,
        root: int = 0,
        *,
        op: ReduceOp | PremulSum = ReduceOp.SUM,
        tag: int = 0,
        algorithm: Algorithm = Algorithm.AUTO,
        deterministic: bool | None = None,
        timeout: float | None = None,
    ) -> ReduceInfo:
        """Combines `send` of all members element by element into `recv` of rank `root`; without `recv`, in place there.
        Elsewhere `recv` is ignored. As all calls with a root, raises PeerLost if the group changes before it begins,
        since ranks mean other peers then. Otherwise as `all_reduce`."""
        modes = self._modes.reducing(deterministic)
        return self._run(request.reduce(send, recv, root, op, tag, algorithm, timeout, modes, self._group()))

    def reduce_async(
        self,
        send: Any,
        recv: Any = None,
        root: int = 0,
        *,
        op: ReduceOp | PremulSum = ReduceOp.SUM,
        tag: int = 0,
        algorithm: Algorithm = Algorithm.AUTO,
        deterministic: bool | None = None,
        timeout: float | None = None,
    ) -> Handle:
        """As `reduce`, but returns at once."""
        modes = self._modes.reducing(deterministic)
        return self._launch(request.reduce(send, recv, root, op, tag, algorithm, timeout, modes, self._group()))

    def scan(
        self,
        send: Any,
        recv: Any = None,
        *,
        op: ReduceOp | PremulSum = ReduceOp.SUM,
        tag: int = 0,
        algorithm: Algorithm = Algorithm.AUTO,
        deterministic: bool | None = None,
        timeout: float | None = None,
    ) -> ReduceInfo:
        """`recv` of rank r becomes the combination of `send` of ranks 0 to r (inclusive prefix); without `recv`, in
        place. AVG has no meaning here. Otherwise as `all_reduce`."""
        modes = self._modes.reducing(deterministic)
        return self._run(request.scan(False, send, recv, op, tag, algorithm, timeout, modes))

    def scan_async(
        self,
        send: Any,
        recv: Any = None,
        *,
        op: ReduceOp | PremulSum = ReduceOp.SUM,
        tag: int = 0,
        algorithm: Algorithm = Algorithm.AUTO,
        deterministic: bool | None = None,
        timeout: float | None = None,
    ) -> Handle:
        """As `scan`, but returns at once."""
        modes = self._modes.reducing(deterministic)
        return self._launch(request.scan(False, send, recv, op, tag, algorithm, timeout, modes))

    def exscan(
        self,
        send: Any,
        recv: Any = None,
        *,
        op: ReduceOp | PremulSum = ReduceOp.SUM,
        tag: int = 0,
        algorithm: Algorithm = Algorithm.AUTO,
        deterministic: bool | None = None,
        timeout: float | None = None,
    ) -> ReduceInfo:
        """As `scan`, but without the own contribution: ranks 0 to r-1. Rank 0 keeps what is in `recv`."""
        modes = self._modes.reducing(deterministic)
        return self._run(request.scan(True, send, recv, op, tag, algorithm, timeout, modes))

    def exscan_async(
        self,
        send: Any,
        recv: Any = None,
        *,
        op: ReduceOp | PremulSum = ReduceOp.SUM,
        tag: int = 0,
        algorithm: Algorithm = Algorithm.AUTO,
        deterministic: bool | None = None,
        timeout: float | None = None,
    ) -> Handle:
        """As `exscan`, but returns at once."""
        modes = self._modes.reducing(deterministic)
        return self._launch(request.scan(True, send, recv, op, tag, algorithm, timeout, modes))

    def gather(
        self,
        send: Any,
        recv: Any = None,
        root: int = 0,
        *,
        tag: int = 0,
        algorithm: Algorithm = Algorithm.AUTO,
        timeout: float | None = None,
    ) -> ReduceInfo:
        """Block r of `recv` of rank `root` becomes `send` of rank r; its count is that of `send` times the world size.
        Elsewhere `recv` is ignored. In place where `send` is the root's block of `recv`. Otherwise as `reduce`."""
        return self._run(request.gather(send, recv, root, tag, algorithm, timeout, self._modes, self._group()))

    def gather_async(
        self,
        send: Any,
        recv: Any = None,
        root: int = 0,
        *,
        tag: int = 0,
        algorithm: Algorithm = Algorithm.AUTO,
        timeout: float | None = None,
    ) -> Handle:
        """As `gather`, but returns at once."""
        return self._launch(request.gather(send, recv, root, tag, algorithm, timeout, self._modes, self._group()))

    def scatter(
        self,
        send: Any,
        recv: Any,
        root: int = 0,
        *,
        tag: int = 0,
        algorithm: Algorithm = Algorithm.AUTO,
        timeout: float | None = None,
    ) -> ReduceInfo:
        """`recv` of rank r becomes block r of `send` of rank `root`, whose count is that of `recv` times the world
        size. Elsewhere `send` is ignored. In place where `recv` is the root's block of `send`. Otherwise as
        `reduce`."""
        return self._run(request.scatter(send, recv, root, tag, algorithm, timeout, self._modes, self._group()))

    def scatter_async(
        self,
        send: Any,
        recv: Any,
        root: int = 0,
        *,
        tag: int = 0,
        algorithm: Algorithm = Algorithm.AUTO,
        timeout: float | None = None,
    ) -> Handle:
        """As `scatter`, but returns at once."""
        return self._launch(request.scatter(send, recv, root, tag, algorithm, timeout, self._modes, self._group()))

    def all_to_all(
        self,
        send: Any,
        recv: Any = None,
        *,
        tag: int = 0,
        algorithm: Algorithm = Algorithm.AUTO,
        timeout: float | None = None,
    ) -> ReduceInfo:
        """Block r of `recv` becomes this rank's block of `send` of rank r; both hold world size equal blocks. Without
        `recv`, in place. Otherwise as `all_gather`."""
        return self._run(request.all_to_all(send, recv, tag, algorithm, timeout, self._modes, self._group()))

    def all_to_all_async(
        self,
        send: Any,
        recv: Any = None,
        *,
        tag: int = 0,
        algorithm: Algorithm = Algorithm.AUTO,
        timeout: float | None = None,
    ) -> Handle:
        """As `all_to_all`, but returns at once."""
        return self._launch(request.all_to_all(send, recv, tag, algorithm, timeout, self._modes, self._group()))

    def all_gather_v(
        self,
        send: Any,
        recv: Any,
        recv_counts: Sequence[int],
        *,
        tag: int = 0,
        timeout: float | None = None,
    ) -> ReduceInfo:
        """As `all_gather` with parts of `recv_counts[r]` elements, one behind the other in `recv`. All members pass the
        same counts, else CollectiveMismatch."""
        return self._run(
            request.uneven(
                Collective.ALL_GATHER, send, None, recv, recv_counts, 0, 0, tag, timeout, self._modes, self._group()
            )
        )

    def all_gather_v_async(
        self,
        send: Any,
        recv: Any,
        recv_counts: Sequence[int],
        *,
        tag: int = 0,
        timeout: float | None = None,
    ) -> Handle:
        """As `all_gather_v`, but returns at once."""
        return self._launch(
            request.uneven(
                Collective.ALL_GATHER, send, None, recv, recv_counts, 0, 0, tag, timeout, self._modes, self._group()
            )
        )

    def reduce_scatter_v(
        self,
        send: Any,
        send_counts: Sequence[int],
        recv: Any,
        *,
        op: ReduceOp | PremulSum = ReduceOp.SUM,
        tag: int = 0,
        deterministic: bool | None = None,
        timeout: float | None = None,
    ) -> ReduceInfo:
        """As `reduce_scatter` with parts of `send_counts[r]` elements, one behind the other in `send`. All members pass
        the same counts, else CollectiveMismatch."""
        modes = self._modes.reducing(deterministic)
        return self._run(
            request.uneven(
                Collective.REDUCE_SCATTER,
                send,
                send_counts,
                recv,
                None,
                0,
                op,
                tag,
                timeout,
                modes,
                self._group(),
            )
        )

    def reduce_scatter_v_async(
        self,
        send: Any,
        send_counts: Sequence[int],
        recv: Any,
        *,
        op: ReduceOp | PremulSum = ReduceOp.SUM,
        tag: int = 0,
        deterministic: bool | None = None,
        timeout: float | None = None,
    ) -> Handle:
        """As `reduce_scatter_v`, but returns at once."""
        modes = self._modes.reducing(deterministic)
        return self._launch(
            request.uneven(
                Collective.REDUCE_SCATTER,
                send,
                send_counts,
                recv,
                None,
                0,
                op,
                tag,
                timeout,
                modes,
                self._group(),
            )
        )

    def gather_v(
        self,
        send: Any,
        recv: Any = None,
        recv_counts: Sequence[int] | None = None,
        root: int = 0,
        *,
        tag: int = 0,
        timeout: float | None = None,
    ) -> ReduceInfo:
        """As `gather` with parts that may differ: the root passes `recv_counts[r]`, the elements that rank r sends,
        else CollectiveMismatch. Needs a link between each member and the root, else Unsupported."""
        return self._run(request.gather_v(send, recv, recv_counts, root, tag, timeout, self._modes, self._group()))

    def gather_v_async(
        self,
        send: Any,
        recv: Any = None,
        recv_counts: Sequence[int] | None = None,
        root: int = 0,
        *,
        tag: int = 0,
        timeout: float | None = None,
    ) -> Handle:
        """As `gather_v`, but returns at once."""
        return self._launch(request.gather_v(send, recv, recv_counts, root, tag, timeout, self._modes, self._group()))

    def scatter_v(
        self,
        send: Any,
        send_counts: Sequence[int] | None,
        recv: Any,
        root: int = 0,
        *,
        tag: int = 0,
        timeout: float | None = None,
    ) -> ReduceInfo:
        """As `scatter` with parts that may differ: the root passes `send_counts[r]`, the elements of `recv` of rank r,
        else CollectiveMismatch. Needs a link between each member and the root, else Unsupported."""
        return self._run(request.scatter_v(send, send_counts, recv, root, tag, timeout, self._modes, self._group()))

    def scatter_v_async(
        self,
        send: Any,
        send_counts: Sequence[int] | None,
        recv: Any,
        root: int = 0,
        *,
        tag: int = 0,
        timeout: float | None = None,
    ) -> Handle:
        """As `scatter_v`, but returns at once."""
        return self._launch(request.scatter_v(send, send_counts, recv, root, tag, timeout, self._modes, self._group()))

    def all_to_all_v(
        self,
        send: Any,
        send_counts: Sequence[int],
        recv: Any,
        recv_counts: Sequence[int],
        *,
        tag: int = 0,
        timeout: float | None = None,
    ) -> ReduceInfo:
        """As `all_to_all` with parts that may differ: `send_counts[r]` elements go to rank r, `recv_counts[r]` come
        from it; what one sends must be what the other expects, else CollectiveMismatch. Needs all links, else
        Unsupported."""
        return self._run(
            request.uneven(
                Collective.ALL_TO_ALL,
                send,
                send_counts,
                recv,
                recv_counts,
                0,
                0,
                tag,
                timeout,
                self._modes,
                self._group(),
            )
        )

    def all_to_all_v_async(
        self,
        send: Any,
        send_counts: Sequence[int],
        recv: Any,
        recv_counts: Sequence[int],
        *,
        tag: int = 0,
        timeout: float | None = None,
    ) -> Handle:
        """As `all_to_all_v`, but returns at once."""
        return self._launch(
            request.uneven(
                Collective.ALL_TO_ALL,
                send,
                send_counts,
                recv,
                recv_counts,
                0,
                0,
                tag,
                timeout,
                self._modes,
                self._group(),
            )
        )

    def broadcast(
        self,
        x: Any,
        root: int = 0,
        *,
        tag: int = 0,
        epoch: int = 0,
        algorithm: Algorithm = Algorithm.AUTO,
        timeout: float | None = None,
    ) -> ReduceInfo:
        """`x` of all members becomes that of rank `root`. With `epoch`, raises PeerLost unless it runs in that epoch:
        ranks may mean other peers in another. Errors as in `all_reduce`."""
        return self._run(request.broadcast(x, root, tag, epoch, algorithm, timeout, self._modes))

    def broadcast_async(
        self,
        x: Any,
        root: int = 0,
        *,
        tag: int = 0,
        epoch: int = 0,
        algorithm: Algorithm = Algorithm.AUTO,
        timeout: float | None = None,
    ) -> Handle:
        """As `broadcast`, but returns at once."""
        return self._launch(request.broadcast(x, root, tag, epoch, algorithm, timeout, self._modes))

    def barrier(self, *, tag: int = 0, timeout: float | None = None) -> ReduceInfo:
        """Returns when all members of the group have called it. Errors as in `all_reduce`."""
        return self._run(request.barrier(tag, timeout, self._modes))

    def barrier_async(self, *, tag: int = 0, timeout: float | None = None) -> Handle:
        """As `barrier`, but returns at once."""
        return self._launch(request.barrier(tag, timeout, self._modes))

    def commit(self, *, timeout: float | None = None) -> ReduceInfo:
        """With `commit="deferred"`: settles all operations since the last commit, alike on every survivor.

        Returns when they are good everywhere; raises PeerLost when the whole step is to be repeated everywhere.
        """
        return self._run(request.commit(timeout))
