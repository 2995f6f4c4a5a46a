# SPDX-License-Identifier: MIT
"""The messages between a peer and the master: frozen dataclasses, their encoding, and nothing else.

What for: the only place that turns untrusted bytes into objects of the control plane. Must not know: sockets, time, who
may say what when (the cores' tables), what a message causes.

The one idea: a message is a flat msgpack array `[kind, field, field, ...]`. Each field's annotation carries its limits,
so one walk checks type, range, length and count before an object exists; whatever does not fit raises ProtocolError.
The first two elements of a `Hello` (kind 1, version) and the whole of `Refused` (kind 64) never change between
versions, so any two versions can tell each other apart politely.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable
from typing import Annotated, Any

import msgpack

from pccl.errors import ProtocolError

PROTOCOL_VERSION = 2

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
MAX_TEXT_CHARACTERS = 512
MAX_ADDRESS_CHARACTERS = 63
MAX_MEMBERS = 16_384
MAX_REPORT_LINES = 131_072
MAX_STALLED_RANKS = 8
MAX_BODY_BYTES = 8 * 1024 * 1024
MAX_STATE_ENTRIES = 65_536
MAX_STATE_NAME_CHARACTERS = 255
MAX_STATE_DIMENSIONS = 64
ID_BYTES = 16


@dataclasses.dataclass(frozen=True)
class Limit:
    """Bounds of a field: the value of an int, the length of a str or bytes, the count of a tuple. `step` divides it."""

    low: int
    high: int
    step: int = 1


Flag = bool
U16 = Annotated[int, Limit(0, 2**16 - 1)]
U32 = Annotated[int, Limit(0, 2**32 - 1)]
U64 = Annotated[int, Limit(0, 2**64 - 1)]
Id = Annotated[bytes, Limit(ID_BYTES, ID_BYTES)]
OptionalId = Annotated[bytes, Limit(0, ID_BYTES, ID_BYTES)]  # b"" is nobody
Text = Annotated[str, Limit(0, MAX_TEXT_CHARACTERS)]
Address = Annotated[str, Limit(1, MAX_ADDRESS_CHARACTERS)]
Body = Annotated[bytes, Limit(0, MAX_BODY_BYTES)]
Revision = Annotated[int, Limit(0, 2**63 - 1)]

Decoder = Callable[[Any], Any]


def _encoder(hint: Any, name: str) -> Callable[[Any], Any]:
    """How to read field `name` of an object as msgpack primitives."""
    item = _tuple_item(hint)
    if item is not None and dataclasses.is_dataclass(item):
        inner = [field.name for field in dataclasses.fields(item)]
        return lambda obj: [[getattr(entry, part) for part in inner] for entry in getattr(obj, name)]
    if dataclasses.is_dataclass(hint):
        parts = [field.name for field in dataclasses.fields(hint)]
        return lambda obj: [getattr(getattr(obj, name), part) for part in parts]
    return lambda obj: getattr(obj, name)


def _tuple_item(hint: Any) -> Any:
    """The element type of `tuple[X, ...]` (annotated or not), else None."""
    base = typing.get_args(hint)[0] if typing.get_origin(hint) is Annotated else hint
    if typing.get_origin(base) is tuple:
        return typing.get_args(base)[0]
    return None


def _decoder(hint: Any, where: str) -> Decoder:
    """A function that checks one msgpack value against `hint` and returns it, or raises ProtocolError."""
    if dataclasses.is_dataclass(hint):
        return _struct_decoder(hint, where)
    if hint is bool:
        return _flag_decoder(where)
    base, limit = typing.get_args(hint)
    if base is int:
        return _int_decoder(limit, where)
    if base is str or base is bytes:
        return _sized_decoder(base, limit, where)
    return _tuple_decoder(_decoder(_tuple_item(base), where), limit, where)


def _flag_decoder(where: str) -> Decoder:
    def decode_flag(value: Any) -> Any:
        if type(value) is not bool:
            raise ProtocolError(f"{where}: not a flag")
        return value

    return decode_flag


def _int_decoder(limit: Limit, where: str) -> Decoder:
    low, high = limit.low, limit.high

    def decode_int(value: Any) -> Any:
        if type(value) is not int or not low <= value <= high:
            raise ProtocolError(f"{where}: not an integer from {low} to {high}")
        return value

    return decode_int


def _sized_decoder(base: Any, limit: Limit, where: str) -> Decoder:
    low, high, step = limit.low, limit.high, limit.step

    def decode_sized(value: Any) -> Any:
        if type(value) is not base or not low <= len(value) <= high or len(value) % step:
            raise ProtocolError(f"{where}: not {base.__name__} of length {low} to {high}")
        return value

    return decode_sized


def _tuple_decoder(item: Decoder, limit: Limit, where: str) -> Decoder:
    def decode_tuple(value: Any) -> Any:
        if type(value) is not list or not limit.low <= len(value) <= limit.high:
            raise ProtocolError(f"{where}: not a list of {limit.low} to {limit.high} elements")
        return tuple([item(entry) for entry in value])

    return decode_tuple


def _struct_decoder(cls: Any, where: str) -> Decoder:
    hints = typing.get_type_hints(cls, include_extras=True)
    fields = [_decoder(hints[field.name], f"{where}.{field.name}") for field in dataclasses.fields(cls)]

    def decode_struct(value: Any) -> Any:
        if type(value) is not list or len(value) != len(fields):
            raise ProtocolError(f"{where}: not {len(fields)} fields")
        return cls(*[decode_field(entry) for decode_field, entry in zip(fields, value, strict=True)])

    return decode_struct


# ---------------------------------------------------------------------------------------------- parts of messages


@dataclasses.dataclass(frozen=True, slots=True)
class Member:
    """One member of a view: who it is and where its data plane listens. Mirrors `pccl_member`."""

    id: Id
    address: Address
    port: U16
    host_id: U64


@dataclasses.dataclass(frozen=True, slots=True)
class ReportLine:
    """Mirrors `pccl_report_line`: in `tag`, all below `returned_below` returned; `sequence` is in `state` (0-3)."""

    tag: U64
    returned_below: U32
    sequence: U32
    state: Annotated[int, Limit(0, 3)]


@dataclasses.dataclass(frozen=True, slots=True)
class OperationName:
    """Mirrors `pccl_operation_name`; the epoch is said beside it."""

    tag: U64
    sequence: U32


@dataclasses.dataclass(frozen=True, slots=True)
class Census:
    """What every peer may know about the whole run: accepted peers, groups, size of the largest group."""

    peers: U32
    groups: U32
    largest_group: U32


@dataclasses.dataclass(frozen=True, slots=True)
class StateEntry:
    """One named tensor of a shared state. `digest` covers dtype, shape and bytes."""

    name: Annotated[str, Limit(0, MAX_STATE_NAME_CHARACTERS)]
    dtype: Annotated[str, Limit(1, 32)]
    shape: Annotated[tuple[U64, ...], Limit(0, MAX_STATE_DIMENSIONS)]
    digest: Id
    allow_inequality: Flag = False


@dataclasses.dataclass(frozen=True, slots=True)
class StateSource:
    """The content `digest` of entry `index` can be fetched from `donors` (places in the plan's list; none: all)."""

    index: Annotated[int, Limit(0, MAX_STATE_ENTRIES - 1)]
    digest: Id
    donors: Annotated[tuple[U32, ...], Limit(0, MAX_MEMBERS)]


@dataclasses.dataclass(frozen=True, slots=True)
class StateDonor:
    """A member that serves its content; its rank is for texts only."""

    peer: Id
    rank: U32


@dataclasses.dataclass(frozen=True, slots=True)
class StateReceived:
    """`count` bytes of content came from `donor`."""

    donor: Id
    count: U64


# ---------------------------------------------------------------------------------------------- peer -> master


@dataclasses.dataclass(frozen=True, slots=True)
class Hello:
    """First message on every control connection. `secret` is the peer's own, drawn at its start: whoever shows it again
    with the same id is the same process. `epoch` is the last installed one, 0 for none."""

    version: U32
    secret: Id
    group: U32
    epoch: U64


@dataclasses.dataclass(frozen=True, slots=True)
class Register:
    """The data plane listens: the peer may be made a member. Repeated after each Welcome."""

    address: Address
    port: U16
    host_id: U64


@dataclasses.dataclass(frozen=True, slots=True)
class Heartbeat:
    """Once per `heartbeat_ms`. The master answers with HeartbeatReply. `epoch` says what is installed."""

    epoch: U64


@dataclasses.dataclass(frozen=True, slots=True)
class Vote:
    """A joint call. `call` rises with each vote of this peer; `kind` is a VoteKind; `body` belongs to the kind."""

    call: U64
    kind: Annotated[int, Limit(1, 4)]
    body: Body


@dataclasses.dataclass(frozen=True, slots=True)
class Withdraw:
    """The sender waits no longer for vote `call`, of that kind. The answer is a VoteResult: the vote's own if it was
    complete, else TIMEOUT with whom it waited for. `abandoned`: its caller is gone, so that it does not do its part in
    a complete vote either. With `call` 0 a newcomer gives up its wish to be admitted: it gets Refused, or its View."""

    call: U64
    kind: Annotated[int, Limit(1, 4)]
    abandoned: Flag


@dataclasses.dataclass(frozen=True, slots=True)
class Suspect:
    """A link to `peer` broke in `epoch`, while no operation needed it or after the freeze."""

    epoch: U64
    peer: Id
    reason: U16
    text: Text


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """`epoch` is frozen here; `lines` is the state of its operations. `suspect` is b"" where nobody is suspected."""

    epoch: U64
    suspect: OptionalId
    reason: U16
    text: Text
    lines: Annotated[tuple[ReportLine, ...], Limit(0, MAX_REPORT_LINES)]


@dataclasses.dataclass(frozen=True, slots=True)
class Stalled:
    """An operation has waited `waited_ms` for `ranks` (the first few of them)."""

    epoch: U64
    operation: OperationName
    waited_ms: U32
    ranks: Annotated[tuple[U32, ...], Limit(0, MAX_STALLED_RANKS)]


@dataclasses.dataclass(frozen=True, slots=True)
class Started:
    """Answer to HasStarted: 0 no, 1 yes, 2 that epoch is not the current one here."""

    epoch: U64
    operation: OperationName
    answer: Annotated[int, Limit(0, 2)]


@dataclasses.dataclass(frozen=True, slots=True)
class ProbeReply:
    """Answer to Probe, with its nonce."""

    nonce: U64


@dataclasses.dataclass(frozen=True, slots=True)
class Leave:
    """The peer goes in good order. Nothing follows."""

    text: Text


@dataclasses.dataclass(frozen=True, slots=True)
class StateOffer:
    """The body of a SYNC vote: what the voter holds. `entries` are in strict order of name."""

    revision: Revision
    strategy: Annotated[int, Limit(0, 2)]
    entries: Annotated[tuple[StateEntry, ...], Limit(1, MAX_STATE_ENTRIES)]


@dataclasses.dataclass(frozen=True, slots=True)
class StateFetched:
    """The sender holds verified bytes of all that the plan `sync` told it to fetch."""

    sync: U64
    received: Annotated[tuple[StateReceived, ...], Limit(0, MAX_MEMBERS)]


@dataclasses.dataclass(frozen=True, slots=True)
class StateFailed:
    """The sender cannot get what the plan `sync` told it to fetch."""

    sync: U64
    text: Text


# ---------------------------------------------------------------------------------------------- master -> peer


@dataclasses.dataclass(frozen=True, slots=True)
class Refused:
    """The answer to a Hello or Register that cannot be accepted. Frozen across versions. `reason` is a Status."""

    version: U32
    reason: U16
    text: Text


@dataclasses.dataclass(frozen=True, slots=True)
class Welcome:
    """The answer to Hello. `run_secret` opens the data plane; the limits are the master's for all peers."""

    version: U32
    run_secret: Id
    heartbeat_ms: U32
    heartbeat_limit_ms: U32
    census: Census


@dataclasses.dataclass(frozen=True, slots=True)
class View:
    """A new epoch of the receiver's group. `commits` are verdicts for epoch `previous`; what is not named there and
    has not returned is aborted with `cause` (a Status) and `text`. `ring` lists ranks in ring order.
    A member in `admitted` (ranks) had no epoch before; for it `previous` and `commits` mean nothing."""

    epoch: U64
    previous: U64
    group: U32
    members: Annotated[tuple[Member, ...], Limit(1, MAX_MEMBERS)]
    ring: Annotated[tuple[U32, ...], Limit(1, MAX_MEMBERS)]
    admitted: Annotated[tuple[U32, ...], Limit(0, MAX_MEMBERS)]
    commits: Annotated[tuple[OperationName, ...], Limit(0, MAX_REPORT_LINES)]
    cause: U16
    text: Text
    census: Census


@dataclasses.dataclass(frozen=True, slots=True)
class CensusUpdate:
    """Another group changed."""

    census: Census


@dataclasses.dataclass(frozen=True, slots=True)
class FreezeEpoch:
    """Stop all operations of `epoch` and report them."""

    epoch: U64


@dataclasses.dataclass(frozen=True, slots=True)
class Probe:
    """Are you there? Answer with ProbeReply(nonce)."""

    nonce: U64


@dataclasses.dataclass(frozen=True, slots=True)
class HasStarted:
    """Has this peer started `operation` of `epoch`? Answer with Started."""

    epoch: U64
    operation: OperationName


@dataclasses.dataclass(frozen=True, slots=True)
class VoteResult:
    """The end of vote `call`: `status` OK with the kind's value (`flag`, `body`), or a failure with `text`."""

    call: U64
    status: U16
    text: Text
    flag: Flag
    body: Body


@dataclasses.dataclass(frozen=True, slots=True)
class HeartbeatReply:
    """The master lives."""


@dataclasses.dataclass(frozen=True, slots=True)
class ExpelledNotice:
    """The receiver is no member any more. Nothing follows."""

    text: Text


@dataclasses.dataclass(frozen=True, slots=True)
class WhoAreYou:
    """The master has no Hello of this connection (it restarted, or lost the connection): say Hello again."""


@dataclasses.dataclass(frozen=True, slots=True)
class StatePlan:
    """What the receiver does until its SYNC vote `call` ends; it replaces an earlier plan for the same call.
    `serve`: offer all entries under `sync` (region 2i the bytes of entry i, region 2i + 1 its chunk hashes).
    `fetch`: what to get; sources of one entry follow each other, best first."""

    call: U64
    sync: U64
    serve: Flag
    donors: Annotated[tuple[StateDonor, ...], Limit(0, MAX_MEMBERS)]
    fetch: Annotated[tuple[StateSource, ...], Limit(0, 2 * MAX_STATE_ENTRIES)]


@dataclasses.dataclass(frozen=True, slots=True)
class StateAgreed:
    """The body of a SYNC vote's good result: what all members hold now, and the receiver's bytes of content."""

    sync: U64
    revision: Revision
    world_size: U32
    sent: U64
    received: U64


# ---------------------------------------------------------------------------------------------- encoding


@dataclasses.dataclass(frozen=True, slots=True)
class OtherVersion:
    """Not on the wire: what `decode` makes of a Hello of another protocol version, for the core to refuse."""

    version: int


PeerMessage = Hello | Register | Heartbeat | Vote | Suspect | Report | Stalled | Started | ProbeReply | Leave | Withdraw
MasterMessage = (
    Refused
    | Welcome
    | View
    | CensusUpdate
    | FreezeEpoch
    | Probe
    | HasStarted
    | VoteResult
    | HeartbeatReply
    | ExpelledNotice
    | WhoAreYou
)
Message = Any  # one of the classes above; isinstance tells

STATE_MESSAGES: tuple[type, ...] = (StateFetched, StateFailed, StatePlan)
"""Classes of messages that the cores hand to GroupSync (peer -> master) or PeerSync (master -> peer)."""


KINDS: dict[int, type] = {
    1: Hello,
    2: Register,
    3: Heartbeat,
    4: Vote,
    5: Suspect,
    6: Report,
    7: Stalled,
    8: Started,
    9: ProbeReply,
    10: Leave,
    11: StateOffer,
    12: StateFetched,
    13: StateFailed,
    14: Withdraw,
    64: Refused,
    65: Welcome,
    66: View,
    67: CensusUpdate,
    68: FreezeEpoch,
    69: Probe,
    70: HasStarted,
    71: VoteResult,
    72: HeartbeatReply,
    73: ExpelledNotice,
    74: WhoAreYou,
    75: StatePlan,
    76: StateAgreed,
}
"""The numbers on the wire. A number is never used again for another layout."""


def _codec(cls: Any) -> tuple[list[Callable[[Any], Any]], list[Decoder]]:
    hints = typing.get_type_hints(cls, include_extras=True)
    names = [field.name for field in dataclasses.fields(cls)]
    return (
        [_encoder(hints[name], name) for name in names],
        [_decoder(hints[name], f"{cls.__name__}.{name}") for name in names],
    )


_CODECS = {cls: (kind, *_codec(cls)) for kind, cls in KINDS.items()}


def clip(text: str) -> str:
    """`text` cut to what a Text field may hold, and free of surrogates that UTF-8 cannot carry."""
    return text[:MAX_TEXT_CHARACTERS].encode("utf-8", "replace").decode("utf-8")


def encode(obj: Message) -> bytes:
    """The bytes of a message. The object must be one of the classes here; its fields are trusted (ours)."""
    kind, fields, _ = _CODECS[type(obj)]
    packed: bytes = msgpack.packb([kind, *[read(obj) for read in fields]])
    return packed


def decode(data: bytes) -> Message:
    """The message in `data`. Raises ProtocolError for anything else than exactly one well-formed message."""
    if len(data) > MAX_MESSAGE_BYTES:
        raise ProtocolError(f"message of {len(data)} bytes is over the limit of {MAX_MESSAGE_BYTES}")
    try:
        parts = msgpack.unpackb(data, raw=False, strict_map_key=True, max_ext_len=0, max_map_len=0, use_list=True)
    except (ValueError, msgpack.UnpackException, RecursionError, TypeError) as error:
        raise ProtocolError(f"not a message: {error or type(error).__name__}") from None
    if type(parts) is not list or not parts or type(parts[0]) is not int:
        raise ProtocolError("not a message: no kind")
    cls = KINDS.get(parts[0])
    if cls is None:
        raise ProtocolError(f"unknown message kind {parts[0]}")
    fields = _CODECS[cls][2]
    if cls is Hello and len(parts) > 1 and type(parts[1]) is int and parts[1] != PROTOCOL_VERSION:
        return OtherVersion(parts[1])
    if len(parts) != len(fields) + 1:
        raise ProtocolError(f"{cls.__name__}: {len(parts) - 1} fields instead of {len(fields)}")
    made: Message = cls(*[decode_field(value) for decode_field, value in zip(fields, parts[1:], strict=True)])
    return made
