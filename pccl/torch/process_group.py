# SPDX-License-Identifier: MIT
"""The backend in Python: a `torch.distributed.ProcessGroup` over pccl's own Python API.

What for: it stands in wherever the C++ form cannot be had. Up to torch 2.13 the group as a whole is this object, so
some of what torch does only in C++ (several backends in one group, compiled DDP) is not for it.

The one idea: torch calls its methods in two ways, from Python with many signatures and from C++ with one. Both come
down to `_begin`, which starts the requests of `calls.py`, or makes them at once where torch says that it will wait
anyway.
"""

# Torch's own stubs list signatures one by one, where one that takes all of them stands here.
# mypy: disable-error-code="override, assignment, attr-defined, call-arg, no-untyped-call"

from __future__ import annotations

import itertools
import uuid
from collections import Counter, deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import Store

from pccl.enums import ReduceOp
from pccl.errors import Aborted, Closed, InvalidArgument, OperationTimeout, PCCLError, Unsupported
from pccl.quantization import QuantizationOptions
from pccl.torch import elastic, errors, sparse, tensors
from pccl.torch.calls import Calls, Started
from pccl.torch.group import Group, Part, part_of, tag_of
from pccl.torch.options import Options
from pccl.torch.runtime import Runtime
from pccl.torch.span import Span
from pccl.torch.work import Work

DEVICES = ("cpu", "cuda")

Split = Callable[[Part, Store], "ProcessGroup"]
"""Makes a part of a group."""

_RECENT, _RECENT_BYTES = 64, 4096
"""So many small operations keep their Work. DDP's join hands that of its smallest to C++, which keeps no Python object
alive, and would wait for ever when that has gone."""


class ProcessGroup(dist.ProcessGroup):
    """One group of one runtime. Names and signatures are torch's."""

    def __init__(self, runtime: Runtime, group: Group, options: Options, store: Store, split: Split) -> None:
        super().__init__(group.index, group.size)
        self._runtime, self._group, self.options, self._store = runtime, group, options, store
        self._split, self._splits = split, Counter[tuple[int, ...]]()
        self._handle = f"pccl-{uuid.uuid4()}"
        self._calls = Calls(group, runtime.comm.world_size, deterministic=options.deterministic)
        self._name, self._desc = group.name, "undefined"
        self._timeout_s = group.timeout_ms / 1000
        self._numbers = itertools.count(1)
        self._number = 0
        self._ended: PCCLError | None = None
        self._batch: list[Work] | None = None
        self._recent: deque[Work] = deque(maxlen=_RECENT)

    def rebind(self, engine: int, group: Group) -> None:
        """Serves these members from now on. Nothing is under way."""
        self._group = group
        self._calls = Calls(group, self._runtime.comm.world_size, deterministic=self.options.deterministic)

    def quantized(self, options: QuantizationOptions, errors: Tensor | None) -> ProcessGroup:
        """The same group for one call that is quantized, in its turn among the calls of this one."""
        return _Quantized(self, options, errors)

    # ------------------------------------------------------------ who it is

    def getBackendName(self) -> str:
        return "pccl"

    name = _get_backend_name = getBackendName

    def getRank(self) -> int:
        return self._group.index

    def getSize(self) -> int:
        return self._group.size

    rank, size = getRank, getSize

    def get_group_store(self) -> Store:
        return self._store

    def getGroupName(self) -> str:
        return self._name

    def setGroupName(self, name: str) -> None:
        self._name = name

    def getGroupDesc(self) -> str:
        return self._desc

    def setGroupDesc(self, desc: str) -> None:
        self._desc = desc

    _set_group_name, _set_group_desc = setGroupName, setGroupDesc
    group_name = property(getGroupName)
    group_desc = property(getGroupDesc)

    @property
    def _device_types(self) -> list[torch.device]:
        return [torch.device(it) for it in DEVICES]

    def _get_backend(self, device: torch.device) -> ProcessGroup:
        """Itself, which answers what torch asks a backend."""
        return self

    supports_splitting = not hasattr(dist, "_reconfigure")  # where it is, torch takes backends in C++ alone for that
    supports_coalescing = supports_time_estimate = supports_tensor_alloc = False

    def _has_hooks(self) -> bool:
        return False

    def _set_sequence_number_for_group(self) -> None:
        """They count from 0."""

    def _get_sequence_number_for_group(self) -> int:
        return self._number

    def _set_default_timeout(self, timeout: timedelta) -> None:
        self._timeout_s = timeout.total_seconds()

    set_timeout = _set_default_timeout

    # ------------------------------------------------------------ its parts

    def split_group(
        self,
        ranks: Sequence[int],
        timeout: timedelta | None = None,
        opts: Options | None = None,
        group_name: str | None = None,
        group_desc: str | None = None,
        device_types: Any = None,
    ) -> ProcessGroup | None:
        """The group of some of its ranks, None where we are not among them. All ranks call it; nothing is sent. It has
        the options of the whole."""
        if self._ended is not None:
            self._refuse()
        seconds = self._timeout_s if timeout is None else timeout.total_seconds()
        try:
            part = part_of(self._group, ranks, self._splits[tuple(ranks)], group_name, seconds)
            if part is None:
                return None
            self._splits[tuple(ranks)] += 1
            made = self._split(part, dist.PrefixStore(f"{part.name}/", self._store))
        except PCCLError as failure:
            raise errors.translated(failure) from failure
        made.setGroupName(part.name)
        made.setGroupDesc(group_desc or "undefined")
        return made

    def perform_nocolor_split(self, device: torch.device) -> None:
        """For who is in no part: nothing is to be done."""

    def eager_connect_single_device(self, device: torch.device) -> None:
        """Links come with the first operation."""

    # ------------------------------------------------------------ its members, from torch 2.14 on

    @property
    def supports_reconfigure(self) -> bool:
        """Whether they may change."""
        return self.options.elastic

    def get_reconfigure_handle(self) -> str:
        """This process' name for those who reconfigure."""
        if not self.options.elastic:
            raise Unsupported("the members of this group do not change: make it with elastic=True")
        return self._handle

    def reconfigure(self, opts: Any) -> Work:
        """Blocks until all have called it. Raises InvalidArgument where the members are others than was said."""
        handles = list(opts.handles)
        if self.get_reconfigure_handle() not in handles:
            raise InvalidArgument("the handle of this rank is not among those that were given")
        try:
            elastic.meet(len(handles), handles.index(self._handle) if isinstance(opts.handles, list) else -1)
        except PCCLError as failure:
            raise errors.translated(failure) from failure
        return Work([], [])

    # ------------------------------------------------------------ its end

    def abort(self) -> None:
        """Ends it at once. What is under way raises Aborted where it is waited for."""
        self._end(Aborted("the group was aborted"), abort=True)

    def shutdown(self) -> None:
        """Ends it in good order: the last group of a runtime waits a while for the other ranks."""
        self._end(Closed("the group was destroyed"), abort=False)

    def _end(self, why: PCCLError, *, abort: bool) -> None:
        if self._ended is None:
            self._ended = why
            self._runtime.release(self._group.name, abort=abort)

    # ------------------------------------------------------------ what reduces

    def allreduce(self, given: Any, opts: Any = None, timeout: timedelta | None = None) -> Work:
        given, op, patience = _listed(given), _op(opts), self._patience(opts, timeout)
        if len(given) == 1 and given[0].layout == torch.sparse_coo:
            return self._sparse(given[0], op, patience) if self._ended is None else self._refuse()
        return self._begin("all_reduce", lambda: self._calls.all_reduce(given, op, patience), opts)

    def allreduce_coalesced(self, given: Sequence[Tensor], opts: Any = None) -> Work:
        patience = self._patience(opts)
        return self._begin("all_reduce_coalesced", lambda: self._calls.all_reduce(given, _op(opts), patience), opts)

    def reduce(self, given: Any, opts: Any = None, op: Any = None, timeout: timedelta | None = None) -> Work:
        (tensor,), root = _listed(given), _root(opts)
        patience, kind = self._patience(opts, timeout), _op(opts) if op is None else op
        return self._begin("reduce", lambda: self._calls.reduce(tensor, root, kind, patience), opts)

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None) -> Work:
        outputs, inputs, patience = _listed(outputs), _lists(inputs), self._patience(opts, timeout)

        def prepare() -> Started:
            pairs = zip(outputs, inputs, strict=True)
            return _merged(self._calls.reduce_scatter_list(out, given, _op(opts), patience) for out, given in pairs)

        return self._begin("reduce_scatter", prepare, opts)

    def reduce_scatter_single(self, output: Tensor, given: Tensor, opts: Any = None) -> Work:
        patience = self._patience(opts)
        return self._begin(
            "reduce_scatter_tensor", lambda: self._calls.reduce_scatter(output, given, _op(opts), patience), opts
        )

    def reduce_scatter_single_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None
    ) -> Work:
        patience = self._patience(opts)

        def prepare() -> Started:
            pairs = zip(outputs, inputs, strict=True)
            return _merged(self._calls.reduce_scatter(out, given, _op(opts), patience) for out, given in pairs)

        return self._begin("reduce_scatter_tensor_coalesced", prepare, opts)

    # ------------------------------------------------------------ what moves

    def broadcast(self, given: Any, opts: Any = None, timeout: timedelta | None = None, **named: Any) -> Work:
        given, root = _listed(given), _root(named.get("root", opts))
        patience = self._patience(opts, timeout)
        return self._begin("broadcast", lambda: self._calls.broadcast(given, root, patience), opts)

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None) -> Work:
        return self._all_gathers("all_gather", _lists(outputs), _listed(inputs), opts, timeout)

    def allgather_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Work:
        by_tensor = [list(it) for it in zip(*outputs, strict=True)]  # torch has them by rank
        return self._all_gathers("all_gather_coalesced", by_tensor, inputs, opts, None)

    def _all_gathers(self, title: str, outputs: Any, inputs: Any, opts: Any, timeout: timedelta | None) -> Work:
        patience = self._patience(opts, timeout)

        def prepare() -> Started:
            pairs = zip(outputs, inputs, strict=True)
            return _merged(self._calls.all_gather_list(out, given, patience) for out, given in pairs)

        return self._begin(title, prepare, opts)

    def all_gather_single(self, output: Tensor, given: Tensor, opts: Any = None) -> Work:
        patience = self._patience(opts)
        return self._begin("all_gather_into_tensor", lambda: self._calls.all_gather(output, given, patience), opts)

    def all_gather_single_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None
    ) -> Work:
        patience = self._patience(opts)

        def prepare() -> Started:
            pairs = zip(outputs, inputs, strict=True)
            return _merged(self._calls.all_gather(out, given, patience) for out, given in pairs)

        return self._begin("all_gather_into_tensor_coalesced", prepare, opts)

    def gather(
        self, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None, **named: Any
    ) -> Work:
        (tensor,), root, patience = _listed(inputs), _root(named.get("root", opts)), self._patience(opts, timeout)
        into = _lists(outputs)[0] if outputs else []
        return self._begin("gather", lambda: self._calls.gather(into, tensor, root, patience), opts)

    def scatter(
        self, outputs: Any, inputs: Any, opts: Any = None, timeout: timedelta | None = None, **named: Any
    ) -> Work:
        (tensor,), root, patience = _listed(outputs), _root(named.get("root", opts)), self._patience(opts, timeout)
        given = _lists(inputs)[0] if inputs else []
        return self._begin("scatter", lambda: self._calls.scatter(tensor, given, root, patience), opts)

    def all_to_all_single(
        self,
        output: Tensor,
        given: Tensor,
        output_splits: Sequence[int] = (),
        input_splits: Sequence[int] = (),
        opts: Any = None,
        timeout: timedelta | None = None,
    ) -> Work:
        patience = self._patience(opts, timeout)

        def prepare() -> Started:
            return self._calls.all_to_all(output, given, output_splits, input_splits, patience)

        return self._begin("all_to_all_single", prepare, opts)

    def alltoall(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any = None, timeout: timedelta | None = None
    ) -> Work:
        patience = self._patience(opts, timeout)
        return self._begin("all_to_all", lambda: self._calls.all_to_all_list(outputs, inputs, patience), opts)

    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    # ------------------------------------------------------------ what meets, and what goes from one to another

    def barrier(self, opts: Any = None, timeout: timedelta | None = None) -> Work:
        patience = self._patience(opts, timeout)
        return self._begin("barrier", lambda: self._calls.barrier(patience), opts)

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """The error of a timeout names the ranks that have not come, all of them. With a timeout of zero it is certain,
        and nothing is sent."""
        patience_s = self._timeout_s if timeout is None else timeout.total_seconds()
        late = f"Rank {self._group.index} timed out in monitoredBarrier after {patience_s * 1000:.0f} ms"
        if patience_s <= 0:
            raise errors.translated(OperationTimeout(late))
        try:
            self.barrier(timeout=timedelta(seconds=patience_s)).wait()
        except dist.DistBackendError as failure:
            reason = errors.cause(failure)
            if isinstance(reason, OperationTimeout):
                raise errors.translated(OperationTimeout(f"{late}: {reason}")) from failure
            raise

    def send(self, given: Any, to: int, tag: int = 0) -> Work:
        (tensor,) = _listed(given)
        return self._begin("send", lambda: self._calls.send(tensor, to, tag, self._timeout_s))

    def recv(self, given: Any, source: int, tag: int = 0) -> Work:
        (tensor,) = _listed(given)
        return self._begin("recv", lambda: self._calls.recv(tensor, source, tag, self._timeout_s))

    def recv_anysource(self, given: Any, tag: int = 0) -> Work:
        (tensor,) = _listed(given)
        return self._begin("recv_any_source", lambda: self._calls.recv(tensor, None, tag, self._timeout_s))

    def _start_coalescing(self, device: torch.device) -> None:
        self._batch = []

    def _end_coalescing(self, device: torch.device) -> Work:
        works, self._batch = self._batch or [], None
        return Work([_Ended(it) for it in works], [])

    # ------------------------------------------------------------ down to the engine

    def _begin(self, title: str, prepare: Callable[[], Started], opts: Any = None) -> Work:
        if self._ended is not None:
            self._refuse()
        if not torch.autograd._profiler_enabled():
            return self._start(prepare, opts)
        span = Span(f"pccl:{title}")
        try:
            work = self._start(prepare, opts)
        except BaseException:
            span.close()
            raise
        if work.is_settled:
            span.close()
        else:
            work.spans(span)
        return work

    def _refuse(self) -> NoReturn:
        assert self._ended is not None
        raise errors.translated(type(self._ended)(str(self._ended)))

    def _start(self, prepare: Callable[[], Started], opts: Any) -> Work:
        number = self._number = next(self._numbers)
        comm, endings = self._runtime.comm, []
        try:
            started = prepare()
            if not getattr(opts, "asyncOp", True) and self._batch is None:
                for one in started.requests:
                    comm._run(one)
            else:
                endings = [comm._launch(one) for one in started.requests]
        except PCCLError as failure:
            raise errors.translated(failure) from failure.__cause__
        work = Work(
            endings,
            started.outputs,
            started.finish,
            aborted=self._is_aborted,
            source=self._group.rank_of,
            number=number,
        )
        if self._batch is not None:
            self._batch.append(work)
        if endings and sum(it.nbytes for it in started.outputs if not it.is_sparse) <= _RECENT_BYTES:
            self._recent.append(work)
        return work

    def _sparse(self, tensor: Tensor, op: Any, patience: float) -> Work:
        if tensors.reduction(op) is not ReduceOp.SUM:
            raise InvalidArgument(f"sparse tensors can be summed, and nothing else: {op}")
        tensors.reducible(tensor, "tensor")
        calls = self._calls.tagged(tag_of(f"{self._group.key} sparse"))
        job = self._runtime.comm._submit("sparse all_reduce", calls.tag, sparse.all_reduce(calls, tensor, patience))
        return Work([job], [tensor], aborted=self._is_aborted)

    def _is_aborted(self) -> bool:
        return isinstance(self._ended, Aborted)

    def _patience(self, opts: Any, timeout: timedelta | None = None) -> float:
        """In seconds."""
        asked = timeout if timeout is not None else getattr(opts, "timeout", None)
        if isinstance(asked, timedelta) and asked.total_seconds() > 0:
            return asked.total_seconds()
        return self._timeout_s


class _Quantized(ProcessGroup):
    """Prepares calls of its own, and begins them as calls of `whole`."""

    def __init__(self, whole: ProcessGroup, options: QuantizationOptions, errors: Tensor | None) -> None:
        super(ProcessGroup, self).__init__(whole._group.index, whole._group.size)
        self._whole, self._group, self._timeout_s, self._ended = whole, whole._group, whole._timeout_s, None
        self._calls = whole._calls.quantized(options, errors)

    def _begin(self, title: str, prepare: Callable[[], Started], opts: Any = None) -> Work:
        return self._whole._begin(title, prepare, opts)


class _Ended:
    """A Work as part of another one."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def wait(self, timeout: float | None = None) -> object:
        self._work._settle(timeout)
        if self._work._failure is not None:
            raise errors.cause(self._work._failure) or self._work._failure
        return None

    def done(self) -> bool:
        return self._work.is_completed()

    def on_end(self, callback: Callable[[], None]) -> None:
        self._work.get_future().add_done_callback(lambda _: callback())


def _listed(given: Any) -> list[Tensor]:
    return [given] if isinstance(given, Tensor) else list(given)


def _lists(given: Any) -> list[list[Tensor]]:
    given = list(given)
    return [given] if given and isinstance(given[0], Tensor) else [list(it) for it in given]


def _op(opts: Any) -> Any:
    """The operation in options, or itself where torch's other signatures pass it alone."""
    if opts is None or isinstance(opts, int):
        return dist.ReduceOp.RedOpType.SUM
    return getattr(opts, "reduceOp", opts)


def _root(opts: Any) -> int:
    return opts if isinstance(opts, int) else getattr(opts, "rootRank", 0)


def _merged(many: Any) -> Started:
    whole = Started()
    for it in many:
        whole.requests += it.requests
        whole.outputs += it.outputs
        whole.finish += it.finish
    return whole
