# SPDX-License-Identifier: MIT
"""The kinds that calls and results are described with; the numbers are those of csrc/pccl.h."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any

import numpy as np

from pccl._native import constants
from pccl.errors import InvalidArgument


class DataType(IntEnum):
    """Element types that collectives move and reduce; those of 8-bit floats can only be moved. FLOAT and DOUBLE are
    other names of FLOAT32 and FLOAT64."""

    INT8 = constants.PCCL_INT8
    UINT8 = constants.PCCL_UINT8
    INT16 = constants.PCCL_INT16
    UINT16 = constants.PCCL_UINT16
    INT32 = constants.PCCL_INT32
    UINT32 = constants.PCCL_UINT32
    INT64 = constants.PCCL_INT64
    UINT64 = constants.PCCL_UINT64
    FLOAT16 = constants.PCCL_FLOAT16
    BFLOAT16 = constants.PCCL_BFLOAT16
    FLOAT32 = constants.PCCL_FLOAT32
    FLOAT64 = constants.PCCL_FLOAT64
    BOOL = constants.PCCL_BOOL
    COMPLEX64 = constants.PCCL_COMPLEX64
    COMPLEX128 = constants.PCCL_COMPLEX128
    FLOAT8_E4M3FN = constants.PCCL_FLOAT8_E4M3FN
    FLOAT8_E5M2 = constants.PCCL_FLOAT8_E5M2
    FLOAT = constants.PCCL_FLOAT32
    DOUBLE = constants.PCCL_FLOAT64

    @classmethod
    def from_numpy_dtype(cls, dtype: np.dtype[Any]) -> DataType:
        """Raises InvalidArgument for what pccl does not know."""
        return cls._named(dtype.name if dtype.isnative else dtype.str)

    @classmethod
    def from_torch_dtype(cls, dtype: Any) -> DataType:
        """Raises InvalidArgument for what pccl does not know."""
        return cls._named(str(dtype).removeprefix("torch."))

    def to_numpy_dtype(self) -> np.dtype[Any]:
        """Raises InvalidArgument for TORCH_ONLY."""
        if self in TORCH_ONLY:
            raise InvalidArgument(f"numpy has no {self.name.lower()}")
        return np.dtype(self.name.lower())

    def to_torch_dtype(self) -> Any:
        """The torch.dtype; imports torch."""
        return getattr(importlib.import_module("torch"), self.name.lower())

    @classmethod
    def _named(cls, name: str) -> DataType:
        for kind in cls:
            if kind.name.lower() == name:
                return kind
        raise InvalidArgument(f"no DataType for {name}")


TORCH_ONLY = frozenset({DataType.BFLOAT16, DataType.FLOAT8_E4M3FN, DataType.FLOAT8_E5M2})
"""What numpy does not have."""


class ReduceOp(IntEnum):
    """How elements are combined. Integers know all but PREMUL_SUM; floats know no BAND, BOR, BXOR; complex numbers also
    neither MIN nor MAX. Of booleans, SUM, MAX and BOR are "or", PROD, MIN and BAND are "and", and there is no AVG."""

    SUM = constants.PCCL_SUM
    AVG = constants.PCCL_AVG
    """Sum divided by the world size; integers truncate towards zero."""
    PROD = constants.PCCL_PROD
    MIN = constants.PCCL_MIN
    """As MAX: a NaN in any contribution gives NaN."""
    MAX = constants.PCCL_MAX
    BAND = constants.PCCL_BAND
    BOR = constants.PCCL_BOR
    BXOR = constants.PCCL_BXOR
    PREMUL_SUM = constants.PCCL_PREMUL_SUM
    """What a `PremulSum` is: it needs a factor."""


@dataclass(frozen=True, slots=True)
class PremulSum:
    """An `op`: the sum of what members have, each times its own factor; these may differ. Of floats and complex
    numbers; the factor is rounded to their type first (to float32 for smaller floats). What is handed in stays as it
    is, as with other operations; a copy takes as much memory until the operation has ended."""

    factor: float


class Collective(IntEnum):
    """What members do together."""

    ALL_REDUCE = constants.PCCL_ALL_REDUCE
    REDUCE_SCATTER = constants.PCCL_REDUCE_SCATTER
    ALL_GATHER = constants.PCCL_ALL_GATHER
    BROADCAST = constants.PCCL_BROADCAST
    BARRIER = constants.PCCL_BARRIER
    COMMIT = constants.PCCL_COMMIT
    REDUCE = constants.PCCL_REDUCE
    GATHER = constants.PCCL_GATHER
    SCATTER = constants.PCCL_SCATTER
    ALL_TO_ALL = constants.PCCL_ALL_TO_ALL
    SCAN = constants.PCCL_SCAN
    EXSCAN = constants.PCCL_EXSCAN
    SEND = constants.PCCL_SEND
    RECV = constants.PCCL_RECV


class Algorithm(IntEnum):
    """How a collective moves its bytes. AUTO chooses by bytes and world size; `Communicator.explain_call` says why. Any
    other is a wish: where links that it needs are down, the automatic choice is taken, and the result's info tells."""

    AUTO = constants.PCCL_AUTO
    RING = constants.PCCL_RING
    DOUBLING = constants.PCCL_DOUBLING
    BINOMIAL = constants.PCCL_BINOMIAL
    CHAIN = constants.PCCL_CHAIN
    DISSEMINATION = constants.PCCL_DISSEMINATION
    TREE = constants.PCCL_TREE
    """Along the links of a tree; the only choice where the living links between members hold no ring."""
    STAR = constants.PCCL_STAR
    PAIRWISE = constants.PCCL_PAIRWISE
    BRUCK = constants.PCCL_BRUCK
    HALVING = constants.PCCL_HALVING
    LINE = constants.PCCL_LINE
    """Along the ring without one of its links, for what passes from one member to another."""
    HIERARCHICAL = constants.PCCL_HIERARCHICAL
    """Within each host first, then between hosts, so that fewer bytes and rounds go the long way. Every member of a
    host leads a slice: for large vectors."""
    LEADERS = constants.PCCL_LEADERS
    """In two levels, too, but one member speaks for each host: for small vectors."""
    DIRECT = constants.PCCL_DIRECT
    """All_reduce in two rounds: each part to the one member that adds it up, and from there to all."""


class Attribute(Enum):
    """What `Communicator.get_attribute` can tell."""

    GLOBAL_WORLD_SIZE = 1
    """Accepted peers of the whole run."""
    PEER_GROUP_WORLD_SIZE = 2
    """Members of this peer's group; LOCAL_WORLD_SIZE is another name of it."""
    LOCAL_WORLD_SIZE = 2  # noqa: PIE796
    NUM_DISTINCT_PEER_GROUPS = 3
    """Groups of the run that have members."""
    LARGEST_PEER_GROUP_WORLD_SIZE = 4
    """Members of the largest group of the run."""
